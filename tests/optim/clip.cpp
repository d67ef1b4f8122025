// Norms and clipping: every element of the global gradients once, whatever the layouts.
#include "nn/support.h"

#include <cmath>
#include <limits>

using namespace cleave;
using namespace cleave::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A leaf whose gradient is g: split on the mesh as `text` says.
Tensor leaf(const Tensor& g, const dist::DeviceMesh* mesh, const char* text) {
  Tensor zero = zeros(g.shape(), {.dtype = g.dtype()});
  Tensor w = mesh ? dist::distribute(zero, mesh->layout(text)) : zero;
  w.set_requires_grad(true);
  sum(w * (mesh ? dist::replicate(g, *mesh) : g)).backward();
  return w;
}

double plain_norm(const std::vector<Tensor>& gradients, double p) {
  double total = 0;
  for (const Tensor& g : gradients)
    for (double v : to_vector<double>(g))
      total = std::isinf(p) ? std::max(total, std::abs(v)) : total + std::pow(std::abs(v), p);
  return std::isinf(p) ? total : std::pow(total, 1 / p);
}

}  // namespace

TEST_CASE("the norm of every layout is the norm of the values, the same bits on every rank") {
  std::vector<Tensor> g{normal(1, {5, 6}), normal(2, {3}), normal(3, {}), normal(4, {7, 2})};
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    for (double p : {1.0, 2.0, 3.0, kInfinity})
      for (const char* text : {"-, -", "dp, -", "-, tp", "tp, dp", "dp.tp, -", "-, tp.dp"}) {
        CAPTURE(p);
        CAPTURE(text);
        std::vector<Tensor> leaves{leaf(g[0], &mesh, text), leaf(g[1], &mesh, "tp"), leaf(g[2], &mesh, ""),
                                   leaf(g[3], &mesh, "-, -"), leaf(g[1], nullptr, "")};
        double norm = optim::grad_norm(leaves, p);
        CHECK(norm == doctest::Approx(plain_norm({g[0], g[1], g[2], g[3], g[1]}, p)).epsilon(1e-13));
        double bits[2] = {norm, -norm};
        world.communicator().all_reduce(bits, 2, DType::f64, dist::ReduceOp::max);
        CHECK(bits[0] == -bits[1]);
      }
  });
}

TEST_CASE("replicated gradients count once: sqrt(3 + 8) on four ranks") {
  on_ranks({4}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", 4}});
    std::vector<Tensor> leaves{leaf(ones({3}), &mesh, "-"), leaf(ones({8}), &mesh, "tp")};
    CHECK(optim::grad_norm(leaves) == doctest::Approx(std::sqrt(11.0)).epsilon(1e-12));
  });
}

TEST_CASE("clipping scales every gradient, in place, and leaves small ones alone") {
  on_ranks({1, 2, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    Tensor g = tensor<double>({6, 0, 0, 8});  // norm 10
    for (const char* text : {"-", "tp", "dp.tp"}) {
      Tensor w = leaf(g, &mesh, text);
      Tensor held = w.grad();
      CHECK(optim::clip_grad_norm(std::vector{w}, 1.0, 2.0, 0.0) == doctest::Approx(10));
      CHECK(distance(w.grad(), g * 0.1) < 1e-15);
      CHECK(held.storage() == w.grad().storage());
      CHECK(optim::clip_grad_norm(std::vector{w}, 5.0) == doctest::Approx(1));
      CHECK(distance(w.grad(), g * 0.1) < 1e-15);
      CHECK(optim::clip_grad_norm(std::vector{w}, 1.0, 2.0, 1.0) == doctest::Approx(1));  // eps counts once
      CHECK(distance(w.grad(), g * 0.05) < 1e-15);
      CHECK(optim::clip_grad_norm(std::vector{w}, 0.35, 1.0) == doctest::Approx(0.7));
      CHECK(distance(w.grad(), g * 0.025) < 1e-6);
      optim::clip_grads_with_norm(std::vector{w}, 1.0, 4.0, 0.0);  // by the norm that is given
      CHECK(distance(w.grad(), g * 0.00625) < 1e-6);
      optim::clip_grads_with_norm(std::vector{w}, 1.0, 0.5);
      CHECK(distance(w.grad(), g * 0.00625) < 1e-6);
    }
  });
}

