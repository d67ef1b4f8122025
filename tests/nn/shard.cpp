// shard: where parameters go, how inputs and outputs are placed, and that handles stay good.
#include "nn/support.h"

#include <cleave/dist/mesh_state.h>

#include <map>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Mlp : nn::Module<Mlp> {
  nn::Linear up{this, "up", 6, 9}, down{this, "down", 9, 6};
  static constexpr std::array inputs{"x", "shift"};
  Tensor forward(const Tensor& x, const Tensor& shift = {}) const {
    Tensor y = down(gelu(up(x)));
    return shift.defined() ? y + shift : y;
  }
};

Mlp& seeded(Mlp& model) {
  uint64_t k = 0;
  for (const nn::Parameter& p : model.parameters()) p.assign(normal(++k, p.shape()));
  return model;
}

std::vector<Tensor> grads(const nn::ModuleBase& model) {
  std::vector<Tensor> out;
  for (const nn::Parameter& p : model.parameters()) out.push_back(dist::full_tensor(p.grad()));
  return out;
}

// "backward all_gather" -> how often.
std::map<std::string, int> counted(const std::function<void()>& f) {
  dist::record_collectives(true);
  f();
  std::map<std::string, int> out;
  for (const dist::CommEvent& e : dist::recorded_collectives())
    if (e.bytes > 64) ++out[std::string(e.phase) + " " + std::string(to_string(e.kind))];
  dist::record_collectives(false);
  return out;
}

const nn::ShardingPlan megatron{.parameter = {{"up.weight", "tp, -"}, {"up.bias", "tp"}, {"down.weight", "-, tp"}},
                                .forward = {{"input", {"dp, -"}}, {"output", {"dp, -"}}}};

}  // namespace

TEST_CASE("outputs and gradients equal one device's under many plans") {
  Tensor x = normal(50, {7, 6});
  auto one = nn::build<Mlp>({.dtype = DType::f64});
  Tensor want = seeded(one)(x);
  sum(square(want)).backward();
  auto want_grads = grads(one);
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    for (bool flat : {false, true}) {
      dist::DeviceMesh mesh = grid(world, flat);
      std::vector<nn::ShardingPlan> plans{
          {},
          megatron,
          {.forward = {{"input", {"dp.tp, -"}}}},
          {.parameter = {{"**.weight", "dp.tp, - => -, -"}, {"**.bias", "tp => -"}},
           .forward = {{"input", {"dp.tp, -"}}}},
          {.parameter = {{"up.weight", "tp, dp => tp, -"}, {"down.weight", "dp, tp => -, tp"}},
           .forward = {{"input", {"dp, -"}}}},
          {.parameter = {{"**", "... => ... => ..."},
                         {"up.weight", "-, - => -, - => dp, tp"},
                         {"up.bias", "- => - => dp"}}},
          {.parameter = {{"up.weight", "-, tp"}, {"down.weight", "dp, -"}},
           .forward = {{"up.output", {"dp, tp"}}, {"output", {"-, -"}}}}};
      for (size_t i = 0; i < plans.size(); ++i) {
        CAPTURE(i);
        auto many = nn::build<Mlp>({.dtype = DType::f64});
        nn::shard(seeded(many), mesh, plans[i]);
        Tensor y = many(dist::replicate(x, mesh));
        CHECK(distance(y, want) < 1e-12);
        sum(square(y)).backward();
        auto got = grads(many);
        for (size_t k = 0; k < got.size(); ++k) CHECK(distance(got[k], want_grads[k]) < 1e-11);
      }
    }
  });
}

TEST_CASE("ZeRO-3: one gather per weight forward and backward, one reduce-scatter; gradients come stored") {
  on_ranks({2, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", world.size()}});
    auto model = nn::build<Mlp>({.dtype = DType::f64});
    nn::shard(seeded(model), mesh, {.parameter = {{"*.weight", "dp, - => -, -"}}, .forward = {{"input", {"dp, -"}}}});
    Tensor x = dist::replicate(normal(9, {8, 6}), mesh);
    Tensor loss;
    auto forward = counted([&] { loss = sum(square(model(x))); });
    CHECK(forward == std::map<std::string, int>{{"forward all_gather", 2}});
    auto backward = counted([&] { loss.backward(); });
    CHECK(backward["backward reduce_scatter"] == 1);  // both weights in one bucket
    CHECK(backward["backward all_gather"] == 2);      // gathered again: the tape keeps the shards
    CHECK(to_string(model.up.weight.grad().layout()) == "dp, -");
    CHECK(to_string(model.up.weight.use_layout()) == "-, -");
    CHECK(to_string(model.up.weight.layout()) == "dp, -");
  });
}

