// The model: its size, its beginning, and its gradient against finite differences.
#include "gpt/model.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/core/random.h>
#include <cleave/nn/build.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/host.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/unary.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace gpt;
using namespace cleave;

TEST_CASE("W1 and W2 have the parameters that PERFORMANCE gives") {
  auto count = [](const Config& c) {
    return parameter_count(nn::build<Gpt>({.device = Device::Meta, .deferred = true}, completed(c)));
  };
  CHECK(count({}) == 1902720);
  CHECK(count({.vocab = 8192, .layers = 6, .dim = 384, .heads = 6, .seq = 256}) == 17037312);
  CHECK(count({.tied = true}) == 1902720 - 256 * 192);
  CHECK(count({.positions = "rope", .norm = "rms"}) == 1902720 - 128 * 192 - 9 * 192);
  CHECK(count({.kv_heads = 2}) == 1902720 - 4 * 2 * 4 * 32 * 193);
}

TEST_CASE("it starts as GPT-2 does") {
  seed(5);
  Gpt model(completed({.layers = 8, .dim = 96, .heads = 6}));
  NoGrad off;
  for (auto& [name, p] : model.named_parameters()) {
    CAPTURE(name);
    double mean_square = item<double>(mean(square(p.tensor())));
    double root = std::sqrt(mean_square);
    if (name.ends_with("bias"))
      CHECK(root == 0);
    else if (name.find("norm") != std::string::npos)
      CHECK(root == 1);
    else if (name.ends_with("attention.out.weight") || name.ends_with("mlp.down.weight"))
      CHECK(root == doctest::Approx(0.005).epsilon(0.03));
    else
      CHECK(root == doctest::Approx(0.02).epsilon(0.03));
  }
  Tensor ids = tensor<int64_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(model(ids).shape() == Shape{2, 3, 256});
  double sum = item<double>(model(ids, tensor<int64_t>({2, 3, 4, 5, 6, -100}, {2, 3})));
  CHECK(sum == doctest::Approx(5 * std::log(256.0)).epsilon(0.01));
}

TEST_CASE("a token does not see those behind it") {
  for (const char* positions : {"learned", "rope"}) {
    seed(6);
    Gpt model =
        nn::build<Gpt>({.dtype = DType::f64}, completed({.layers = 2, .dim = 24, .seq = 8, .positions = positions}));
    NoGrad off;
    auto logits = [&](std::vector<int64_t> ids) {
      return to_vector<double>(model(tensor(ids, {1, static_cast<int64_t>(ids.size())})));
    };
    auto all = logits({3, 1, 4, 1, 5, 9}), other = logits({3, 1, 4, 1, 2, 6}), part = logits({3, 1, 4});
    for (size_t i = 0; i < 4 * 256; ++i) REQUIRE(all[i] == doctest::Approx(other[i]).epsilon(1e-12));
    for (size_t i = 0; i < 3 * 256; ++i) REQUIRE(all[i] == doctest::Approx(part[i]).epsilon(1e-12));
    CHECK(all[4 * 256] != other[4 * 256]);
  }
}

TEST_CASE("its gradient is that of finite differences, for every shape of model") {
  Tensor ids = randint(0, 31, {2, 7}, {.seed = 1}), targets = randint(0, 31, {2, 7}, {.seed = 2});
  auto shape = [](int64_t kv, double dropout, bool tied, const char* positions, const char* norm) {
    return completed({.vocab = 31,
                      .layers = 2,
                      .dim = 24,
                      .heads = 6,
                      .kv_heads = kv,
                      .ffn = 20,
                      .seq = 7,
                      .dropout = dropout,
                      .tied = tied,
                      .positions = positions,
                      .norm = norm});
  };
  for (const Config& config : {shape(6, 0, false, "learned", "layer"), shape(2, 0.1, true, "rope", "rms"),
                               shape(1, 0.2, false, "rope", "layer")}) {
    seed(7);
    Gpt model = nn::build<Gpt>({.dtype = DType::f64}, config);
    auto loss = [&] {
      seed(8);  // the same dropout every time
      return model(ids, targets);
    };
    loss().backward();
    NoGrad off;
    for (auto& [name, p] : model.named_parameters()) {
      CAPTURE(name);
      Tensor direction = randn(p.shape(), {.dtype = DType::f64, .seed = 3});
      double step = 1e-5, slope = item<double>(sum(p.grad() * direction));
      Tensor start = p.tensor() * 1.0;
      add_(p.tensor(), direction, step);
      double up = item<double>(loss());
      add_(p.tensor(), direction, -2 * step);
      double down = item<double>(loss());
      copy_(p.tensor(), start);
      CHECK((up - down) / (2 * step) == doctest::Approx(slope).epsilon(1e-5).scale(0.1));
    }
  }
}
