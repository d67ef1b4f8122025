// What ZeRO costs: bytes sent in a step, and bytes of model state, beside the formulas of the paper.
#include "nn/zero_support.h"

#include <cstdio>
#include <set>

using namespace cleave;
using namespace cleave::test;

namespace {

/// Linears whose dims divide by the meshes.
struct Stack : nn::Module<Stack> {
  nn::List<nn::Linear> layers;
  Stack(int64_t n, int64_t dim) : layers(this, "layers", n, dim, dim) {}
  Tensor forward(const Tensor& x) const {
    Tensor h = x;
    for (const nn::Linear& layer : layers) h = tanh(layer(h));
    return h;
  }
};

constexpr int64_t kLayers = 6, kDim = 32, kParameters = kLayers * (kDim * kDim + kDim);

ZeroCase plain(int stage, int ranks) {
  return {"stage " + std::to_string(stage), {{"dp", ranks}}, stage, {"dp"}, "dp"};
}

double bytes_of_a_step(const ZeroCase& c, dist::World& world, int micro_batches) {
  dist::DeviceMesh mesh(world, c.axes);
  auto net = nn::build<Stack>({.dtype = DType::f64}, kLayers, kDim);
  nn::shard(net, mesh, plan_of(c, net, mesh));
  optim::AdamW opt(net.parameters(), {});
  Tensor x = dist::distribute(normal(7, {12, kDim}), mesh.layout(c.batch + ", -"));  // compares hashes: not counted
  dist::record_collectives(true);
  for (int micro = 0; micro < micro_batches; ++micro) {
    sum(square(net(x))).backward({.sync = micro + 1 == micro_batches});
  }
  opt.step();
  double bytes = sent(dist::recorded_collectives(), [&](const std::string& axis) {
    for (const dist::MeshAxis& a : c.axes)
      if (a.name == axis) return a.size;
    FAIL_CHECK("a collective over " << axis);
    return 1;
  });
  dist::record_collectives(false);
  return bytes;
}

/// Bytes that this rank holds of the model: parameters, gradients as backward leaves them, optimizer.
struct State {
  int64_t parameters = 0, gradients = 0, optimizer = 0, peak = 0;
};

State state_of(const ZeroCase& c, dist::World& world, int64_t layers, int64_t dim, DType dtype,
               nn::GradientPrecision precision = {}) {
  dist::DeviceMesh mesh(world, c.axes);
  State out;
  Tensor x = dist::distribute(randn({4, dim}, {.dtype = dtype, .seed = 8}), mesh.layout(c.batch + ", -"));
  int64_t before = memory_stats().active;
  auto net = nn::build<Stack>({.dtype = dtype, .deferred = true}, layers, dim);
  nn::shard(net, mesh, plan_of(c, net, mesh));
  nn::set_gradient_precision(net, precision);
  out.parameters = memory_stats().active - before;
  {
    Tensor loss = sum(square(net(x)));
    reset_peak_memory();
    int64_t start = memory_stats().active;
    loss.backward({.sync = c.stage >= 2});  // stages 0 and 1 keep whole terms until the sync
    out.peak = memory_stats().peak - start;
  }
  out.gradients = memory_stats().active - before - out.parameters;
  optim::AdamW opt(net.parameters(), {});
  opt.step();
  opt.zero_grad();
  out.optimizer = memory_stats().active - before - out.parameters;
  return out;
}

}  // namespace

TEST_CASE("bytes sent in a step of stages 0 to 2 are 2 Psi (n-1)/n, also with three micro-batches") {
  const double psi = kParameters * 8;
  for (int ranks : {2, 4})
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
      double n = ranks;
      for (int stage = 0; stage <= 2; ++stage)
        for (int micro_batches : {1, 3}) {
          CAPTURE(stage);
          CAPTURE(micro_batches);
          CHECK(bytes_of_a_step(plain(stage, ranks), world, micro_batches) == 2 * psi * (n - 1) / n);
        }
    });
}

TEST_CASE("hybrid sharding in stage 2 sends its split gradients alone over the replicas") {
  const double psi = kParameters * 8;
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    ZeroCase c{"hybrid", {{"rep", 2}, {"shard", 2}}, 2, {"shard"}, "rep.shard"};
    // Reduce-scatter and all-gather over s = 2 ranks; all-reduce of Psi / s over r = 2.
    CHECK(bytes_of_a_step(c, world, 1) == 2 * psi * (2 - 1) / 2 + 2 * (psi / 2) * (2 - 1) / 2);
  });
}

