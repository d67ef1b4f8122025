// Redistributions on thread ranks: every pair of layouts, exact values, blocks, bytes.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>

#include "all_layouts.h"
#include "redistributed.h"

using namespace cleave;
using namespace cleave::dist;

namespace {

using Axes = std::vector<MeshAxis>;

int64_t check_all_pairs(World& world, const Axes& axes, const std::vector<Shape>& shapes, DType dtype,
                        ReduceOp op = ReduceOp::sum, bool strided = false) {
  DeviceMesh mesh(world, axes);
  int64_t cases = 0;
  for (const Shape& shape : shapes) {
    auto layouts = test::all_layouts(mesh, shape.rank(), test::has_partial(dtype, op), op);
    for (Layout from : layouts)
      for (Layout to : layouts) {
        test::check_pair(shape, dtype, from, to, strided);
        ++cases;
      }
  }
  return cases;
}

int64_t on_ranks(int ranks, const std::function<int64_t(World&)>& f) {
  std::atomic<int64_t> cases{0};
  run_ranks({.ranks = ranks}, [&](World& world) {
    int64_t n = f(world);
    if (world.rank() == 0) cases = n;
  });
  return cases;
}

const std::vector<std::pair<int, Axes>> meshes{
    {1, {{"a", 1}}},           {2, {{"a", 2}}},           {3, {{"a", 3}}},          {4, {{"a", 2}, {"b", 2}}},
    {6, {{"a", 2}, {"b", 3}}}, {4, {{"a", 4}, {"b", 1}}}, {2, {{"a", 1}, {"b", 2}}}};

}  // namespace

TEST_CASE("every pair of layouts keeps the value") {
  int64_t cases = 0;
  for (const auto& [ranks, axes] : meshes)
    cases += on_ranks(ranks, [&](World& world) {
      return check_all_pairs(world, axes, {{}, {7}, {1}, {0}, {5, 3}, {4, 8}, {1, 7}, {0, 3}, {2, 3}}, DType::f32);
    });
  MESSAGE(cases << " cases");
  CHECK(cases > 8000);
}

TEST_CASE("tensors of more dims, strided blocks") {
  int64_t cases = on_ranks(4, [](World& world) {
    Axes axes{{"a", 2}, {"b", 2}};
    return check_all_pairs(world, axes, {{3, 5, 2}, {2, 1, 3, 4}}, DType::f32) +
           check_all_pairs(world, axes, {{5, 3}, {3, 5, 2}}, DType::f32, ReduceOp::sum, true);
  });
  cases += on_ranks(6, [](World& world) {
    return check_all_pairs(world, {{"a", 2}, {"b", 3}}, {{7, 5}}, DType::f64, ReduceOp::sum, true);
  });
  cases += on_ranks(8, [](World& world) {
    return check_all_pairs(world, {{"a", 2}, {"b", 2}, {"c", 2}}, {{11}}, DType::i32);
  });
  MESSAGE(cases << " cases");
}

TEST_CASE("every dtype") {
  int64_t cases = 0;
  for (const auto& [ranks, axes] : {std::pair<int, Axes>{3, {{"a", 3}}}, {4, {{"a", 2}, {"b", 2}}}})
    cases += on_ranks(ranks, [&, axes = axes](World& world) {
      int64_t n = 0;
      for (int t = 0; t < kDTypes; ++t) {
        n += check_all_pairs(world, axes, {{5, 3}, {}}, static_cast<DType>(t));
        for (ReduceOp op : {ReduceOp::max, ReduceOp::min})
          n += check_all_pairs(world, axes, {{5, 3}}, static_cast<DType>(t), op);
      }
      return n;
    });
  MESSAGE(cases << " cases");
}