TEST_CASE("a parameter used twice in one call is gathered once") {
  struct Twice : nn::Module<Twice> {
    nn::Parameter w{this, "w", Shape{8, 8}, nn::init::normal()};
    Tensor forward(const Tensor& x) const {
      Tensor y = matmul(x, w);  // the gathered w is gone here, but for the memo
      return matmul(y, w);
    }
  };
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    Twice model;
    nn::shard(model, mesh, {.parameter = {{"w", "dp, - => -, -"}}});
    Tensor x = dist::replicate(normal(1, {3, 8}, DType::f32), mesh);
    for (bool record : {true, false}) {
      CAPTURE(record);
      std::optional<NoGrad> off;
      if (!record) off.emplace();
      CHECK(counted([&] { model(x); }) == std::map<std::string, int>{{"forward all_gather", 1}});
    }
  });
}

TEST_CASE("inputs: plain ones need a layout in the plan; names, positions and outputs") {
  on_ranks({2, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    auto model = nn::build<Mlp>({.dtype = DType::f64});
    seeded(model);
    Tensor x = normal(1, {4, 6}), s = normal(2, {6});
    Tensor want = model(x, s);
    nn::shard(model, mesh, {.forward = {{"input", {"dp, -"}}}});
    CHECK(to_string(model(x).layout()) == "dp, -");
    check_throws<LayoutError>([&] { model(x, s); }, {"input 1", "the model", "plain", "f64[6]", "replicate"});
    CHECK(distance(model(x, dist::replicate(s, mesh)), want) < 1e-13);
    check_throws<LayoutError>(
        [&] {
          model(dist::replicate(normal(1, {2, 2, 6}), mesh));
        },
        {"input 0", "the model", "2 dims"});

    nn::shard(model, mesh, {.forward = {{"input", {{"shift", "-"}}}, {"output", {"dp, tp"}}}});
    Tensor y = model(dist::replicate(x, mesh), s);
    CHECK(to_string(y.layout()) == "dp, tp");
    CHECK(distance(y, want) < 1e-13);

    nn::shard(model, mesh, {.forward = {{"input", {"dp, -", "-", "-"}}}});
    check_throws<PlanError>([&] { model(x, s); }, {"input 2", "the model", "2 input"});
    nn::shard(model, mesh, {.forward = {{"up.output", {{"1", "-, -"}}}}});
    check_throws<PlanError>([&] { model(dist::replicate(x, mesh)); }, {"output 1", "up", "1 output"});
    check_throws<LayoutError>([&] { model.up(x); }, {"input 0", "up.input"});
  });
}

TEST_CASE("the mesh is ambient inside, and not after") {
  struct Positions : nn::Module<Positions> {
    Tensor forward(const Tensor& x) const {
      if (x.size(0) == 1) throw ValueError("no");
      return x + arange(x.size(0), {.dtype = DType::f64});
    }
  };
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    Positions model;
    nn::shard(model, mesh);
    Tensor x = dist::distribute(zeros({5}, {.dtype = DType::f64}), mesh.layout("dp"));
    CHECK(to_vector<double>(model(x)) == std::vector<double>{0, 1, 2, 3, 4});
    CHECK(!arange(3).is_distributed());
    CHECK_THROWS_AS(model(dist::replicate(zeros({1}), mesh)), ValueError);
    CHECK(!arange(3).is_distributed());
  });
}

