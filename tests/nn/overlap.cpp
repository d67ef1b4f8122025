// Training with and without overlap: the same bits, the same traffic, in another order.
#include "nn/support.h"

#include <cleave/core/tensor_impl.h>

#include <algorithm>
#include <mutex>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Block : nn::Module<Block> {
  nn::LayerNorm norm;
  nn::Linear up, down;
  Block(nn::ModuleBase* parent, std::string name, int64_t dim, int64_t hidden)
      : Module(parent, std::move(name)),
        norm(this, "norm", Shape{dim}),
        up(this, "up", dim, hidden),
        down(this, "down", hidden, dim) {}
  Tensor forward(const Tensor& x) const { return x + down(gelu(up(norm(x)))); }
};

/// Some blocks, the first of which may run twice, between a weight and itself.
struct Net : nn::Module<Net> {
  nn::Parameter weight;
  nn::List<Block> blocks;
  bool again = false, backwards = false;
  Net(int64_t n, int64_t dim, int64_t hidden)
      : weight(this, "weight", Shape{dim, dim}, nn::init::normal(0, 0.3)), blocks(this, "blocks", n, dim, hidden) {}
  Tensor forward(const Tensor& x) const {
    Tensor h = matmul(x, weight);
    auto n = static_cast<int64_t>(blocks.size());
    for (int64_t i = 0; i < n; ++i) h = blocks[backwards ? n - 1 - i : i](h);
    if (again) h = blocks[0](h);
    return matmul(h, transpose(weight, 0, 1));
  }
};

struct Run {
  std::vector<std::vector<double>> values;  // losses, gradients of the last step, parameters
  std::vector<std::vector<std::string>> events;
  std::vector<std::string> order;
  int64_t peak = 0;
};

using Train = std::function<void(Net&, dist::DeviceMesh, const Tensor& x, Run&)>;

struct Case {
  std::vector<dist::MeshAxis> axes;
  nn::ShardingPlan plan;
  int64_t dim = 6, hidden = 9, n = 3;
  DType dtype = DType::f32;
};

void train(Net& net, const Tensor& x, Run& run) {
  Tensor loss = mean(square(net(x)));
  loss.backward();
  run.values.push_back(to_vector<double>(loss));
}

Run run(const Case& c, dist::Overlap overlap, const Train& step) {
  int ranks = 1;
  for (const auto& a : c.axes) ranks *= a.size;
  Run out;
  std::mutex mutex;
  dist::run_ranks({.ranks = ranks, .overlap = overlap}, [&](dist::World& world) {
    Run mine;
    dist::DeviceMesh mesh(world, c.axes);
    auto net = nn::build<Net>({.dtype = c.dtype}, c.n, c.dim, c.hidden);
    nn::shard(net, mesh, c.plan);
    Tensor x = dist::replicate(randn({8, c.dim}, {.dtype = c.dtype, .seed = 5}), mesh);
    dist::record_collectives(true);
    reset_peak_memory();
    step(net, mesh, x, mine);
    mine.peak = memory_stats().peak;
    for (const dist::CommEvent& e : dist::recorded_collectives())
      mine.order.push_back(std::string(e.phase) + " " + std::string(to_string(e.kind)) + " " + e.axis + " " +
                           std::to_string(e.bytes) + " " + e.label);
    dist::record_collectives(false);
    for (const nn::Parameter& p : net.parameters()) mine.values.push_back(to_vector<double>(p.tensor()));
    std::lock_guard lock(mutex);
    mine.events = {mine.order};
    std::sort(mine.events[0].begin(), mine.events[0].end());
    if (world.rank() == 0) {
      out.values = mine.values;
      out.order = mine.order;
    }
    out.events.push_back(mine.events[0]);
    out.peak = std::max(out.peak, mine.peak);
  });
  std::sort(out.events.begin(), out.events.end());
  return out;
}

void check_alike(const Case& c, const Train& step) {
  Run off = run(c, dist::Overlap::off, step), on = run(c, dist::Overlap::on, step);
  CHECK(off.values == on.values);
  CHECK(off.events == on.events);
  CHECK(off.values.size() > c.n);
}

void steps(Net& net, dist::DeviceMesh, const Tensor& x, Run& run) {
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  net.again = true;
  for (int step = 0; step < 5; ++step) {
    train(net, x, run);
    optim::clip_grad_norm(net.parameters(), 0.5);
    opt.step();
    opt.zero_grad();
  }
}

// Another order of gathers every other step: some are started in vain.
void steps_in_changing_order(Net& net, dist::DeviceMesh, const Tensor& x, Run& run) {
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 5; ++step) {
    net.backwards = step % 2 == 1;
    net.again = step % 3 == 1;
    train(net, x, run);
    opt.step();
    opt.zero_grad();
  }
}