// Hierarchical blocks of 6 rows over 2 x 2 are 2, 1, 2, 1: a gather that assumed flat ones would lose or permute rows.
TEST_CASE("gathering two axes of one dim, in either order") {
  run_ranks({.ranks = 4}, [](World& world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    for (const char* text : {"dp.tp, -", "tp.dp, -", "-, dp.tp", "-, tp.dp"})
      for (Shape shape : {Shape{6, 2}, Shape{2, 6}, Shape{5, 3}})
        test::check_pair(shape, DType::i64, mesh.layout(text), mesh.replicated(2));
  });
}

TEST_CASE("keep-on-first is exact: one rank has the value, the rest zeros") {
  run_ranks({.ranks = 6}, [](World& world) {
    DeviceMesh mesh(world, {{"a", 2}, {"b", 3}});
    for (const char* text : {"- partial(a)", "- partial(b)", "- partial(a, b)"}) {
      Tensor x = cleave::detail::make_tensor(Shape{2}, Shape{2}, DType::f32, Device::Cpu, mesh.layout("-").data());
      x.data<float>()[0] = 0.1f;
      x.data<float>()[1] = -3;
      Tensor y = redistribute_data(x, mesh.layout(text).data(), "test");
      bool first = test::term_of(*mesh.layout(text).data()).first == 0;
      check(y.data<float>()[0] == (first ? 0.1f : 0) && y.data<float>()[1] == (first ? -3.f : 0.f));
      Tensor back = redistribute_data(y, mesh.layout("-").data(), "test");
      check(back.data<float>()[0] == 0.1f && back.data<float>()[1] == -3);
    }
  });
}

TEST_CASE("replicas have the same bits") {
  run_ranks({.ranks = 6}, [](World& world) {
    DeviceMesh mesh(world, {{"a", 2}, {"b", 3}});
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const char* from : {"- partial(a, b)", "- partial(b)", "a partial(b)"}) {
        const int64_t n = 1001;
        Layout layout = mesh.layout(from);
        Tensor x = test::make_input({n}, dtype, layout);
        visit_dtype(dtype, [&](auto zero) {
          using T = decltype(zero);
          for (int64_t i = 0; i < x.impl()->view.numel(); ++i) {
            uint64_t r = test::mix(static_cast<uint64_t>(i * 7) +
                                   test::mix(static_cast<uint64_t>(test::term_of(*layout.data()).first)));
            if constexpr (sizeof(T) >= 2 && !std::is_integral_v<T>)
              x.data<T>()[i] = T(static_cast<float>(static_cast<double>(r % 20001) / 7000 - 1.4));
          }
        });
        Tensor y = redistribute_data(x, mesh.replicated(1).data(), "test");
        auto bytes = static_cast<size_t>(n * size_of(dtype));
        std::vector<char> all(bytes * 6);
        std::vector<int64_t> counts(6, static_cast<int64_t>(bytes));
        world.communicator().all_gather(y.impl()->view.data, all.data(), counts, DType::u8);
        for (size_t r = 1; r < 6; ++r) check(std::memcmp(all.data(), all.data() + r * bytes, bytes) == 0);
      }
  });
}

TEST_CASE("a partial source is left as it was") {
  run_ranks({.ranks = 2}, [](World& world) {
    DeviceMesh mesh(world, {{"a", 2}});
    for (const char* to : {"-, -", "a, -", "-, a"}) {
      Tensor x = test::make_input({4, 6}, DType::f32, mesh.layout("-, - partial(a)"));
      redistribute_data(x, mesh.layout(to).data(), "test");
      for (int64_t i = 0; i < 24; ++i)
        check(x.data<float>()[i] == static_cast<float>(test::held_at(i, DType::f32, *x.layout().data())));
    }
  });
}