TEST_CASE("handles, hooks and the frozen mark survive; the model can be sharded again, also on another mesh") {
  on_ranks({4}, [](dist::World& world) {
    auto model = nn::build<Mlp>({.dtype = DType::f64});
    Tensor x = normal(3, {4, 6});
    Tensor want = seeded(model)(x);
    auto handles = model.parameters();
    int hooks = 0;
    model.up.weight.tensor().add_hook([&](const Tensor& g) {
      ++hooks;
      return g;
    });
    model.down.bias->set_requires_grad(false);
    dist::DeviceMesh mesh = grid(world), line(world, {{"tp", 4}});
    nn::shard(model, mesh, megatron);
    CHECK(handles[0].is_distributed());
    CHECK(handles[0] == model.up.weight);
    CHECK(!model.down.bias->requires_grad());
    CHECK(model.down.bias->tensor().impl()->parameter);
    sum(model(x)).backward();
    CHECK(hooks == 1);
    CHECK(handles[0].grad().defined());
    CHECK(!model.down.bias->grad().defined());
    check_throws<GradError>([&] { nn::shard(model, line, {}); }, {"up.weight", "zero_grad"});
    model.zero_grad();
    for (const char* text : {"tp, -", "-, tp", "-, -"}) {
      nn::shard(model, line, {.parameter = {{"*.weight", text}}});
      CHECK(distance(model(dist::replicate(x, line)), want) < 1e-12);
      CHECK(&model.up.weight.layout().data()->mesh->world() == &world);
      CHECK(to_string(model.up.weight.layout()) == text);
    }
  });
}

TEST_CASE("the precision of gradients stays when a model is made, sharded and sharded again") {
  on_ranks({2}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world), line(world, {{"dp", 2}});
    for (bool deferred : {false, true}) {
      auto model = nn::build<Mlp>({.dtype = DType::bf16, .deferred = deferred});
      nn::set_gradient_precision(model, {.keep = DType::f16, .reduce = DType::bf16});
      auto kept = [&] {
        for (const auto& p : model.parameters()) {
          CHECK(autograd::kept_dtype(p.tensor()) == DType::f16);
          CHECK(autograd::reduced_dtype(p.tensor()) == DType::bf16);
        }
      };
      kept();
      nn::materialize(model);
      kept();
      nn::shard(model, mesh, megatron);
      kept();
      nn::shard(model, line, {.parameter = {{"*.weight", "dp, - => -, -"}}});
      kept();
    }
  });
}

TEST_CASE("tied parameters: one tensor, one gradient, under any of their names") {
  struct Tied : nn::Module<Tied> {
    nn::Embedding e{this, "e", 11, 4};
    nn::Parameter head{this, "head", e.weight};
    Tensor forward(const Tensor& ids) const { return matmul(e(ids), transpose(head, 0, 1)); }
  };
  Tensor ids = tensor<int64_t>({1, 10, 4, 4});
  auto one = nn::build<Tied>({.dtype = DType::f64});
  one.e.weight.assign(normal(1, {11, 4}));
  sum(square(one(ids))).backward();
  on_ranks({1, 2, 3}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world, true);
    for (const char* name : {"e.weight", "head"}) {
      auto many = nn::build<Tied>({.dtype = DType::f64, .deferred = true});
      nn::shard(many, mesh, {.parameter = {{name, "tp, -"}}});
      many.e.weight.assign(normal(1, {11, 4}));
      CHECK(many.head.tensor().impl() == many.e.weight.tensor().impl());
      sum(square(many(dist::replicate(ids, mesh)))).backward();
      CHECK(distance(many.head.grad(), one.head.grad()) < 1e-11);
    }
  });
}

TEST_CASE("replicas that start from different values are found out") {
  on_ranks({2}, [](dist::World& world) {
    seed(static_cast<uint64_t>(world.rank()));
    Mlp model;
    check_throws<CommError>([&] { nn::shard(model, grid(world), {}); }, {"different values"});
  });
}

TEST_CASE("random numbers of one tensor from several seeds are found out: weights made late, dropout, creation") {
  on_ranks({2, 4}, [](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    auto own = static_cast<uint64_t>(world.rank());
    auto refused = [](const std::function<void()>& f) { check_throws<CommError>(f, {"differ", "seed()"}); };
    Tensor x = dist::distribute(normal(1, {4, 6}), mesh.layout("dp, tp"));
    Tensor heads = reshape(x, {1, 2, 4, 3});
    seed(own);
    refused([&] {
      auto model = nn::build<Mlp>({.deferred = true});
      nn::shard(model, mesh, {});
    });
    refused([&] { dropout(x, 0.5); });
    refused([&] { scaled_dot_product_attention(heads, heads, heads, {.dropout_p = 0.5}); });
    refused([&] { rand({8}, {.layout = mesh.layout("tp")}); });
    refused([&] { randint(0, 9, {8}, {.seed = own, .layout = mesh.layout("...")}); });
    rand({8});  // a rank's own
    seed(7);
    dropout(x, 0.5);
  });
}

