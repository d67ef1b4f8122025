// The planner: the plans that users expect, and properties of all of them. No data.
#include <doctest/doctest.h>

#include <ctime>
#include <random>

#include <cleave/core/error.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh.h>
#include <cleave/dist/planner.h>

#include "all_layouts.h"

using namespace cleave;
using namespace cleave::dist;

namespace {

void on_mesh(const std::vector<MeshAxis>& axes, const std::function<void(DeviceMesh)>& f, int rank = 0) {
  int ranks = 1;
  for (const MeshAxis& a : axes) ranks *= a.size;
  simulate(ranks, rank, [&](World& world) { f(DeviceMesh(world, axes)); });
}

// "all_to_all(b) 96, cut(a) 0": the steps of a plan with their axes and bytes.
std::string steps_of(DeviceMesh mesh, const Shape& shape, const char* from, const char* to) {
  TensorType type{DType::f32, shape, mesh.layout(from).resolve(shape.rank()).data()};
  std::string out;
  for (const Step& s : explain(type, mesh.layout(to)).steps)
    out += (out.empty() ? "" : ", ") + std::string(to_string(s.kind)) + "(" + mesh.state()->axis_names(s.axes) + ") " +
           std::to_string(s.bytes);
  return out;
}

// A layout between two others: every axis in its place in either or replicated; common heads stay.
Layout random_between(std::mt19937& random, const LayoutData& a, const LayoutData& c) {
  LayoutData b = a;
  AxisMask fixed = a.partial & c.partial;
  b.partial = fixed;
  std::array<int, kMaxDims> head{};
  for (size_t d = 0; d < static_cast<size_t>(a.rank); ++d) {
    int n = 0;
    while (n < a.dims[d].size() && n < c.dims[d].size() && a.dims[d][n] == c.dims[d][n]) ++n;
    b.dims[d].truncate(head[d] = n);
    fixed |= b.dims[d].mask();
  }
  for (int axis = 0; axis < static_cast<int>(a.mesh->axes().size()); ++axis) {
    if (fixed & axis_bit(axis)) continue;
    auto pick = random() % 3;
    if (pick == 0) continue;
    const LayoutData& end = pick == 1 ? a : c;
    if (end.partial & axis_bit(axis)) b.partial |= axis_bit(axis);
    int d = end.dim_of(axis);
    if (d < 0) continue;
    AxisList list = b.dims[static_cast<size_t>(d)], wider;
    int first = head[static_cast<size_t>(d)];
    int at = first + static_cast<int>(random() % static_cast<unsigned>(list.size() - first + 1));
    for (int i = 0; i <= list.size(); ++i) {
      if (i == at) wider.push_back(axis);
      if (i < list.size()) wider.push_back(list[i]);
    }
    b.dims[static_cast<size_t>(d)] = wider;
  }
  return Layout(a.mesh->intern(b));
}

}  // namespace

TEST_CASE("the plans that users expect") {
  on_mesh({{"a", 2}, {"b", 2}}, [](DeviceMesh mesh) {
    auto plan = [&](const char* from, const char* to) { return steps_of(mesh, {8, 8, 8}, from, to); };
    const int64_t n = 8 * 8 * 8 * 4;
    auto text = [](const char* step, int64_t bytes) { return std::string(step) + " " + std::to_string(bytes); };
    CHECK(plan("-, -, -", "-, -, -") == "");
    CHECK(plan("-, -, -", "a, b, -") == "cut(a.b) 0");
    CHECK(plan("-, -, -", "a.b, -, -") == "cut(a.b) 0");
    CHECK(plan("a, -, -", "-, -, -") == text("all_gather(a)", n / 2));
    CHECK(plan("a.b, -, -", "-, -, -") == text("all_gather(a.b)", n / 4));
    CHECK(plan("a, b, -", "-, -, -") == text("all_gather(a.b)", n / 4));
    CHECK(plan("a.b, -, -", "a, -, -") == text("all_gather(b)", n / 4));
    CHECK(plan("-, a.b, -", "-, a, b") == text("all_to_all(b)", n / 4));
    CHECK(plan("a, -, -", "-, a, -") == text("all_to_all(a)", n / 2));
    CHECK(plan("a.b, -, -", "-, -, a.b") == text("all_to_all(a.b)", n / 4));
    CHECK(plan("a.b, -, -", "b.a, -, -") == text("box_exchange(a.b)", n / 4));
    CHECK(plan("a, b, -", "b, a, -") == text("box_exchange(a.b)", n / 4));
    CHECK(plan("- , -, - partial(a)", "-, -, -") == text("all_reduce(a)", n));
    CHECK(plan("- , -, - partial(a, b)", "-, -, -") == text("all_reduce(a.b)", n));
    CHECK(plan("- , -, - partial(a)", "-, a, -") == text("reduce_scatter(a)", n));
    CHECK(plan("b, -, - partial(a)", "b.a, -, -") == text("reduce_scatter(a)", n / 2));
    CHECK(plan("- , -, - partial(a, b)", "a, b, -") == text("reduce_scatter(a.b)", n));
    CHECK(plan("-, -, -", "-, -, - partial(a, b)") == "keep_on_first(a.b) 0");
    // The major axis alone is not at the end of the list: its blocks must be brought in order.
    CHECK(plan("a.b, -, -", "b, -, -") == text("box_exchange(a.b)", n / 2));
    // A gather and a cut that are one exchange.
    CHECK(plan("a, -, -", "-, a, b") == text("cut(b) 0, all_to_all(a)", n / 4));
  });
}