const nn::ShardingPlan dp{.forward = {{"input", {"dp, -"}}}};
const nn::ShardingPlan tp{.parameter = {{"**.up.weight", "tp, -"}, {"**.up.bias", "tp"}, {"**.down.weight", "-, tp"}}};
const nn::ShardingPlan dp_tp_sp{
    .parameter = {{"**.up.weight", "tp, -"}, {"**.up.bias", "tp"}, {"**.down.weight", "-, tp"}},
    .forward = {{"input", {"dp.tp, -"}}, {"blocks.*.up.input", {"dp, -"}}, {"blocks.*.output", {"dp.tp, -"}}}};
const nn::ShardingPlan zero3{
    .parameter = {{"**.weight", "dp, ... => ..."}, {"weight", "-, dp => -, -"}, {"**.bias", "dp => -"}},
    .forward = {{"input", {"dp, -"}}}};
const nn::ShardingPlan zero2{.parameter = {{"**.up.weight", "-, - => -, - => dp, -"}, {"**.up.bias", "- => - => dp"}},
                             .forward = {{"input", {"dp, -"}}}};
const nn::ShardingPlan mixed{.parameter = {{"**.up.weight", "tp.dp, - => tp, -"},
                                           {"**.up.bias", "tp.dp => tp"},
                                           {"**.down.weight", "dp, tp => -, tp"},
                                           {"weight", "dp.tp, - => -, -"}},
                             .forward = {{"input", {"dp, -"}}}};

std::vector<Case> cases() {
  return {{{{"dp", 2}}, dp},
          {{{"dp", 4}}, dp},
          {{{"tp", 2}}, tp},
          {{{"dp", 2}, {"tp", 2}}, dp_tp_sp},
          {{{"dp", 2}}, zero3},
          {{{"dp", 3}}, zero3},
          {{{"dp", 2}}, zero2},
          {{{"dp", 2}, {"tp", 2}}, mixed},
          {{{"dp", 2}}, zero3, 6, 9, 3, DType::bf16}};
}

}  // namespace

TEST_CASE("several steps give the same bits and the same traffic") {
  for (const Case& c : cases()) {
    CAPTURE(c.axes.size());
    CAPTURE(c.axes[0].size);
    check_alike(c, steps);
  }
}

TEST_CASE("gathers that come in another order than in the last step change nothing but the traffic") {
  for (const Case& c : cases())
    CHECK(run(c, dist::Overlap::off, steps_in_changing_order).values ==
          run(c, dist::Overlap::on, steps_in_changing_order).values);
}

TEST_CASE("so do micro-batches, functional gradients, hooks and evaluation") {
  for (const Case& c : cases()) {
    check_alike(c, [](Net& net, dist::DeviceMesh, const Tensor& x, Run& run) {
      optim::SGD opt(net.parameters(), {.lr = 1e-2});
      for (const nn::Parameter& p : net.parameters()) p.tensor().add_hook([](const Tensor& g) { return g * 0.5; });
      for (int step = 0; step < 2; ++step) {
        sum(square(net(x))).backward({.sync = false});
        sum(square(net(x * 2.0))).backward();
        sum(square(net(x * 3.0))).backward({.sync = false});
        sync_gradients(net.parameters());
        opt.step();
        opt.zero_grad();
      }
      NoGrad off;
      run.values.push_back(to_vector<double>(net(x)));
    });
    check_alike(c, [](Net& net, dist::DeviceMesh, const Tensor& x, Run& run) {
      std::vector<Tensor> weights;
      for (const nn::Parameter& p : net.parameters()) weights.push_back(p.tensor());
      auto both = nn::value_and_grad([&](const std::vector<Tensor>&) { return sum(square(net(x))); })(weights);
      for (const Tensor& g : both.grads) run.values.push_back(to_vector<double>(g));
    });
  }
}

TEST_CASE("a full bucket is reduced while backward goes on") {
  // Two weights of 20 MB do not share a bucket.
  Case c{
      {{"dp", 2}}, {.forward = {{"input", {"dp, -"}}, {"blocks.*.output", {"-, -"}}, {"blocks.*.up.input", {"dp, -"}}}},
      800,         3200,
      2,           DType::f64};
  auto once = [](Net& net, dist::DeviceMesh, const Tensor& x, Run&) { sum(square(net(x))).backward(); };
  Run off = run(c, dist::Overlap::off, once), on = run(c, dist::Overlap::on, once);
  CHECK(off.values == on.values);
  CHECK(off.events == on.events);
  auto is_sync = [](const std::string& e) { return e.find("sync_gradients") != std::string::npos; };
  auto first_sync = [&](const Run& r) { return std::find_if(r.order.begin(), r.order.end(), is_sync); };
  auto after = [&](const Run& r) {
    return std::count_if(first_sync(r), r.order.end(), [&](const std::string& e) { return !is_sync(e); });
  };
  CHECK(std::count_if(on.order.begin(), on.order.end(), is_sync) > 2);
  CHECK(after(off) == 0);
  CHECK(after(on) > 0);
  CHECK(on.peak <= off.peak + (25 << 20));
}