TEST_CASE("bytes sent in a step of stage 3 are 3 Psi (n-1)/n, less the gathers that backward has no need of") {
  const double psi = kParameters * 8, biases = kLayers * kDim * 8;
  for (int ranks : {2, 4})
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
      double n = ranks;
      CHECK(bytes_of_a_step(plain(3, ranks), world, 1) == (3 * psi - biases) * (n - 1) / n);
    });
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    ZeroCase c{"hybrid", {{"rep", 2}, {"shard", 2}}, 3, {"shard"}, "rep.shard"};
    CHECK(bytes_of_a_step(c, world, 1) == (3 * psi - biases) * (2 - 1) / 2 + 2 * (psi / 2) * (2 - 1) / 2);
  });
}

TEST_CASE("small parameters that stage 3 leaves whole cost no gather of their own") {
  const double weights = kLayers * kDim * kDim * 8, biases = kLayers * kDim * 8;
  for (int ranks : {2, 4})
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
      ZeroCase c = plain(3, ranks);
      c.whole_below = kDim + 1;
      double n = ranks;
      CHECK(bytes_of_a_step(c, world, 1) == (3 * weights + 2 * biases) * (n - 1) / n);
      dist::DeviceMesh mesh(world, c.axes);
      auto net = nn::build<Stack>({.dtype = DType::f64}, kLayers, kDim);
      nn::shard(net, mesh, plan_of(c, net, mesh));
      Tensor x = dist::distribute(normal(7, {12, kDim}), mesh.layout(c.batch + ", -"));
      dist::record_collectives(true);
      net(x);
      CHECK(dist::recorded_collectives().size() == kLayers);
      dist::record_collectives(false);
    });
}

TEST_CASE("model state of bf16 parameters: what a stage splits is a part of it on each rank") {
  constexpr int64_t layers = 4, dim = 128;
  const double psi = layers * (dim * dim + dim);
  std::vector<std::string> rows;
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    const double n = 4;
    state_of(plain(0, 4), world, layers, dim, DType::bf16);  // what a first use makes and keeps is no model state
    for (DType kept : {DType::bf16, DType::f32})
      for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage);
        State s = state_of(plain(stage, 4), world, layers, dim, DType::bf16, {.keep = kept, .reduce = kept});
        auto part = [&](int from) { return stage >= from ? psi / n : psi; };
        double p = 2 * part(3), g = static_cast<double>(size_of(kept)) * part(2), k = 12 * part(1);
        CHECK(static_cast<double>(s.parameters) == doctest::Approx(p).epsilon(0.05));
        CHECK(static_cast<double>(s.gradients) == doctest::Approx(g).epsilon(0.05));
        CHECK(static_cast<double>(s.optimizer) == doctest::Approx(k).epsilon(0.05));
        if (world.rank() != 0) continue;
        char row[160];
        std::snprintf(row, sizeof row, "stage %d: parameters %.2f (%.2f), gradients %.2f (%.2f), optimizer %.2f (%.2f)",
                      stage, static_cast<double>(s.parameters) / psi, p / psi, static_cast<double>(s.gradients) / psi,
                      g / psi, static_cast<double>(s.optimizer) / psi, k / psi);
        rows.emplace_back(row);
      }
  });
  std::printf("note: model state, bytes per parameter and rank of 4 (formula); gradients of bf16, then of f32\n");
  for (const std::string& row : rows) std::printf("note: %s\n", row.c_str());
}

