// --compare single: what counts as a difference, and that a wrong plan would be seen.
#include "gpt/compare.h"

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/creation.h>

#include <doctest/doctest.h>

#include <limits>

#include "apps/temporary_folder.h"
#include "gpt/trainer.h"

using namespace gpt;
using cleave::Tensor;

namespace {
Tensor numbers(const std::vector<double>& v) { return cleave::tensor(v); }
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
}  // namespace

TEST_CASE("differences count against the tensor's largest entry, or a thousandth of the largest of all") {
  std::vector<Pair> kind = {{"big", numbers({1000, 5}), numbers({1000, 5})},
                            {"own", numbers({0, 4}), numbers({0.2, 4})},          // 0.2 of 4
                            {"noise", numbers({1e-9, 0}), numbers({-1e-9, 0})}};  // 2e-9 of 1000 / 1000
  Deviation d = deviation(kind, 1e-3);
  CHECK(d.largest == doctest::Approx(0.05));
  CHECK(d.where == "own");
  CHECK(d.first_bad == "own");
  CHECK(deviation(kind, 0.06).first_bad == "");
  kind.erase(kind.begin() + 1);
  CHECK(deviation(kind, 1e-10).largest == doctest::Approx(2e-9));
  CHECK(deviation(kind, 1e-10).first_bad == "noise");
}

TEST_CASE("the first tensor out of tolerance is named, not the worst") {
  std::vector<Pair> kind = {
      {"a", numbers({1}), numbers({1})}, {"b", numbers({1}), numbers({1.1})}, {"c", numbers({1}), numbers({3})}};
  Deviation d = deviation(kind, 1e-6);
  CHECK(d.first_bad == "b");
  CHECK(d.where == "c");
}

TEST_CASE("a number that is not finite is a difference, on either side") {
  CHECK(deviation({{"x", numbers({kNan}), numbers({1})}}, 1e-2).first_bad == "x");
  CHECK(deviation({{"x", numbers({1}), numbers({kNan})}}, 1e-2).first_bad == "x");
  CHECK(deviation({{"x", numbers({0, 0}), numbers({0, 0})}}, 0).first_bad == "");
  CHECK(!(relative(kNan, kNan) <= 1));
  CHECK(!(relative(1, kNan) <= 1));
  CHECK(relative(2, 1) == 0.5);
  CHECK(relative(0, 0) == 0);
}

TEST_CASE(
    "runs of 16 bits stay with one device step by step: f16 under its loss scale, autocast, gradients of 16 bits") {
  gpt::test::TemporaryFolder folder;
  std::string text = folder.write("text", std::string(400, 'a') + std::string(300, 'b') + std::string(300, 'a'));
  using cleave::DType;
  auto run = [&](const StepOptions& step) {
    TrainOptions o;
    o.model = completed({.vocab = 256, .layers = 1, .dim = 24, .heads = 3, .seq = 9});
    o.step = step;
    o.step.batch = 5;
    o.steps = 4;
    o.data = text;
    Corpus corpus = open_corpus(o);
    cleave::dist::run_ranks({.ranks = 2, .checked = 1}, [&](cleave::dist::World& world) {
      compare_with_single(world, o, place(world, o.model, "tp=2", ""), corpus);
    });
  };
  run({.accumulate = 2, .dtype = DType::f16});
  run({.autocast = DType::bf16});
  run({.dtype = DType::bf16, .gradients = DType::bf16, .reduce = DType::bf16});
}
