// Activation checkpointing: the same bits, the same communication and the forward's once more.
#include "nn/support.h"

#include <cleave/core/random.h>

#include <map>
#include <mutex>

using namespace cleave;
using namespace cleave::test;

namespace {

struct Mlp : nn::Module<Mlp> {
  nn::Linear up, down;
  nn::Dropout drop{this, "drop", 0.3};
  Mlp(nn::ModuleBase* parent, std::string name, int64_t dim)
      : Module(parent, std::move(name)), up(this, "up", dim, 2 * dim), down(this, "down", 2 * dim, dim) {}
  Tensor forward(const Tensor& x) const { return drop(down(gelu(up(x)))); }
};

struct Attention : nn::Module<Attention> {
  int64_t heads, width;
  nn::Linear qkv, out;
  Attention(nn::ModuleBase* parent, std::string name, int64_t dim, int64_t heads)
      : Module(parent, std::move(name)),
        heads(heads),
        width(dim / heads),
        qkv(this, "qkv", Shape{dim}, Shape{3, heads, width}),
        out(this, "out", Shape{heads, width}, Shape{dim}) {}
  Tensor forward(const Tensor& x) const {
    std::vector<Tensor> parts = unbind(qkv(x), 2);
    auto turned = [](const Tensor& t) { return transpose(t, 1, 2); };
    Tensor y = scaled_dot_product_attention(turned(parts[0]), turned(parts[1]), turned(parts[2]), {.is_causal = true});
    return out(turned(y));
  }
};

struct Block : nn::Module<Block> {
  nn::LayerNorm norm1, norm2;
  Attention attention;
  Mlp mlp;
  Block(nn::ModuleBase* parent, std::string name, int64_t dim, int64_t heads)
      : Module(parent, std::move(name)),
        norm1(this, "norm1", dim),
        norm2(this, "norm2", dim),
        attention(this, "attention", dim, heads),
        mlp(this, "mlp", dim) {}
  Tensor forward(const Tensor& x) const {
    Tensor h = x + attention(norm1(x));
    return h + mlp(norm2(h));
  }
};

/// A small GPT: tied embedding and head; the first block may run twice.
struct Gpt : nn::Module<Gpt> {
  nn::Embedding embedding;
  nn::List<Block> blocks;
  nn::LayerNorm norm;
  bool twice = false;
  Gpt(int64_t vocabulary, int64_t dim, int64_t heads, int64_t n)
      : embedding(this, "embedding", vocabulary, dim), blocks(this, "blocks", n, dim, heads), norm(this, "norm", dim) {}
  Tensor forward(const Tensor& ids) const {
    Tensor h = embedding(ids);
    for (const Block& b : blocks) h = b(h);
    if (twice) h = blocks[0](h);
    return linear(norm(h), embedding.weight);
  }
};

struct Case {
  std::string name;
  std::vector<dist::MeshAxis> axes;
  nn::ShardingPlan plan;
  bool plain = false;
};

std::vector<Case> cases() {
  const nn::ShardingPlan tp{.parameter = {{"embedding.weight", "tp, -"},
                                          {"blocks.*.attention.qkv.weight", "-, tp, -, -"},
                                          {"blocks.*.attention.qkv.bias", "-, tp, -"},
                                          {"blocks.*.attention.out.weight", "-, tp, -"},
                                          {"blocks.*.mlp.up.weight", "tp, -"},
                                          {"blocks.*.mlp.up.bias", "tp"},
                                          {"blocks.*.mlp.down.weight", "-, tp"}}};
  nn::ShardingPlan dp{.forward = {{"input", {"dp, -"}}}}, tp_only = tp, tp_sp = tp, both = tp, zero;
  tp_only.forward = {
      {"input", {"-, -"}}, {"blocks.*.attention.output", {"-, -, -"}}, {"blocks.*.mlp.output", {"-, -, -"}}};
  tp_sp.forward = {{"input", {"-, -"}},
                   {"embedding.output", {"-, tp, -"}},
                   {"blocks.*.attention.input", {"-, -, -"}},
                   {"blocks.*.attention.output", {"-, tp, -"}},
                   {"blocks.*.mlp.input", {"-, -, -"}},
                   {"blocks.*.mlp.output", {"-, tp, -"}}};
  both.forward = {{"input", {"dp, -"}}};
  zero.parameter = {{"**.weight", "dp, ... => ..."}, {"**.bias", "dp, ... => ..."}};
  zero.forward = {{"input", {"dp, -"}}};
  return {{"plain", {{"dp", 1}}, {}, true}, {"dp", {{"dp", 2}}, dp},     {"tp", {{"tp", 2}}, tp_only},
          {"tp_sp", {{"tp", 2}}, tp_sp},    {"zero", {{"dp", 3}}, zero}, {"dp_tp", {{"dp", 2}, {"tp", 2}}, both}};
}

struct Outcome {
  std::vector<std::vector<double>> values;  // losses, then gradients
  std::map<std::string, int> collectives;   // by phase, kind, axis
  std::vector<std::string> order;
};

using Step = std::function<void(const Gpt&, const Tensor& ids, const Tensor& targets, Outcome&)>;

Tensor loss_of(const Gpt& model, const Tensor& ids, const Tensor& targets) {
  return cross_entropy(transpose(model(ids), 1, 2), targets);
}

void one_step(const Gpt& model, const Tensor& ids, const Tensor& targets, Outcome& out) {
  Tensor loss = loss_of(model, ids, targets);
  loss.backward();
  out.values.push_back(to_vector<double>(loss));
}

Outcome run(const Case& c, const std::function<void(Gpt&)>& prepare, const Step& step,
            dist::Overlap overlap = dist::Overlap::off) {
  int ranks = 1;
  for (const auto& a : c.axes) ranks *= a.size;
  Outcome out;
  std::mutex mutex;
  dist::run_ranks({.ranks = ranks, .overlap = overlap}, [&](dist::World& world) {
    seed(3);
    Gpt model(7, 8, 2, 3);
    dist::DeviceMesh mesh(world, c.axes);
    if (!c.plain) nn::shard(model, mesh, c.plan);
    prepare(model);
    Outcome mine;
    Tensor ids = randint(0, 7, {4, 5}, {.seed = 11}), targets = randint(0, 7, {4, 5}, {.seed = 12});
    if (!c.plain) ids = dist::replicate(ids, mesh), targets = dist::replicate(targets, mesh);
    dist::record_collectives(true);
    step(model, ids, targets, mine);
    for (const dist::CommEvent& e : dist::recorded_collectives()) {
      std::string what = std::string(e.phase) + " " + std::string(to_string(e.kind)) + " " + e.axis;
      ++mine.collectives[what];
      mine.order.push_back(what + " " + e.label);
    }
    dist::record_collectives(false);
    for (const nn::Parameter& p : model.parameters())
      if (p.grad().defined()) mine.values.push_back(to_vector<double>(p.grad()));
    std::lock_guard lock(mutex);
    if (world.rank() == 0) out = mine;
  });
  return out;
}

double difference(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  double d = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    for (size_t k = 0; k < a[i].size(); ++k) d = std::max(d, std::abs(a[i][k] - b[i].at(k)));
  return d;
}

void nothing(Gpt&) {}
std::function<void(Gpt&)> recompute(std::vector<std::string> patterns) {
  return [=](Gpt& m) { nn::set_recompute(m, patterns); };
}

}  // namespace