TEST_CASE("shard(fn) places inputs and outputs") {
  auto f = [](const Tensor& x, const Tensor& w, double scale) {
    return std::pair<Tensor, Tensor>{matmul(x, w) * scale + arange(w.size(1), {.dtype = DType::f64}), sum(x)};
  };
  Tensor x = normal(1, {5, 3}), w = normal(2, {3, 4});
  auto [y0, s0] = f(x, w, 2.0);
  on_ranks({1, 2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    auto g = nn::shard(f, mesh, {.in = {"dp, -", "-, tp"}, .out = {"-, tp", "..."}});
    for (bool plain : {true, false}) {
      auto [y, s] = plain ? g(x, w, 2.0) : g(dist::replicate(x, mesh), dist::distribute(w, mesh.layout("dp, -")), 2.0);
      CHECK(to_string(y.layout()) == "-, tp");
      CHECK(s.layout().is_replicated());
      CHECK(distance(y, y0) < 1e-13);
      CHECK(distance(s, s0) < 1e-13);
    }
    auto few = nn::shard(f, mesh, {.in = {"dp, -"}, .out = {"...", "..."}});
    check_throws<LayoutError>([&] { few(x, w, 1.0); }, {"[shard]", "2 input", "1 layouts"});
    auto more = nn::shard(f, mesh, {.in = {"...", "..."}, .out = {"..."}});
    check_throws<LayoutError>([&] { more(x, w, 1.0); }, {"2 output", "1 layouts"});
    check_throws<LayoutError>([&] { nn::shard(f, mesh, {.in = {"...", "dq, -"}}); }, {"input 1", "dq"});
  });
}

TEST_CASE("parts on sub-meshes are one program: ranks outside hold types and draw the same numbers") {
  on_ranks({4}, [](dist::World& world) {
    dist::DeviceMesh all(world, {{"pp", 2}, {"tp", 2}});
    dist::DeviceMesh first = all.at("pp", 0), second = all.at("pp", 1);
    seed(7);
    auto one = nn::build<Mlp>({.dtype = DType::f64});
    seed(7);
    auto many = nn::build<Mlp>({.dtype = DType::f64, .deferred = true});
    nn::shard(many.up, first, {.parameter = {{"weight", "tp, -"}, {"bias", "tp"}}});
    nn::shard(many.down, second,
              {.parameter = {{"weight", "-, tp"}}, .forward = {{"input", {"-, -"}}, {"output", {"-, -"}}}});
    Tensor x = normal(1, {3, 6});
    Tensor want = one(x), got = many.down(gelu(many.up(dist::replicate(x, first))));
    CHECK(got.shape() == want.shape());
    if (second.contains_self()) CHECK(distance(got, want) < 1e-12);
    sum(square(want)).backward();
    sum(square(got)).backward();
    if (first.contains_self()) CHECK(distance(many.up.weight.grad(), one.up.weight.grad()) < 1e-11);
    if (second.contains_self()) CHECK(distance(many.down.weight.grad(), one.down.weight.grad()) < 1e-11);
  });
}

TEST_CASE("a model without elements on a mesh of any size: types and traffic only") {
  dist::simulate(64, 37, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 8}, {"tp", 8}});
    auto model = nn::build<Mlp>({.device = Device::Meta});
    nn::shard(model, mesh, megatron);
    CHECK(to_string(model.up.weight.tensor().type()) == "f32[9@tp, 6]");
    dist::reset_comm_counts();
    Tensor x = empty({16, 6}, {.device = Device::Meta, .layout = mesh.layout("dp, -")});
    Tensor y = model(x);
    CHECK(to_string(y.type()) == "f32[16@dp, 6]");
    sum(y).backward();
    optim::AdamW opt(model.parameters(), {.lr = 0.1});
    optim::clip_grad_norm(model.parameters(), 1.0);
    opt.step();
    int64_t bytes = 0;
    for (const auto& c : dist::comm_counts())
      if (c.axis == "tp" && c.phase == "forward") bytes += c.bytes;
    CHECK(bytes == 2 * 6 * 4);  // the row linear's all-reduce
  });
}