TEST_CASE("gathers of the next module start before it runs, once its order is known") {
  struct Seen {
    std::vector<size_t> gathers;  // so far, when a module has read its weight
    std::vector<std::vector<double>> outputs;
    std::function<void()> in_second = [] {};  // runs while the third module's gather is under way
  };
  static thread_local Seen* seen;
  struct Probe : nn::Module<Probe> {
    nn::Linear linear{this, "linear", 6, 6};
    Probe(nn::ModuleBase* parent, std::string name) : Module(parent, std::move(name)) {}
    Tensor forward(const Tensor& x) const {
      Tensor y = linear(x);
      seen->gathers.push_back(dist::recorded_collectives().size());
      if (seen->gathers.size() == 2) seen->in_second();
      return y;
    }
  };
  struct Chain : nn::Module<Chain> {
    nn::List<Probe> probes{this, "probes", 3};
    Tensor forward(const Tensor& x) const { return probes[2](probes[1](probes[0](x))); }
  };
  std::vector<std::vector<double>> outputs[2];
  for (bool on : {false, true})
    dist::run_ranks(
        {.ranks = 2, .overlap = on ? dist::Overlap::on : dist::Overlap::off, .link = {.latency = 0.01}},
        [&](dist::World& world) {
          Seen mine;
          seen = &mine;
          dist::DeviceMesh mesh(world, {{"dp", 2}});
          auto net = nn::build<Chain>({});
          nn::shard(net, mesh, {.parameter = {{"**.weight", "dp, - => -, -"}}, .forward = {{"input", {"-, -"}}}});
          Tensor x = dist::replicate(ones({2, 6}), mesh), third = net.probes[2].linear.weight.tensor();
          NoGrad off;
          for (int pass = 0; pass < 4; ++pass) {
            mine.gathers.clear();
            // A weight that is written after its gather began is gathered again.
            if (pass == 2) mine.in_second = [&] { fill_(third, 0.25); };
            if (pass == 3) mine.in_second = [] {};
            dist::record_collectives(true);
            mine.outputs.push_back(to_vector<double>(net(x)));
            size_t again = on && pass == 2 ? 4 : 3;
            CHECK(mine.gathers == (on && pass > 0 ? std::vector<size_t>{2, 3, again} : std::vector<size_t>{1, 2, 3}));
          }
          if (world.rank() == 0) outputs[on] = mine.outputs;
        });
  CHECK(outputs[0] == outputs[1]);
  CHECK(outputs[0][1] != outputs[0][2]);
}

TEST_CASE("gradients may still be under way when backward returns; whoever reads them waits") {
  dist::run_ranks({.ranks = 2, .overlap = dist::Overlap::on, .link = {.latency = 0.1}}, [](dist::World& world) {
    dist::DeviceMesh mesh(world, {{"dp", 2}});
    Tensor w = dist::distribute(ones({4, 3}), mesh.layout("dp, -")).set_requires_grad();
    Tensor x = dist::distribute(ones({6, 4}), mesh.layout("dp, -"));
    Tensor y = sum(matmul(x, dist::redistribute(w, mesh.layout("-, -"))));
    y.backward();
    CHECK(w.grad().storage()->pending());
    Tensor twice = w.grad() + w.grad();
    CHECK(!w.grad().storage()->pending());
    CHECK(to_vector<double>(twice) == std::vector<double>(12, 12.0));

    sum(matmul(x, dist::redistribute(w, mesh.layout("-, -")))).backward();  // on top of what is there
    CHECK(w.grad().local().data<float>()[0] == 12);
    w.zero_grad();
    sum(matmul(x, dist::redistribute(w, mesh.layout("-, -")))).backward();
    CHECK(w.grad().storage()->pending());
    w.zero_grad();  // nobody reads it
  });
}

TEST_CASE("a rank that fails in backward with a reduction under way ends the others with PeerError") {
  for (const nn::ShardingPlan& plan : {dp, zero3}) {
    std::string text = message_of<IndexError>([&] {
      dist::run_ranks({.ranks = 2, .overlap = dist::Overlap::on, .link = {.latency = 0.01}}, [&](dist::World& world) {
        dist::DeviceMesh mesh(world, {{"dp", 2}});
        auto net = nn::build<Net>({}, 3, 6, 9);
        nn::shard(net, mesh, plan);
        Tensor x = dist::replicate(ones({8, 6}), mesh);
        for (int step = 0; step < 3; ++step) {
          sum(square(net(x))).backward();
          if (step == 1 && world.rank() == 1) throw IndexError("bad datum");
        }
      });
    });
    CHECK(text == "bad datum");
  }
}