TEST_CASE("a small gpt with dropout: gradients are bit-equal, under every layout and nesting") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    Outcome kept = run(c, nothing, one_step);
    CHECK(kept.values.size() > 30);
    for (const auto& patterns : std::vector<std::vector<std::string>>{
             {"blocks.*"}, {"blocks.*.mlp"}, {"blocks.1", "blocks.*.attention.qkv"}, {""}, {"**"}}) {
      CAPTURE(patterns[0]);
      CHECK(run(c, recompute(patterns), one_step).values == kept.values);
    }
  }
}

TEST_CASE("communication is that of the run that keeps all, with the forward once more") {
  for (const Case& c : cases()) {
    if (c.plain) continue;
    CAPTURE(c.name);
    Outcome kept = run(c, nothing, one_step), again = run(c, recompute({""}), one_step);
    Outcome forward = run(c, nothing, [](const Gpt& model, const Tensor& ids, const Tensor&, Outcome&) { model(ids); });
    std::map<std::string, int> want = kept.collectives;
    for (const auto& [what, n] : forward.collectives) want["backward" + what.substr(what.find(' '))] += n;
    // What the recomputation gathers of split parameters serves its backward.
    if (c.name == "zero") want["backward all_gather dp"] = forward.collectives.at("forward all_gather dp");
    auto text = [](const std::map<std::string, int>& counts) {
      std::string out;
      for (const auto& [what, n] : counts) out += what + ": " + std::to_string(n) + "\n";
      return out;
    };
    CHECK(text(again.collectives) == text(want));
  }
}

