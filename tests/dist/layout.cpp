// The notation of layouts and the blocks they give.
#include <doctest/doctest.h>

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh.h>

#include "all_layouts.h"

using namespace cleave;
using namespace cleave::dist;

namespace {

void on_mesh(const std::vector<MeshAxis>& axes, const std::function<void(DeviceMesh)>& f) {
  int ranks = 1;
  for (const MeshAxis& a : axes) ranks *= a.size;
  simulate(ranks, 0, [&](World& world) { f(DeviceMesh(world, axes)); });
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const LayoutError& e) { return e.what(); }
  return "no LayoutError";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a layout's text is read and written alike") {
  on_mesh({{"dp", 2}, {"tp", 4}, {"pp", 3}}, [](DeviceMesh mesh) {
    for (const char* text : {"", "...", "-", "dp", "dp, -, tp", "dp.tp, -", "tp.dp, pp", "..., tp", "dp, ..., tp",
                             "dp, ...", "- partial(tp)", "dp, - partial(tp, pp)", "partial(dp)", "... partial(dp)",
                             "- partial(max: tp)", "dp partial(min: tp, pp)"})
      CHECK(to_string(mesh.layout(text)) == text);
    CHECK(mesh.layout(" dp .tp,-  partial( pp )") == mesh.layout("dp.tp, - partial(pp)"));
    CHECK(mesh.layout("partial(sum: tp, dp)") == mesh.layout("partial(dp, tp)"));
    CHECK(mesh.layout("dp.tp, -") != mesh.layout("tp.dp, -"));
    for (Layout layout : test::all_layouts(mesh, 2)) CHECK(mesh.layout(to_string(layout)) == layout);
  });
  on_mesh({{"partial", 2}, {"max", 2}}, [](DeviceMesh mesh) {  // axes may have the names of the notation
    for (const char* text : {"partial, max", "partial partial(max)", "partial(max: partial)", "partial(partial, max)"})
      CHECK(to_string(mesh.layout(text)) == text);
  });
}

TEST_CASE("a wrong text is refused with its fault") {
  on_mesh({{"dp", 2}, {"tp", 4}}, [](DeviceMesh mesh) {
    struct Case {
      const char* text;
      std::vector<const char*> parts;
    };
    for (const Case& c : std::vector<Case>{
             {"dp, dp", {"\"dp, dp\"", "axis dp", "twice"}},
             {"dp.dp, -", {"axis dp", "twice"}},
             {"dp, - partial(dp)", {"axis dp", "twice"}},
             {"partial(tp, tp)", {"axis tp", "twice"}},
             {"dq, -", {"\"dq, -\"", "mesh(dp=2, tp=4) has no axis dq", "dp, tp"}},
             {"- partial(q)", {"no axis q"}},
             {"dp,", {"dim 1 is empty", "`-`"}},
             {"dp,, tp", {"dim 1 is empty"}},
             {",", {"dim 0 is empty"}},
             {"dp, partial(tp)", {"dim 1 is empty"}},
             {"..., -, ...", {"twice"}},
             {"dp tp", {"before \"tp\""}},
             {"dp.", {"name of an axis"}},
             {"-.dp", {"before \".dp\""}},
             {"S(0)", {"no axis S"}},
             {"- partial(tp", {"not closed"}},
             {"- partial()", {"name of an axis"}},
             {"- partial(tp) -", {"before \"-\""}},
             {"-, -, -, -, -, -, -, -, -", {"at most 8 dims"}},
         }) {
      std::string message = error_of([&] { mesh.layout(c.text); });
      for (const char* part : c.parts) CHECK_MESSAGE(contains(message, part), c.text << ": " << message);
    }
  });
}

TEST_CASE("a pattern is resolved against a number of dims") {
  on_mesh({{"dp", 2}, {"tp", 4}}, [](DeviceMesh mesh) {
    CHECK(mesh.layout("dp, ..., tp").resolve(4) == mesh.layout("dp, -, -, tp"));
    CHECK(mesh.layout("dp, ..., tp").resolve(2) == mesh.layout("dp, tp"));
    CHECK(mesh.layout("..., tp").resolve(1) == mesh.layout("tp"));
    CHECK(mesh.layout("dp, ...").resolve(3) == mesh.layout("dp, -, -"));
    CHECK(mesh.layout("... partial(tp)").resolve(2) == mesh.layout("-, - partial(tp)"));
    CHECK(mesh.layout("...").resolve(0) == mesh.layout(""));
    CHECK(mesh.layout("...").resolve(3) == mesh.replicated(3));
    CHECK(mesh.layout("dp, -").resolve(2) == mesh.layout("dp, -"));
    std::string message = error_of([&] { (void)mesh.layout("dp, -").resolve(3); });
    for (const char* part : {"\"dp, -\"", "2 dims", "3"}) CHECK(contains(message, part));
    message = error_of([&] { (void)mesh.layout("dp, ..., tp").resolve(1); });
    for (const char* part : {"\"dp, ..., tp\"", "at least 2", "1"}) CHECK(contains(message, part));
    CHECK(contains(error_of([&] { (void)mesh.layout("-").resolve(0); }), "\"...\""));
  });
}