TEST_CASE("an axis that is in place takes no part") {
  on_mesh({{"dp", 2}, {"tp", 4}}, [](DeviceMesh mesh) {
    Shape big{4096, 4096};  // even where cutting over the other axis first would save bytes
    CHECK(steps_of(mesh, big, "-, - partial(tp)", "-, -") == "all_reduce(tp) 67108864");
    CHECK(steps_of(mesh, big, "dp, - partial(tp)", "dp, -") == "all_reduce(tp) 33554432");
    CHECK(steps_of(mesh, big, "dp, tp", "dp, -") == "all_gather(tp) 8388608");
  });
}

TEST_CASE("axes of size 1 and single ranks take the same steps and send nothing") {
  on_mesh({{"a", 1}}, [](DeviceMesh mesh) {
    CHECK(steps_of(mesh, {4}, "a", "-") == "all_gather(a) 0");
    CHECK(steps_of(mesh, {4}, "- partial(a)", "a") == "reduce_scatter(a) 0");
  });
  on_mesh({{"a", 2}, {"b", 1}}, [](DeviceMesh mesh) {
    CHECK(steps_of(mesh, {4, 4}, "b, a", "-, a") == "all_gather(b) 0");
    CHECK(steps_of(mesh, {4, 4}, "a, -", "-, -") == "all_gather(a) 32");
  });
}

TEST_CASE("plan errors name both ends") {
  simulate(4, 0, [](World& world) {
    DeviceMesh mesh(world, {{"a", 4}}), other(world, {{"x", 2}, {"y", 2}});
    TensorType type{DType::f32, {8, 8}, mesh.layout("a, -").data()};
    CHECK_THROWS_WITH_AS((void)explain(type, mesh.layout("a")), doctest::Contains("1 dims, the tensor has 2"),
                         LayoutError);
    type.layout = mesh.layout("-, - partial(a)").data();
    CHECK_THROWS_WITH_AS((void)explain(type, other.layout("x, y")),
                         doctest::Contains("f32[8, 8] partial(a) on mesh(a=4)"), LayoutError);
    CHECK_THROWS_AS((void)explain(TensorType{DType::f32, {8}}, mesh.layout("a")), LayoutError);
  });
}

TEST_CASE("explain says steps, bytes and reason") {
  on_mesh({{"dp", 2}, {"tp", 4}}, [](DeviceMesh mesh) {
    TensorType type{DType::f32, {8, 16}, mesh.layout("dp, - partial(tp)").data()};
    std::string text = to_string(explain(type, mesh.layout("dp, tp")));
    for (const char* part : {"f32[8@dp, 16] partial(tp) on mesh(dp=2, tp=4) -> f32[8@dp, 16@tp]",
                             "reduce_scatter over tp", "256 B", "replicating it whole"})
      CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    MESSAGE(text);
  });
}

TEST_CASE("every pair has a plan: consistent, within the memory bound, the same when asked again and on another rank") {
  std::vector<int64_t> first;
  for (int rank : {0, 5}) {
    std::vector<int64_t> prices;
    on_mesh(
        {{"a", 2}, {"b", 3}, {"c", 2}},
        [&](DeviceMesh mesh) {
          auto layouts = test::all_layouts(mesh, 2);
          Shape shape{7, 5};
          for (Layout from : layouts)
            for (Layout to : layouts) {
              Path path = shortest_path(shape, DType::f64, from.data(), to.data());
              prices.push_back(path.picoseconds);
              int64_t bound = 2 * std::max(block_bytes(shape, DType::f64, *from.data()),
                                           block_bytes(shape, DType::f64, *to.data()));
              const LayoutData* at = from.data();
              bool good = true;
              for (const Step& s : path.steps) {
                good = good && s.before == at && s.peak_bytes <= bound;
                at = s.after;
              }
              if (!good || at != to.data()) FAIL(to_string(from) << " -> " << to_string(to));
            }
        },
        rank);
    if (first.empty()) first = prices;
    CHECK(prices == first);
  }
  MESSAGE(first.size() << " pairs");
}

