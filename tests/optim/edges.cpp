// What ordinary runs do not show: large eps, steps of no length, biases of several dims.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::test;
using Vector = std::vector<double>;

TEST_CASE("what decays has two dims and is no bias, also where a bias has more") {
  auto decays = [](const Shape& shape, const char* name) { return optim::decays(nn::Parameter(zeros(shape), name)); };
  CHECK(decays({2, 3}, "blocks.0.qkv.weight"));
  CHECK(!decays({2, 3}, "blocks.0.qkv.bias"));
  CHECK(decays({2, 3}, "bias.scale"));
  CHECK(!decays({3}, "norm.weight"));
  CHECK(!decays({}, "scale"));
}

TEST_CASE("Adafactor by hand: both eps, clipping, momentum, decay and a factor of the rate") {
  optim::AdafactorOptions o{.lr = 0.3, .eps1 = 0.05, .eps2 = 2.5, .beta1 = 0.9, .weight_decay = 0.1};
  constexpr double kFactor = 0.5;
  constexpr size_t kRows = 3, kColumns = 4;
  auto rms = [](const Vector& x) {
    double sum = 0;
    for (double v : x) sum += v * v;
    return std::sqrt(sum / static_cast<double>(x.size()));
  };
  for (auto [matrix, bound] : {std::pair{true, 0.5}, {true, 10.0}, {false, 0.5}}) {
    o.clip = bound;
    Shape shape = matrix ? Shape{kRows, kColumns} : Shape{kRows * kColumns};
    Tensor w = normal(1, shape);
    optim::Adafactor opt({w}, o);
    opt.set_lr_factor(kFactor);
    Vector expected = to_vector<double>(w), row(kRows), column(kColumns), v(expected.size()), m(expected.size());
    for (int t = 1; t <= 5; ++t) {  // from the 4th on 1 / sqrt(t) is no more than a bound of lr
      Tensor given = normal(static_cast<uint64_t>(20 + t), shape);
      sum(w * given).backward();
      opt.step();
      opt.zero_grad();
      Vector g = to_vector<double>(given), u = g;
      double share = std::pow(t, -0.8), mean = 0;
      auto at = [&](size_t i, size_t j) { return g[i * kColumns + j] * g[i * kColumns + j] + o.eps1; };
      for (size_t i = 0; i < kRows; ++i) {
        double sum = 0;
        for (size_t j = 0; j < kColumns; ++j) sum += at(i, j) / kColumns;
        row[i] = (1 - share) * row[i] + share * sum;
        mean += row[i] / kRows;
      }
      for (size_t j = 0; j < kColumns; ++j) {
        double sum = 0;
        for (size_t i = 0; i < kRows; ++i) sum += at(i, j) / kRows;
        column[j] = (1 - share) * column[j] + share * sum;
      }
      for (size_t k = 0; k < g.size(); ++k) {
        v[k] = (1 - share) * v[k] + share * (g[k] * g[k] + o.eps1);
        u[k] = g[k] / std::sqrt(matrix ? row[k / kColumns] * column[k % kColumns] / mean : v[k]);
      }
      double clip = std::max(1.0, rms(u) / o.clip);
      double rate = std::min(o.lr, 1 / std::sqrt(t)) * kFactor * std::max(o.eps2, rms(expected));
      for (size_t k = 0; k < g.size(); ++k) {
        m[k] = o.beta1 * m[k] + (1 - o.beta1) * u[k] / clip;
        expected[k] = expected[k] * (1 - o.lr * kFactor * o.weight_decay) - rate * m[k];
      }
      CHECK(distance(w, tensor(expected, shape)) < 1e-13);
    }
  }
}

TEST_CASE("a gradient of zeros moves nothing where a step is scaled by its length") {
  for (const Shape& shape : {Shape{3, 3}, Shape{4, 2}}) {
    Tensor w = normal(1, shape), v = normal(2, shape), start_w = clone(w), start_v = clone(v);
    optim::LAMB lamb({w}, {.weight_decay = 0});
    optim::Muon muon({v}, {.weight_decay = 0});
    sum(w * 0.0 + v * 0.0).backward();
    lamb.step();
    muon.step();
    CHECK(equal(w, start_w));
    CHECK(equal(v, start_v));
  }
}