TEST_CASE("between meshes: overlapping, disjoint, nested, with ranks in neither") {
  struct Side {
    Axes axes;
    std::vector<int> ranks;
  };
  std::vector<Side> sides{{{{"a", 2}}, {0, 1}},
                          {{{"x", 3}}, {1, 2, 3}},
                          {{{"p", 2}, {"q", 2}}, {3, 1, 0, 2}},
                          {{{"z", 1}}, {2}},
                          {{{"a", 2}}, {3, 2}}};
  int64_t cases = on_ranks(5, [&](World& world) {
    int64_t n = 0;
    for (const Side& from : sides)
      for (const Side& to : sides) {
        DeviceMesh first(world, from.axes, from.ranks), second(world, to.axes, to.ranks);
        for (Shape shape : {Shape{5, 3}, Shape{1, 2}, Shape{0, 4}})
          for (Layout f : test::all_layouts(first, 2, false))
            for (Layout t : test::all_layouts(second, 2, false)) {
              test::check_pair(shape, DType::f32, f, t);
              ++n;
            }
      }
    return n;
  });
  MESSAGE(cases << " cases");
}

TEST_CASE("each element crosses between meshes once, and the plan knows the bytes") {
  run_ranks({.ranks = 4}, [](World& world) {
    DeviceMesh first(world, {{"a", 2}}, {0, 1}), second(world, {{"b", 2}}, {2, 3});
    Tensor x = test::make_input({8, 4}, DType::f32, first.layout("-, -"));
    reset_comm_counts();
    redistribute_data(x, second.layout("b, -").data(), "test");
    // Both replicas of the source serve one receiver each.
    check(test::counted_bytes() == (world.rank() < 2 ? 64 : 0));
    check(plan_redistribution(x.type(), second.layout("b, -").data()).bytes == 64);
  });
}

TEST_CASE("a rank outside the mesh of a tensor takes no part") {
  run_ranks({.ranks = 3}, [](World& world) {
    DeviceMesh mesh(world, {{"a", 2}}, {0, 2});
    for (Layout from : test::all_layouts(mesh, 2))
      for (Layout to : test::all_layouts(mesh, 2)) test::check_pair({5, 3}, DType::f32, from, to);
  });
}

TEST_CASE("meta tensors are counted on a mesh of any size") {
  for (int rank : {0, 700})
    simulate(1024, rank, [&](World& world) {
      DeviceMesh mesh(world, {{"dp", 8}, {"pp", 8}, {"tp", 16}});
      const char* texts[] = {"dp, -, tp", "-, dp.tp, - partial(pp)", "tp.dp, pp, -", "-, -, -", "pp, - , tp.dp"};
      for (const char* from : texts)
        for (const char* to : texts) {
          Layout f = mesh.layout(from), t = mesh.layout(to);
          Shape shape{100, 31, 1000};
          Tensor x = cleave::detail::make_tensor(shape, local_box(shape, *f.data()).shape, DType::bf16, Device::Meta,
                                                 f.data());
          reset_comm_counts();
          Tensor y = redistribute_data(x, t.data(), "test");
          const auto& plan = plan_redistribution(x.type(), t.data());
          int64_t counted = test::counted_bytes();
          CHECK((rank == 0 ? counted == plan.bytes : counted <= plan.bytes));
          CHECK(y.impl()->view.shape == local_box(shape, *t.data()).shape);
          CHECK(y.device() == Device::Meta);
        }
    });
}

TEST_CASE("plans are cached") {
  simulate(4, 0, [](World& world) {
    DeviceMesh mesh(world, {{"a", 2}, {"b", 2}});
    TensorType type{DType::f32, {8, 8}, mesh.layout("a, b").data()};
    const LayoutData* to = mesh.layout("b, a").data();
    CHECK(&plan_redistribution(type, to) == &plan_redistribution(type, to));
    type.dtype = DType::f64;
    CHECK(plan_redistribution(type, to).bytes == 128);
    type.shape = {16, 8};
    CHECK(plan_redistribution(type, to).bytes == 256);
    const int n = 100000;
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i) plan_redistribution(type, to);
    double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / n;
    MESSAGE("a cached plan takes " << ns << " ns");
  });
}
