// Initial values: the same numbers under deferral and every layout, and the distributions that are promised.
#include "nn/support.h"

#include <cmath>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Model : nn::Module<Model> {
  nn::Linear a{this, "a", {5}, {3, 7}};
  nn::Embedding e{this, "e", 13, 5};
  nn::Parameter k{this, "k", Shape{5, 9}, nn::init::kaiming_uniform(1.0)};
  nn::Parameter x{this, "x", Shape{5, 9}, nn::init::xavier_normal()};
  nn::Parameter c{this, "c", Shape{6}, nn::init::constant(0.25)};
  nn::Dropout drop{this, "drop", 0.5};
  Tensor forward(const Tensor& t) const { return a(t); }
};

std::vector<Tensor> values(const nn::ModuleBase& model) {
  std::vector<Tensor> out;
  for (const nn::Parameter& p : model.parameters()) out.push_back(dist::full_tensor(p.tensor()));
  return out;
}

}  // namespace

TEST_CASE("deferral and layouts change no bit of any initial value, nor what is drawn next") {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
      dist::DeviceMesh mesh = grid(world);
      seed(5);
      auto whole = nn::build<Model>({.dtype = dtype});
      Tensor next = rand({3});
      std::vector<Tensor> want = values(whole);
      for (bool deferred : {false, true})
        for (const char* two : {"...", "dp, ...", "tp, ...", "..., tp", "dp.tp, ...", "tp.dp, ...", "dp, ..., tp"}) {
          CAPTURE(two);
          seed(5);
          auto model = nn::build<Model>({.dtype = dtype, .deferred = deferred});
          CHECK(equal(rand({3}), next));
          nn::shard(model, mesh,
                    {.parameter = {
                         {"a.weight", two}, {"e.weight", two}, {"k", two}, {"x", two}, {"c", "tp"}, {"a.bias", two}}});
          std::vector<Tensor> got = values(model);
          REQUIRE(got.size() == want.size());
          for (size_t i = 0; i < got.size(); ++i) CHECK(equal(got[i], want[i]));
        }
    });
  }
}

TEST_CASE("every random parameter draws a call of its own, a constant one none") {
  struct Pair : nn::Module<Pair> {
    nn::Parameter zero{this, "zero", Shape{4}}, a{this, "a", {4}, nn::init::normal()},
        b{this, "b", {4}, nn::init::normal()};
  };
  seed(9);
  Pair pair;
  CHECK(!equal(pair.a, pair.b));
  seed(9);
  CHECK(equal(pair.a, randn({4})));
  CHECK(equal(pair.b, randn({4})));
}

TEST_CASE("a deferred model holds no memory until it is made, and says so when it is read") {
  empty_cache();
  int64_t before = memory_stats().active;
  auto model = nn::build<Model>({.deferred = true});
  CHECK(memory_stats().active == before);
  CHECK(model.a.weight.is_deferred());
  check_throws<ValueError>([&] { model(ones({2, 5})); }, {"parameter a.", "deferred", "materialize"});
  check_throws<ValueError>([&] { model.c.assign(ones({6})); }, {"c", "deferred"});
  seed(1);
  auto same = nn::build<Model>({});
  seed(1);
  auto late = nn::build<Model>({.deferred = true});
  nn::materialize(late);
  CHECK(equal(late.a.weight, same.a.weight));
  CHECK(late.a.weight.requires_grad());
}

TEST_CASE("a deferred model takes only its blocks' memory") {
  on_ranks({4}, [](dist::World& world) {
    struct Wide : nn::Module<Wide> {
      nn::Linear w{this, "w", 256, 256, {.bias = false}};
      Tensor forward(const Tensor& x) const { return w(x); }
    };
    reset_peak_memory();
    int64_t before = memory_stats().active;
    auto model = nn::build<Wide>({.deferred = true});
    nn::shard(model, grid(world, true), {.parameter = {{"w.weight", "tp, -"}}});
    CHECK(memory_stats().peak - before <= 256 * 256 * 4 / 4 + 4096);
  });
}

TEST_CASE("dtype and options apply to what is built inside, and to nothing after") {
  auto model = nn::build<Model>({.dtype = DType::f64});
  CHECK(model.c.dtype() == DType::f64);
  Model plain;
  CHECK(plain.c.dtype() == DType::f32);
  check_throws<DTypeError>([] { nn::build<Model>({.dtype = DType::i64}); }, {"floating"});
}

namespace {

struct Moments {
  double mean, std, low, high;
};
Moments moments(const Tensor& x) {
  std::vector<double> v = to_vector<double>(x);
  double sum = 0, square = 0, low = v[0], high = v[0];
  for (double d : v) sum += d, square += d * d, low = std::min(low, d), high = std::max(high, d);
  double n = static_cast<double>(v.size()), mean = sum / n;
  return {mean, std::sqrt(square / n - mean * mean), low, high};
}

}  // namespace

TEST_CASE("the distributions are those promised") {
  struct Big : nn::Module<Big> {
    nn::Linear linear{this, "linear", {10, 10}, {200}};
    nn::Parameter kaiming{this, "kaiming", Shape{300, 100}, nn::init::kaiming_uniform(std::sqrt(5.0))};
    nn::Parameter xavier{this, "xavier", Shape{300, 100}, nn::init::xavier_uniform(2)};
    nn::Parameter glorot{this, "glorot", Shape{300, 100}, nn::init::xavier_normal()};
    nn::Parameter normal{this, "normal", Shape{20000}, nn::init::normal(1, 3)};
    Tensor forward(const Tensor& x) const { return x; }
  };
  seed(3);
  auto m = nn::build<Big>({.dtype = DType::f64});
  auto uniform = [](const Tensor& x, double bound) {
    Moments s = moments(x);
    CHECK(s.high <= bound);
    CHECK(s.high > 0.99 * bound);
    CHECK(s.low >= -bound);
    CHECK(s.low < -0.99 * bound);
    CHECK(s.std == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.02));
  };
  uniform(m.linear.weight, 0.1);  // 1 / sqrt(fan_in), both dims of the input
  CHECK(moments(*m.linear.bias).high <= 0.1);
  uniform(m.kaiming, 0.1);
  uniform(m.xavier, 2 * std::sqrt(6.0 / 400));
  CHECK(moments(m.glorot).std == doctest::Approx(std::sqrt(2.0 / 400)).epsilon(0.02));
  CHECK(moments(m.normal).mean == doctest::Approx(1).epsilon(0.1));
  CHECK(moments(m.normal).std == doctest::Approx(3).epsilon(0.02));
  struct Bad : nn::Module<Bad> {
    nn::Parameter p{this, "p", Shape{4}, nn::init::kaiming_uniform()};
  };
  check_throws<ShapeError>([] { Bad bad; }, {"[4]", "2 dims"});
}

TEST_CASE("a layer of nothing has no values and no NaN") {
  struct Empty : nn::Module<Empty> {
    nn::Linear w{this, "w", 0, 3};
    Tensor forward(const Tensor& x) const { return w(x); }
  } model;
  CHECK(to_vector<float>(model(zeros({2, 0}))) == std::vector<float>(6, 0.0f));
}
