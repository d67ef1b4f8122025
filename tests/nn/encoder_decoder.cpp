// An encoder-decoder transformer: attention to another sequence, padding masks, dropout, a tied table, smoothed labels;
// under ZeRO-3 with blocks that are computed again and micro-batches smaller than the mesh.
#include "nn/support.h"

#include <vector>

using namespace cleave;
using namespace cleave::test;

namespace {

constexpr int64_t kVocab = 19, kDim = 12, kHeads = 2, kSource = 7, kTarget = 5;

struct CrossAttention : nn::Module<CrossAttention> {
  nn::Linear q{this, "q", {kDim}, {kHeads, kDim / kHeads}}, kv{this, "kv", {kDim}, {2, kHeads, kDim / kHeads}};
  nn::Linear out{this, "out", {kHeads, kDim / kHeads}, {kDim}};
  CrossAttention(nn::ModuleBase* parent, std::string name) : Module(parent, name) {}
  Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& mask) const {
    auto pair = unbind(kv(memory), 2);
    Tensor y = scaled_dot_product_attention(transpose(q(x), 1, 2), transpose(pair[0], 1, 2), transpose(pair[1], 1, 2),
                                            {.mask = mask});
    return out(transpose(y, 1, 2));
  }
};

struct Encoder : nn::Module<Encoder> {
  nn::LayerNorm norm{this, "norm", kDim};
  nn::MultiHeadAttention attention{this, "attention", kDim, {.heads = kHeads, .dropout = 0.1}};
  nn::Linear up{this, "up", kDim, 17}, down{this, "down", 17, kDim};
  nn::Dropout drop{this, "drop", 0.1};
  Encoder(nn::ModuleBase* parent, std::string name) : Module(parent, name) {}
  Tensor forward(const Tensor& x, const Tensor& mask) const {
    Tensor y = x + drop(attention(norm(x), mask));
    return y + drop(down(gelu(up(y))));
  }
};

struct Decoder : nn::Module<Decoder> {
  nn::LayerNorm norm{this, "norm", kDim};
  nn::MultiHeadAttention attention{this, "attention", kDim, {.heads = kHeads, .causal = true}};
  CrossAttention cross{this, "cross"};
  nn::Dropout drop{this, "drop", 0.1};
  Decoder(nn::ModuleBase* parent, std::string name) : Module(parent, name) {}
  Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& source, const Tensor& target) const {
    Tensor y = x + drop(attention(norm(x), target));
    return y + drop(cross(y, memory, source));
  }
};

struct Translator : nn::Module<Translator> {
  nn::Embedding token{this, "token", kVocab, kDim}, position{this, "position", kSource, kDim};
  nn::List<Encoder> encoder{this, "encoder", 2};
  nn::List<Decoder> decoder{this, "decoder", 2};
  nn::Parameter head{this, "head", token.weight};
  static Tensor mask(const Tensor& ids) { return reshape(ne(ids, 0), {ids.size(0), 1, 1, ids.size(1)}); }
  Tensor embed(const Tensor& ids) const { return token(ids) + position(arange(ids.size(1), {.device = ids.device()})); }
  Tensor forward(const Tensor& source, const Tensor& target, const Tensor& labels) const {
    Tensor x = embed(source), y = embed(target), a = mask(source), b = mask(target);
    for (const Encoder& block : encoder) x = block(x, a);
    for (const Decoder& block : decoder) y = block(y, x, a, b);
    Tensor logits = matmul(y, transpose(head, 0, 1));
    return cross_entropy(transpose(logits, 1, 2), labels,
                         {.ignore_index = 0, .reduction = "sum", .label_smoothing = 0.1});
  }
};

// Ids from 1, then 0: row r is r mod 3 shorter than the whole.
Tensor padded(int64_t rows, int64_t length, uint64_t seed) {
  std::vector<int64_t> ids = to_vector<int64_t>(randint(1, kVocab, {rows, length}, {.seed = seed}));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = length - r % 3; i < length; ++i) ids[static_cast<size_t>(r * length + i)] = 0;
  return tensor(ids, {rows, length});
}