TEST_CASE("a way through a layout between two others is never cheaper than their plan") {
  on_mesh({{"a", 2}, {"b", 3}, {"c", 2}, {"d", 4}}, [](DeviceMesh mesh) {
    std::mt19937 random(1);
    auto layouts = test::all_layouts(mesh, 3);
    int between = 0, any = 0, dearer = 0;
    for (int i = 0; i < 600; ++i) {
      Shape shape{static_cast<int64_t>(1 + random() % 1000), static_cast<int64_t>(1 + random() % 100),
                  static_cast<int64_t>(random() % 20)};
      const LayoutData* a = layouts[random() % layouts.size()].data();
      const LayoutData* c = layouts[random() % layouts.size()].data();
      auto cost = [&](const LayoutData* x, const LayoutData* y) {
        return shortest_path(shape, DType::f32, x, y).picoseconds;
      };
      auto size = [&](const LayoutData* x) { return block_bytes(shape, DType::f32, *x); };
      int64_t direct = cost(a, c);
      CHECK(direct == cost(a, c));
      const LayoutData* b = random_between(random, *a, *c).data();
      if (size(b) <= std::max(size(a), size(c))) {  // else the bound on memory may forbid the way
        ++between;
        CHECK_MESSAGE(direct <= cost(a, b) + cost(b, c),
                      to_string(Layout(a)) << " -> " << to_string(Layout(b)) << " -> " << to_string(Layout(c)));
      }
      b = layouts[random() % layouts.size()].data();
      ++any;
      dearer += direct > cost(a, b) + cost(b, c);
    }
    CHECK(between > 200);
    MESSAGE(between << " triples with a layout between; of " << any << " random triples " << dearer
                    << " are cheaper by a detour that uses an axis which is in place");
  });
}

TEST_CASE("plans are found quickly") {
  auto measure = [](const std::vector<MeshAxis>& axes, int rank, int pairs) {
    on_mesh(axes, [&](DeviceMesh mesh) {
      std::mt19937 random(2);
      std::vector<Layout> layouts = test::all_layouts(mesh, rank);
      double worst = 0, total = 0;
      int most = 0;
      std::string slowest;
      for (int i = 0; i < pairs; ++i) {
        Layout from = layouts[random() % layouts.size()], to = layouts[random() % layouts.size()];
        std::clock_t start = std::clock();  // of the process: other programs do not count
        Path path = shortest_path(Shape(rank, 1021), DType::f32, from.data(), to.data());
        double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        total += ms;
        most = std::max(most, path.layouts_considered);
        if (ms > worst) worst = ms, slowest = to_string(from) + " -> " + to_string(to);
      }
      MESSAGE(to_string(mesh) << ", " << layouts.size() << " layouts: mean " << total / pairs << " ms, slowest "
                              << worst << " ms (" << slowest << "), at most " << most << " layouts considered");
    });
  };
  measure({{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}}, 4, 500);
  measure({{"a", 8}, {"b", 8}, {"c", 16}}, 4, 500);
}

TEST_CASE("meshes of many axes have plans too") {
  std::vector<MeshAxis> axes;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) axes.push_back({name, 2});
  on_mesh(axes, [](DeviceMesh mesh) {
    std::mt19937 random(3);
    for (int i = 0; i < 50; ++i) {
      LayoutData ends[2];
      for (LayoutData& end : ends) {
        end.rank = 2;
        std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7};
        std::shuffle(order.begin(), order.end(), random);
        for (int axis : order) {
          auto place = random() % 4;
          if (place < 2) end.dims[place].push_back(axis);
          if (place == 2) end.partial |= axis_bit(axis);
        }
      }
      const LayoutData *from = mesh.state()->intern(ends[0]), *to = mesh.state()->intern(ends[1]);
      Path path = shortest_path({64, 65}, DType::f32, from, to);
      CHECK(path.steps.front().before == from);
      CHECK(path.steps.back().after == to);
      CHECK(path.steps.size() <= 6);
    }
  });
}