TEST_CASE("a layout answers for its axes") {
  on_mesh({{"dp", 2}, {"tp", 4}, {"pp", 3}}, [](DeviceMesh mesh) {
    Layout layout = mesh.layout("-, tp.dp partial(pp)");
    CHECK(layout.axes(1) == std::vector<std::string>{"tp", "dp"});
    CHECK(layout.axes(-1) == layout.axes(1));
    CHECK(layout.axes(0).empty());
    CHECK_THROWS_AS(layout.axes(2), LayoutError);
    CHECK(layout.is_sharded("dp"));
    CHECK_FALSE(layout.is_sharded("pp"));
    CHECK(layout.is_partial("pp"));
    CHECK_FALSE(layout.is_replicated("pp"));
    CHECK_FALSE(layout.is_replicated());
    CHECK(mesh.layout("-, tp").is_replicated("dp"));
    CHECK(mesh.replicated(2).is_replicated());
    CHECK_THROWS_AS(layout.is_partial("x"), LayoutError);
    CHECK(layout.mesh() == mesh);
  });
}

TEST_CASE("a tensor's type prints its layout") {
  on_mesh({{"dp", 2}, {"tp", 4}}, [](DeviceMesh mesh) {
    auto type = [&](const char* text, Shape shape) {
      return TensorType{DType::f32, shape, mesh.layout(text).resolve(shape.rank()).data()};
    };
    CHECK(to_string(type("dp, -, tp", {8, 128, 512})) == "f32[8@dp, 128, 512@tp]");
    CHECK(to_string(type("dp, - partial(tp)", {8, 128})) == "f32[8@dp, 128] partial(tp)");
    CHECK(to_string(type("dp.tp", {8})) == "f32[8@dp.tp]");
    CHECK(to_string(type("... partial(dp, tp)", {})) == "f32[] partial(dp, tp)");
    CHECK(describe(type("dp, -", {2, 8})) == "f32[2@dp, 8] on mesh(dp=2, tp=4)");
    CHECK(to_string(TensorType{DType::bf16, {2, 8}}) == "bf16[2, 8]");
    CHECK(describe(TensorType{DType::i64, {}}) == "i64[]");
  });
}

TEST_CASE("balanced blocks cover a dim in order") {
  for (int64_t n : {0, 1, 2, 5, 7, 12})
    for (int64_t parts : {1, 2, 3, 4, 16}) {
      int64_t next = 0;
      for (int64_t i = 0; i < parts; ++i) {
        Block b = balanced_block(n, parts, i);
        CHECK(b.offset == next);
        CHECK(b.size >= n / parts);
        CHECK(b.size <= n / parts + 1);
        next += b.size;
      }
      CHECK(next == n);
    }
  CHECK(balanced_block(5, 4, 0).size == 2);  // 2, 1, 1, 1
  CHECK(balanced_block(5, 4, 3).offset == 4);
}

// 6 rows over 2 x 2 are 3 and 3, each 2 and 1: not the 2, 2, 1, 1 of a flat split over 4.
TEST_CASE("two axes on one dim split it in turn, in either order") {
  on_mesh({{"a", 2}, {"b", 3}}, [](DeviceMesh mesh) {
    auto block = [&](const char* text, int a, int b) {
      Box box = local_box({10}, *mesh.layout(text).data(), {a, b});
      return std::pair(box.offset[0], box.shape[0]);
    };
    // a.b: 5 and 5, each in 2, 2, 1. b.a: 4, 3, 3, each in halves.
    std::pair<int64_t, int64_t> by_a[2][3] = {{{0, 2}, {2, 2}, {4, 1}}, {{5, 2}, {7, 2}, {9, 1}}};
    std::pair<int64_t, int64_t> by_b[2][3] = {{{0, 2}, {4, 2}, {7, 2}}, {{2, 2}, {6, 1}, {9, 1}}};
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 3; ++b) {
        CHECK(block("a.b", a, b) == by_a[a][b]);
        CHECK(block("b.a", a, b) == by_b[a][b]);
      }
  });
}
