// Policy M by its communication: what a tensor-parallel block costs, forward and backward.
#include <cleave/cleave.h>
#include <doctest/doctest.h>

#include <cmath>
#include <map>

using namespace cleave;

namespace {

using Counts = std::map<std::string, int>;

// "backward all_reduce" -> how often, for payloads of at least `bytes`.
Counts counts(int64_t bytes) {
  Counts out;
  for (const dist::CommEvent& e : dist::recorded_collectives())
    if (e.bytes >= bytes) ++out[std::string(e.phase) + " " + std::string(to_string(e.kind))];
  return out;
}

struct Case {
  dist::DeviceMesh mesh;
  Tensor x, gain, bias, up, up_bias, down, down_bias;
};

constexpr int64_t kBatch = 3, kSeq = 5, kDim = 4, kHidden = 7;
constexpr int64_t kActivation = kBatch * kSeq * kDim * 8;

Tensor value(uint64_t seed, const Shape& shape) { return randn(shape, {.dtype = DType::f64, .seed = seed}); }

// Two column branches and a row linear behind a norm, with a residual: half a transformer layer.
Tensor block(const Case& c, const Tensor& x, const char* between) {
  Tensor h = layer_norm(x, {kDim}, c.gain, c.bias);
  auto place = [&](const Tensor& t, const char* text) {
    return t.is_distributed() ? dist::redistribute(t, c.mesh.layout(text)) : t;
  };
  if (std::string(between) == "-, tp, -") h = place(h, "-, -, -");
  Tensor a = gelu(linear(h, c.up, c.up_bias)) * linear(h, c.up);
  return x + place(linear(a, c.down, c.down_bias), between);
}

std::vector<Tensor> leaves(const Case& c) { return {c.x, c.gain, c.bias, c.up, c.up_bias, c.down, c.down_bias}; }

Case make(dist::DeviceMesh mesh, bool split) {
  auto leaf = [&](uint64_t seed, const Shape& shape, const char* text) {
    Tensor v = value(seed, shape);
    return (split ? dist::distribute(v, mesh.layout(text)) : v).set_requires_grad();
  };
  return {mesh,
          leaf(1, {kBatch, kSeq, kDim}, "..."),
          leaf(2, {kDim}, "-"),
          leaf(3, {kDim}, "-"),
          leaf(4, {kHidden, kDim}, "tp, -"),
          leaf(5, {kHidden}, "tp"),
          leaf(6, {kDim, kHidden}, "-, tp"),
          leaf(7, {kDim}, "-")};
}

void compare(const Case& split, const Case& whole) {
  std::vector<Tensor> a = leaves(split), b = leaves(whole);
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(allclose(dist::full_tensor(a[i].grad()), b[i].grad(), {.rtol = 1e-11, .atol = 1e-12}));
}

}  // namespace

TEST_CASE("tensor parallel: one all-reduce forward and one backward per half layer") {
  for (int ranks : {2, 3})
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"tp", ranks}});
      Case c = make(mesh, true), one = make(mesh, false);
      dist::record_collectives(true);
      Tensor y = block(c, c.x, "-, -, -");
      Tensor loss = sum(square(y));
      loss.backward();
      Counts n = counts(kActivation);
      dist::record_collectives(false);
      sum(square(block(one, one.x, "-, -, -"))).backward();
      if (world.rank() == 0) CHECK(n == Counts{{"forward all_reduce", 1}, {"backward all_reduce", 1}});
      compare(c, one);
    });
}

TEST_CASE("sequence parallel: one all-gather and one reduce-scatter each way, the gather shared by its consumers") {
  for (int ranks : {2, 3})
    dist::run_ranks({.ranks = ranks}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, {{"tp", ranks}});
      Case c = make(mesh, true), one = make(mesh, false);
      Tensor x = dist::redistribute(c.x, mesh.layout("-, tp, -"));
      dist::record_collectives(true);
      Tensor y = block(c, x, "-, tp, -");
      Tensor loss = sum(square(y));
      Counts forward = counts(1);
      loss.backward();
      Counts n = counts(kActivation / ranks / 2);
      dist::record_collectives(false);
      sum(square(block(one, one.x, "-, -, -"))).backward();
      if (world.rank() == 0) {
        CHECK(forward["forward all_gather"] == 1);
        CHECK(forward["forward reduce_scatter"] == 1);
        CHECK(n["backward reduce_scatter"] == 1);
        CHECK(n["backward all_gather"] == 2);  // one is the gradient of x's cut
        CHECK(n["backward all_reduce"] == 0);
      }
      compare(c, one);
    });
}