TEST_CASE("pending terms are synced first; gradients not there, and twice-given leaves, are skipped") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    Tensor w = dist::replicate(zeros({4}, {.dtype = DType::f64}), mesh).set_requires_grad(true);
    Tensor none = dist::replicate(zeros({4}), mesh).set_requires_grad(true);
    for (int micro = 0; micro < 2; ++micro)
      sum(w * dist::distribute(tensor<double>({3, 0, 0, 4}), mesh.layout("dp"))).backward({.sync = false});
    CHECK(optim::clip_grad_norm(std::vector{w, none, w}, 1.0) == doctest::Approx(10));
    CHECK(distance(w.grad(), tensor<double>({0.6, 0, 0, 0.8})) < 1e-6);
    CHECK(!none.grad().defined());
    CHECK(optim::grad_norm(std::vector{none}) == 0);
  });
}

TEST_CASE("a range that can be read once, of parameters or tensors") {
  struct Two : nn::Module<Two> {
    nn::Parameter a{this, "a", Shape{1}}, b{this, "b", Shape{1}};
  } model;
  sum(static_cast<Tensor>(model.a) * 3.0 + static_cast<Tensor>(model.b) * 4.0).backward();
  std::vector<nn::Parameter> left = model.parameters();
  auto once = std::views::iota(0, 2) | std::views::transform([&](int) {
                nn::Parameter p = left.back();
                left.pop_back();
                return p;
              });
  CHECK(optim::clip_grad_norm(once, 1.0) == doctest::Approx(5));
  CHECK(left.empty());
  CHECK(item<double>(model.a.grad()) == doctest::Approx(0.6));
  CHECK(item<double>(model.b.grad()) == doctest::Approx(0.8));
}

TEST_CASE("parts on several meshes: one norm, also on ranks that hold nothing of a part") {
  on_ranks({4}, [](dist::World& world) {
    dist::DeviceMesh all(world, {{"pp", 2}, {"tp", 2}}), first = all.at("pp", 0), second = all.at("pp", 1);
    // Sums of squares 20 and 100, the first split, the second replicated.
    std::vector<Tensor> leaves{leaf(tensor<double>({2, 4}), &first, "tp"), leaf(tensor<double>({10}), &second, "-")};
    CHECK(optim::clip_grad_norm(leaves, 1.0, 2.0, 0.0) == doctest::Approx(std::sqrt(120.0)).epsilon(1e-14));
    if (first.contains_self())
      CHECK(distance(leaves[0].grad(), tensor<double>({2, 4}) * (1 / std::sqrt(120.0))) < 1e-15);
    CHECK(optim::grad_norm(std::vector{leaves[1]}) == doctest::Approx(10 / std::sqrt(120.0)));  // all ranks know it
  });
}

TEST_CASE("what is not finite shows in the norm, on every rank") {
  on_ranks({1, 2, 3}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    for (double p : {1.0, 2.0, kInfinity}) {
      double nan = std::numeric_limits<double>::quiet_NaN();
      Tensor w = leaf(tensor<double>({1, 2, nan, 3}), &mesh, "dp");
      CHECK(std::isnan(optim::grad_norm(std::vector{w}, p)));
      CHECK(std::isinf(optim::grad_norm(std::vector{leaf(tensor<double>({1, kInfinity, 3}), &mesh, "dp")}, p)));
      optim::clip_grad_norm(std::vector{w}, 1.0, p);
      CHECK(std::isnan(to_vector<double>(w.grad())[0]));
    }
    Tensor w = leaf(ones({2}), &mesh, "dp");
    check_throws<ValueError>([&] { optim::grad_norm(std::vector{w}, 0.5); }, {"0.5", "at least 1"});
    check_throws<ValueError>([&] { optim::clip_grad_norm(std::vector{w}, -1.0); }, {"max_norm"});
  });
}