TEST_CASE("overlap, accumulation, functional gradients, a block that runs twice: the same bits") {
  auto twice = [](Gpt& m) { m.twice = true; };
  auto twice_again = [](Gpt& m) {
    m.twice = true;
    nn::set_full_recompute(m);
  };
  Step accumulate = [](const Gpt& model, const Tensor& ids, const Tensor& targets, Outcome& out) {
    for (int k = 0; k < 3; ++k) {
      Tensor loss = loss_of(model, ids, targets);
      loss.backward({.sync = false});
      out.values.push_back(to_vector<double>(loss));
    }
    nn::sync_gradients(model.parameters());
  };
  Step functional = [](const Gpt& model, const Tensor& ids, const Tensor& targets, Outcome& out) {
    auto f = [&](const std::vector<Tensor>&) { return loss_of(model, ids, targets); };
    std::vector<nn::Parameter> some = model.parameters();
    some.erase(some.begin() + 9, some.end());  // the embedding and a part of the first block
    auto [value, grads] = nn::value_and_grad(f)(some);
    for (const Tensor& g : grads) out.values.push_back(to_vector<double>(g));
  };
  Step retained = [](const Gpt& model, const Tensor& ids, const Tensor& targets, Outcome&) {
    Tensor loss = loss_of(model, ids, targets);
    loss.backward({.retain_graph = true});
    loss.backward();
  };
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    for (const Step& step : {Step(one_step), accumulate, functional, retained})
      for (dist::Overlap overlap : {dist::Overlap::off, dist::Overlap::on}) {
        if (c.plain && overlap == dist::Overlap::on) continue;
        auto again = run(c, twice_again, step, overlap).values, kept = run(c, twice, step, overlap).values;
        if (c.name ==
            "zero")  // gathers the block's parameters once for each time that it runs: two terms are added later
          CHECK(difference(again, kept) < 1e-6);
        else
          CHECK(again == kept);
      }
  }
}

TEST_CASE("every module of the library") {
  struct All : nn::Module<All> {
    nn::Embedding embedding{this, "embedding", 5, 4};
    nn::Linear linear{this, "linear", 4, 4};
    nn::LayerNorm layer_norm{this, "layer_norm", 4};
    nn::RMSNorm rms_norm{this, "rms_norm", 4};
    nn::MultiHeadAttention attention{this, "attention", 4, {.heads = 2}};
    nn::Dropout dropout{this, "dropout", 0.4};
    Tensor forward(const Tensor& ids) const { return dropout(attention(rms_norm(layer_norm(linear(embedding(ids)))))); }
  };
  auto gradients = [](dist::DeviceMesh mesh, const std::vector<std::string>& patterns) {
    seed(1);
    auto model = nn::build<All>({.dtype = DType::f64});
    nn::shard(model, mesh,
              {.parameter = {{"linear.weight", "tp, dp"}, {"embedding.weight", "dp, - => -, -"}},
               .forward = {{"input", {"dp, -"}}, {"linear.output", {"dp, tp, -"}}, {"attention.input", {"dp, -, -"}}}});
    nn::set_recompute(model, patterns);
    sum(square(model(dist::replicate(randint(0, 5, {2, 3}, {.seed = 4}), mesh)))).backward();
    std::vector<std::vector<double>> out;
    for (const nn::Parameter& p : model.parameters()) out.push_back(to_vector<double>(p.grad()));
    return out;
  };
  on_ranks({1, 2, 4}, [&](dist::World& world) {
    auto want = gradients(grid(world), {});
    for (const char* name : {"embedding", "linear", "layer_norm", "rms_norm", "attention", "dropout", "*", "**"}) {
      CAPTURE(name);
      CHECK(gradients(grid(world), {name}) == want);
    }
  });
}

TEST_CASE("the peak is that of a block, not of all blocks") {
  auto peak = [](int64_t blocks, const std::function<void(Gpt&)>& prepare) {
    seed(1);
    Gpt model(16, 16, 2, blocks);
    prepare(model);
    Tensor ids = randint(0, 16, {8, 64}, {.seed = 1});
    int64_t before = memory_stats().active;
    reset_peak_memory();
    loss_of(model, ids, ids).backward();
    return memory_stats().peak - before;
  };
  int64_t kept = peak(8, nothing), again = peak(8, nn::set_full_recompute);
  CHECK(again < kept / 2);
  // One more block keeps one more input, and holds the gradients of its parameters.
  int64_t input = 8 * 64 * 16 * 4, parameters = 4 * (12 * 16 * 16 + 13 * 16) + 2048;
  CHECK(peak(9, nn::set_full_recompute) - again <= input + parameters);
}
