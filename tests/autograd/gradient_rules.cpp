// The table of section 6, rule B1 and policy M as functions of axis sets.
#include <cleave/autograd/gradient_rules.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh.h>
#include <doctest/doctest.h>

using namespace cleave;
using namespace cleave::autograd;

namespace {

constexpr AxisMask kA = 1, kB = 2;

template <class F>
void on_mesh(F&& f) {
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"a", 2}, {"b", 2}});
    f([&](const char* text) { return mesh.layout(text).data(); });
  });
}

}  // namespace

TEST_CASE("the table: what y is on an axis decides an R input's gradient") {
  on_mesh([](auto layout) {
    const LayoutData* r = layout("-, -");
    auto mask = [&](const LayoutData* y, AxisMask cotangent, const LayoutData* x) {
      OutputState state{y, cotangent};
      return input_mask(x, {&state, 1});
    };
    CHECK(mask(layout("a, -"), 0, r) == kA);             // y S: P
    CHECK(mask(layout("-, - partial(b)"), 0, r) == kB);  // y P: P
    CHECK(mask(r, 0, r) == 0);                           // y R: as the cotangent
    CHECK(mask(r, kA, r) == kA);
    CHECK(mask(layout("a, -"), 0, layout("a, -")) == 0);                        // x S: S
    CHECK(mask(layout("-, - partial(a)"), 0, layout("-, - partial(a)")) == 0);  // x P: R
    CHECK(mask(layout("a, -"), kB, layout("a, -")) == kB);                      // axis by axis
    CHECK(mask(nullptr, 0, nullptr) == 0);
  });
}

TEST_CASE("rule B1: one split or partial output makes the cotangents of all R outputs partial") {
  on_mesh([](auto layout) {
    OutputState s{layout("a, -"), 0}, r{layout("-, -"), 0}, p{layout("-, - partial(b)"), 0}, rp{layout("-, -"), kB};
    std::vector<OutputState> one{s}, two{s, r}, three{r, r}, four{r, p}, five{r, rp};
    CHECK(promoted_axes(one) == 0);
    CHECK(promoted_axes(two) == kA);
    CHECK(promoted_axes(three) == 0);
    CHECK(promoted_axes(four) == kB);
    CHECK(promoted_axes(five) == kB);
  });
}

TEST_CASE("policy M: when a completed gradient is reduced") {
  CHECK(completed_mask(Producer::local_several, false, kA | kB, kA) == 0);
  CHECK(completed_mask(Producer::local_single, false, kA | kB, kA) == kA);
  CHECK(completed_mask(Producer::redistribution, false, kA | kB, kA) == (kA | kB));
  CHECK(completed_mask(Producer::replaced, false, kA, kA) == 0);
  CHECK(completed_mask(Producer::local_several, true, kA | kB, kA) == (kA | kB));
}

TEST_CASE("the gradient of a redistribution, per axis") {
  on_mesh([](auto layout) {
    auto gradient = [](const LayoutData* x, const LayoutData* to, AxisMask g) {
      return redistribution_gradient(x, to, g);
    };
    CHECK(gradient(layout("a, -"), layout("-, -"), kA) == layout("a, -"));                  // x S: reduce-scatter
    CHECK(gradient(layout("a, -"), layout("-, -"), 0) == layout("a, -"));                   // or a cut
    CHECK(gradient(layout("-, - partial(a)"), layout("-, -"), kA) == layout("-, -"));       // x P: R
    CHECK(gradient(layout("-, -"), layout("a, -"), 0) == layout("-, -"));                   // x R, cut: R
    CHECK(gradient(layout("b, -"), layout("-, -"), kA | kB) == layout("b, - partial(a)"));  // untouched R axis stays P
    CHECK(gradient(layout("-, -"), layout("-, - partial(a)"), 0) == layout("-, -"));        // keep-on-first
  });
}