TEST_CASE("a gradient that a hook left partial: its norm is the sum's, and what is clipped sums to it") {
  on_ranks({2, 3, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    Tensor g = tensor<double>({6, 0, -8});  // norm 10
    for (double p : {1.0, 2.0, kInfinity}) {
      Tensor w = dist::replicate(zeros({3}, {.dtype = DType::f64}), mesh).set_requires_grad(true);
      w.add_hook([&](const Tensor& x) {  // each rank holds a part, none of them zero
        return dist::from_local(x.local() / static_cast<double>(mesh.size("dp")), mesh.layout("- partial(dp)"));
      });
      Tensor other = leaf(g, &mesh, "tp");
      sum(w * dist::replicate(g, mesh)).backward();
      REQUIRE(w.grad().layout().is_partial("dp"));
      double norm = plain_norm({g, g}, p);
      CHECK(optim::grad_norm(std::vector{w, other}, p) == doctest::Approx(norm).epsilon(1e-14));
      optim::clip_grad_norm(std::vector{w, other}, 1.0, p, 0.0);
      CHECK(distance(w.grad(), g * (1 / norm)) < 1e-15);
      CHECK(optim::grad_norm(std::vector{w, other}, p) == doctest::Approx(1));
      check_throws<LayoutError>([&] { optim::clip_grad_value(std::vector{w}, 1.0); }, {"partial", "hook"});
    }
  });
}

TEST_CASE("norms of f32 are summed in f64: of what f32 would overflow, and the same under every layout") {
  on_ranks({1, 2, 3, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    Tensor large = full({7, 5}, 1e30), small = full({7, 5}, 1e-30), many = normal(3, {700, 50}, DType::f32);
    double first = 0;
    for (const char* text : {"-, -", "dp, -", "-, dp.tp"}) {
      auto norm = [&](const Tensor& g) { return optim::grad_norm(std::vector{leaf(g, &mesh, text)}); };
      CHECK(norm(large) == doctest::Approx(std::sqrt(35.0) * static_cast<double>(1e30f)).epsilon(1e-14));
      CHECK(norm(small) == doctest::Approx(std::sqrt(35.0) * static_cast<double>(1e-30f)).epsilon(1e-14));
      double here = norm(many);
      first = first == 0 ? here : first;
      CHECK(here == doctest::Approx(first).epsilon(1e-14));
    }
  });
}

TEST_CASE("halves: gradients in f32, sums in f64") {
  Tensor w = cast(zeros({3000}), DType::bf16).set_requires_grad(true);
  sum(w * cast(full({3000}, 0.5), DType::bf16)).backward();
  CHECK(optim::grad_norm(std::vector{w}) == doctest::Approx(0.5 * std::sqrt(3000.0)).epsilon(1e-7));
}

TEST_CASE("values are clamped element by element") {
  on_ranks({1, 2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    Tensor w = leaf(tensor<double>({-3, 0.5, 2}), &mesh, "dp");
    optim::clip_grad_value(std::vector{w}, 1.0);
    CHECK(to_vector<double>(w.grad()) == std::vector<double>{-1, 0.5, 1});
    check_throws<ValueError>([&] { optim::clip_grad_value(std::vector{w}, -1.0); }, {"negative"});
  });
}

TEST_CASE("clipping needs one number of traffic and no room to speak of") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    Tensor w = leaf(normal(1, {100000}), &mesh, "dp");
    reset_peak_memory();
    int64_t before = memory_stats().active;
    dist::reset_comm_counts();
    optim::clip_grad_norm(std::vector{w}, 1.0);
    CHECK(memory_stats().peak - before < 1024);
    auto counts = dist::comm_counts();
    REQUIRE(counts.size() == 1);
    CHECK(counts[0].bytes == 8);
    CHECK(counts[0].phase == "optimizer");
  });
}