TEST_CASE("data parallel: gradients of one kind share one all-reduce, once for all micro-batches") {
  dist::run_ranks({.ranks = 2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"tp", 1}, {"dp", 2}});
    Case c = make(mesh, true), one = make(mesh, false);
    dist::record_collectives(true);
    for (uint64_t micro = 0; micro < 3; ++micro) {
      Tensor x = value(20 + micro, {kBatch, kSeq, kDim});
      sum(square(block(c, dist::distribute(x, mesh.layout("dp, -, -")), "dp, -, -"))).backward({.sync = false});
      sum(square(block(one, x, "-, -, -"))).backward();
    }
    std::vector<Tensor> parameters = leaves(c);
    parameters.erase(parameters.begin());
    CHECK(counts(32)["backward all_reduce"] == 0);
    sync_gradients(parameters);
    int64_t bytes = 0, calls = 0;
    for (const dist::CommEvent& e : dist::recorded_collectives())
      if (e.axis == "dp" && e.label == "sync_gradients") {
        bytes += e.bytes;
        ++calls;
      }
    dist::record_collectives(false);
    int64_t parameter_bytes = 0;
    for (const Tensor& p : parameters) parameter_bytes += numel(p) * 8;
    CHECK(calls == 1);
    CHECK(bytes == parameter_bytes);
    for (size_t i = 0; i < parameters.size(); ++i)
      CHECK(
          allclose(dist::full_tensor(parameters[i].grad()), leaves(one)[i + 1].grad(), {.rtol = 1e-11, .atol = 1e-12}));
  });
}

TEST_CASE("a gather's backward is a reduce-scatter of rank-dependent uses and a cut of equal ones") {
  dist::run_ranks({.ranks = 2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", 2}});
    Tensor x = dist::distribute(value(1, {5, 2}), mesh.layout("x, -")).set_requires_grad();
    Tensor weight = dist::from_local(full({1}, 1.0 + world.rank(), {.dtype = DType::f64}), mesh.layout("x"));
    Tensor gathered = dist::redistribute(x, mesh.layout("-, -"));
    sum(sum(gathered) * weight).backward();
    CHECK(allclose(dist::full_tensor(x.grad()), full({5, 2}, 3.0, {.dtype = DType::f64}), {.rtol = 0}));
    x.zero_grad();
    dist::record_collectives(true);
    sum(dist::redistribute(x, mesh.layout("-, -"))).backward();
    for (const dist::CommEvent& e : dist::recorded_collectives()) CHECK(std::string(e.phase) != "backward");
    dist::record_collectives(false);
    CHECK(allclose(dist::full_tensor(x.grad()), ones({5, 2}, {.dtype = DType::f64}), {.rtol = 0}));
  });
}

TEST_CASE("a memoised redistribution is gathered once, forgotten after an in-place write, and never held alive") {
  dist::run_ranks({.ranks = 2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"x", 2}});
    Tensor x = dist::distribute(value(1, {6, 4}), mesh.layout("x, -"));
    dist::Layout whole = mesh.layout("-, -");
    Tensor a = dist::redistribute(x, whole);
    dist::record_collectives(true);
    Tensor b = dist::redistribute(x, whole);
    CHECK(dist::recorded_collectives().empty());
    CHECK(a.storage() == b.storage());
    fill_(x, 7.0);
    Tensor c = dist::redistribute(x, whole);
    CHECK(allclose(c.local(), full({6, 4}, 7.0, {.dtype = DType::f64}), {.rtol = 0}));
    a = b = c = {};
    CHECK(dist::redistribute(x, whole).defined());
    CHECK(dist::recorded_collectives().size() == 2);  // after the write, and after the last result died
    dist::record_collectives(false);
    x.set_requires_grad();
    CHECK(dist::redistribute(x, whole).requires_grad());
  });
}