TEST_CASE("gradients are sent in the dtype that was set, on every axis") {
  dist::run_ranks({.ranks = 4}, [](dist::World& world) {
    for (DType dtype : {DType::bf16, DType::f32})
      for (int stage : {0, 2, 3}) {
        ZeroCase c{"hybrid", {{"rep", 2}, {"shard", 2}}, stage, {"shard"}, "rep.shard"};
        dist::DeviceMesh mesh(world, c.axes);
        auto net = nn::build<Stack>({.dtype = DType::bf16}, kLayers, kDim);
        nn::shard(net, mesh, plan_of(c, net, mesh));
        nn::set_gradient_precision(net, {.keep = DType::f32, .reduce = dtype});
        Tensor x = dist::distribute(randn({12, kDim}, {.dtype = DType::bf16, .seed = 7}), mesh.layout("rep.shard, -"));
        Tensor loss = sum(square(net(x)));
        dist::reset_comm_counts();
        loss.backward();
        std::set<std::string> axes;
        for (const dist::CommCount& count : dist::comm_counts()) {
          if (count.kind == dist::CollectiveKind::all_gather) continue;
          CHECK(count.dtype == dtype);
          axes.insert(count.axis);
        }
        CHECK(axes == (stage == 0 ? std::set<std::string>{"rep.shard"} : std::set<std::string>{"rep", "shard"}));
        CHECK(net.layers[0].weight.grad().dtype() == DType::f32);
      }
  });
}

// The terms of the two ranks are 256 and 1: their sum is no number of bf16.
TEST_CASE("leaves that are sent in unlike dtypes share no bucket, and each keeps its own") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    Tensor x = dist::distribute(cast(tensor<double>({256, 256, 1, 1}, {2, 2}), DType::bf16), mesh.layout("dp, -"));
    const DType wires[] = {DType::bf16, DType::f32, DType::bf16};
    for (std::vector<size_t> leaves : {std::vector<size_t>{0, 1, 2}, {1, 0}, {0}, {1}}) {
      std::vector<Tensor> w;
      Tensor loss;
      for (size_t i : leaves) {
        w.push_back(dist::replicate(ones({2}, {.dtype = DType::bf16}), mesh).set_requires_grad(true));
        autograd::set_gradient_precision(w.back(), {.keep = DType::f32, .reduce = wires[i]});
        Tensor term = sum(x * w.back());
        loss = loss.defined() ? loss + term : term;
      }
      loss.backward();
      for (size_t k = 0; k < w.size(); ++k) {
        CHECK(w[k].grad().dtype() == DType::f32);
        CHECK(item<double>(amax(w[k].grad())) == (wires[leaves[k]] == DType::f32 ? 257 : 256));
      }
    }
  });
}

TEST_CASE("a parameter of stage 3 is whole only around its module") {
  constexpr int64_t layers = 16, dim = 64, one = dim * dim * 8;
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 4}});
    auto net = nn::build<Stack>({.dtype = DType::f64}, layers, dim);
    nn::shard(net, mesh, plan_of(plain(3, 4), net, mesh));
    Tensor x = dist::distribute(normal(7, {4, dim}), mesh.layout("dp, -"));
    auto measure = [&](autograd::Regather what) {
      autograd::RegatherScope scope(what);
      int64_t before = memory_stats().active;
      Tensor loss = sum(square(net(x)));
      int64_t held = memory_stats().active - before;
      reset_peak_memory();
      int64_t start = memory_stats().active;
      loss.backward();
      net.zero_grad();
      return std::pair(held, memory_stats().peak - start);
    };
    measure(autograd::Regather::parameters);
    auto [kept, kept_peak] = measure(autograd::Regather::nothing);
    auto [held, peak] = measure(autograd::Regather::parameters);
    CHECK(kept - held >= layers * one);  // the tape's copies
    CHECK(held < layers * 4096);         // activations of one row, and little else
    // Gradients of a rank, terms on their way to be scattered (one bucket holds them all here), one gathered weight.
    CHECK(peak <= layers * (one + dim * 8) * 9 / 4 + 2 * one);
  });
}

TEST_CASE("in stage 2 backward never holds all gradients: a part, and some buckets") {
  constexpr int64_t layers = 16, dim = 64, one = (dim * dim + dim) * 8;
  dist::run_ranks({.ranks = 4}, [&](dist::World& world) {
    int64_t before = autograd::set_bucket_bytes(one);
    int64_t whole = state_of(plain(0, 4), world, layers, dim, DType::f64).peak;
    int64_t split = state_of(plain(2, 4), world, layers, dim, DType::f64).peak;
    autograd::set_bucket_bytes(before);
    CHECK(whole >= (layers - 1) * one);  // while what backward needed goes
    CHECK(split <= layers * one / 4 + 5 * one);
  });
}