void train(const Translator& model, int steps, const std::function<Tensor(const Tensor&)>& place) {
  optim::AdamW opt(model.parameters(), {.lr = 3e-3, .weight_decay = 0.1});
  for (int step = 0; step < steps; ++step) {
    seed(50 + static_cast<uint64_t>(step));
    for (uint64_t part = 0; part < 3; ++part) {
      int64_t rows = part ? 2 : 3;
      auto ids = [&](int64_t length, uint64_t salt) {
        return place(padded(rows, length, 100 * static_cast<uint64_t>(step) + 10 * part + salt));
      };
      Tensor loss = model(ids(kSource, 1), ids(kTarget, 2), ids(kTarget, 3)) / 30.0;
      loss.backward({.sync = false});
    }
    optim::clip_grad_norm(model.parameters(), 1.0);
    opt.step();
    opt.zero_grad();
  }
}

struct Setting {
  std::vector<dist::MeshAxis> axes;
  const char* data;
  std::vector<std::string> over;
};

const nn::ShardingPlan tensor_parallel{.parameter = {{"token.weight", "tp, -"},
                                                     {"**.qkv.weight", "-, tp, -, -"},
                                                     {"**.q.weight", "tp, -, -"},
                                                     {"**.kv.weight", "-, tp, -, -"},
                                                     {"**.out.weight", "-, tp, -"},
                                                     {"**.up.weight", "tp, -"},
                                                     {"**.down.weight", "-, tp"}}};

void place_model(Translator& model, dist::DeviceMesh mesh, const Setting& setting) {
  nn::ShardingPlan plan = setting.axes.back().name == "tp" ? tensor_parallel : nn::ShardingPlan{};
  plan.forward = {{"input", {setting.data, setting.data, setting.data}}};
  nn::shard(model, mesh, nn::zero(model, mesh, plan, {.stage = 3, .axes = setting.over}));
  nn::set_recompute(model, {"encoder.*", "decoder.*"});
}

const Setting two{{{"dp", 2}}, "dp, -", {"dp"}}, three{{{"dp", 3}}, "dp, -", {"dp"}};
const Setting with_tp{{{"dp", 2}, {"tp", 2}}, "dp, -", {"dp"}};
const Setting hybrid{{{"rep", 2}, {"shard", 2}}, "rep.shard, -", {"shard"}};

}  // namespace

TEST_CASE("an encoder-decoder under ZeRO-3, recomputed, in uneven micro-batches: parameters are one device's") {
  for (const Setting& setting : {two, three, with_tp, hybrid}) {
    int ranks = 1;
    for (const auto& axis : setting.axes) ranks *= axis.size;
    CAPTURE(setting.data);
    on_ranks({ranks}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, setting.axes);
      seed(42);
      auto one = nn::build<Translator>({.dtype = DType::f64});
      seed(42);
      auto many = nn::build<Translator>({.dtype = DType::f64, .deferred = true});
      place_model(many, mesh, setting);
      train(one, 3, [](const Tensor& x) { return x; });
      train(many, 3, [&](const Tensor& x) { return dist::replicate(x, mesh); });
      auto expected = one.named_parameters(), got = many.named_parameters();
      REQUIRE(expected.size() == got.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(got[i].first);
        CHECK(distance(got[i].second.tensor(), expected[i].second.tensor()) < 1e-10);
      }
    });
  }
}

TEST_CASE("its dry run without elements takes what the run takes, within 1 %") {
  for (const Setting& setting : {three, with_tp}) {
    int ranks = 1;
    for (const auto& axis : setting.axes) ranks *= axis.size;
    on_ranks({ranks}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, setting.axes);
      auto peak = [&](Device device) {
        nn::MemoryRecorder memory(device);
        auto model = nn::build<Translator>({.device = device, .deferred = true});
        place_model(model, mesh, setting);
        memory.step();
        train(model, 2, [&](const Tensor& x) {
          return dist::replicate(device == Device::Cpu ? x : empty(x.shape(), {.dtype = DType::i64, .device = device}),
                                 mesh);
        });
        return static_cast<double>(memory.stop().peak);
      };
      double dry = peak(Device::Meta), real = peak(Device::Cpu);
      CHECK(std::abs(dry - real) <= 0.01 * real);
    });
  }
}
