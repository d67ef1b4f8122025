// A model and its training under ZeRO plans, for the tests of nn/zero*.
#pragma once
#include "nn/support.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace cleave::test {

/// Parameters of every awkward kind: a table that is the head too, a linear used twice, one of no features, one that
/// some calls leave out, a scalar, a vector smaller than most meshes, and a frozen one.
struct OddNet : nn::Module<OddNet> {
  static constexpr int64_t kVocabulary = 7, kDim = 5;
  nn::Embedding table{this, "table", kVocabulary, kDim};
  nn::Linear twice{this, "twice", kDim, kDim};
  nn::Linear empty{this, "empty", kDim, 0};
  nn::Linear sometimes{this, "sometimes", kDim, kDim};
  nn::Parameter gain{this, "gain", Shape{}, nn::init::ones()};
  nn::Parameter frozen{this, "frozen", Shape{kDim}, nn::init::normal(0, 0.5)};
  nn::Parameter pair{this, "pair", Shape{2}, nn::init::normal(0, 0.5)};
  nn::Parameter head{this, "head", table.weight};
  bool all = true;
  Tensor forward(const Tensor& tokens) const {
    Tensor h = table(tokens);
    h = twice(tanh(twice(h))) * gain + frozen;
    h = h + sum(empty(h)) + sum(square(pair));
    if (all) h = h + tanh(sometimes(h));
    return matmul(h, transpose(head, 0, 1));
  }
};

/// How a run is split: an empty mesh is one device.
struct ZeroCase {
  std::string name;
  std::vector<dist::MeshAxis> axes;
  int stage = 0;
  std::vector<std::string> over;
  std::string batch = "-";
  bool tp = false;
  int64_t whole_below = 0;
};

inline nn::ShardingPlan plan_of(const ZeroCase& c, const nn::ModuleBase& model, dist::DeviceMesh mesh) {
  nn::ShardingPlan plan{.forward = {{"input", {c.batch + ", ..."}}}};
  if (c.tp) plan.parameter = {{"twice.weight", "tp, -"}, {"twice.bias", "tp"}, {"sometimes.weight", "-, tp"}};
  return c.stage ? nn::zero(model, mesh, plan, {.stage = c.stage, .axes = c.over, .whole_below = c.whole_below}) : plan;
}

using Values = std::vector<std::vector<double>>;

constexpr int64_t kRows = 6;

/// Tokens of a micro-batch; targets are those of the next.
inline Tensor tokens(int step, int micro) {
  std::vector<int64_t> out;
  for (int64_t row = 0; row < kRows; ++row)
    out.push_back((step * 5 + micro * 3 + row * row + row) % OddNet::kVocabulary);
  return tensor(out, {kRows});
}

/// The global values of the parameters after steps of AdamW, each over some micro-batches; one leaves a parameter out.
inline Values train_odd(const ZeroCase& c, dist::World* world, int micro_batches, int steps) {
  seed(3);
  auto net = nn::build<OddNet>({.dtype = DType::f64});
  net.frozen.set_requires_grad(false);
  std::optional<dist::DeviceMesh> mesh;
  if (world) {
    mesh.emplace(*world, c.axes);
    nn::shard(net, *mesh, plan_of(c, net, *mesh));
  }
  auto place = [&](const Tensor& t) { return mesh ? dist::distribute(t, mesh->layout(c.batch + ", ...")) : t; };
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  for (int step = 0; step < steps; ++step) {
    for (int micro = 0; micro < micro_batches; ++micro) {
      net.all = micro != 1;
      Tensor loss =
          cross_entropy(net(place(tokens(step, micro))), place(tokens(step, micro + 1)), {.reduction = "sum"});
      (loss * (1.0 / static_cast<double>(kRows * micro_batches))).backward({.sync = micro + 1 == micro_batches});
    }
    opt.step();
    opt.zero_grad();
  }
  Values out;
  for (const nn::Parameter& p : net.parameters()) out.push_back(to_vector<double>(p.tensor()));
  return out;
}

inline double largest(const std::vector<double>& x) {
  double m = 0;
  for (double v : x) m = std::max(m, std::abs(v));
  return m;
}

/// The largest difference, of each tensor relative to the larger of its largest entry and 1e-3 of the model's.
inline double relative_distance(const Values& a, const Values& b) {
  double model = 0, worst = a.size() == b.size() ? 0 : INFINITY;
  for (const auto& x : b) model = std::max(model, largest(x));
  for (size_t t = 0; t < a.size() && t < b.size(); ++t) {
    if (a[t].size() != b[t].size()) return INFINITY;
    double unit = std::max(largest(b[t]), 1e-3 * model);
    for (size_t i = 0; i < a[t].size(); ++i) {
      double d = std::abs(a[t][i] - b[t][i]) / unit;
      worst = std::max(worst, std::isnan(d) ? INFINITY : d);
    }
  }
  return worst;
}

/// Bytes that a rank sends in the collectives of `events`, by the ring algorithms, on axes of size(axis) ranks.
inline double sent(const std::vector<dist::CommEvent>& events, const std::function<int(const std::string&)>& size) {
  double bytes = 0;
  for (const dist::CommEvent& e : events) {
    double n = size(e.axis), b = static_cast<double>(e.bytes);
    if (e.kind == dist::CollectiveKind::all_reduce) bytes += 2 * b * (n - 1) / n;
    if (e.kind == dist::CollectiveKind::reduce_scatter) bytes += b * (n - 1) / n;
    if (e.kind == dist::CollectiveKind::all_gather) bytes += b * (n - 1);  // counted: the part it gave
  }
  return bytes;
}

}  // namespace cleave::test
