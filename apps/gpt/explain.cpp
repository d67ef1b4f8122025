#include "gpt/explain.h"

#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/text.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/nn/build.h>
#include <cleave/nn/observer.h>
#include <cleave/nn/shard.h>
#include <cleave/ops/creation.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "gpt/memory.h"
#include "gpt/model.h"
#include "gpt/plans.h"

namespace gpt {

namespace dist = cleave::dist;
using cleave::bytes_text;

namespace {

std::string collective_text(const dist::CommEvent& e) {
  return fmt::format("{} over {}, {}", dist::to_string(e.kind), e.axis, bytes_text(e.bytes));
}

/// Collects what the calls of modules do, as lines of text by module.
class Recorder : public nn::CallObserver {
 public:
  void enter(const nn::ModuleBase& module) override {
    flush();
    open_.push_back(&module);
  }
  void placed(const nn::ModuleBase& module, const char* port, int position, const cleave::TensorType& from,
              const cleave::TensorType& to) override {
    std::string what = fmt::format("{} {}: {} -> {}, as the plan says", port, position, to_string(from), to_string(to));
    std::string how;
    for (const auto& e : fresh()) how += fmt::format("{}{}", how.empty() ? "" : "; ", collective_text(e));
    moves_[&module].push_back(fmt::format("{}: {}", what, how.empty() ? "no communication" : how));
  }
  void leave(const nn::ModuleBase& module, std::span<const Tensor> inputs, std::span<const Tensor> outputs) override {
    flush();
    open_.pop_back();
    std::string call;
    for (const Tensor& x : inputs)
      if (x.defined()) call += fmt::format("    in   {}\n", to_string(x.type()));
    for (const Tensor& y : outputs)
      if (y.defined()) call += fmt::format("    out  {}\n", to_string(y.type()));
    std::string& known = types_[&module];
    if (known.find(call) == std::string::npos) known += call;
  }

  /// The module's lines; equal for modules that do the same.
  std::string text(const nn::ModuleBase& module) const {
    std::string out;
    for (const auto& [name, p] : module.named_parameters_with_ties())
      if (name.find('.') == std::string::npos) out += fmt::format("    {}  {}\n", name, to_string(p.tensor().type()));
    if (auto found = types_.find(&module); found != types_.end()) out += found->second;
    if (auto found = moves_.find(&module); found != moves_.end())
      for (const auto& line : found->second) out += fmt::format("    {}\n", line);
    return out;
  }

 private:
  std::vector<dist::CommEvent> fresh() {
    auto all = dist::recorded_collectives();
    std::vector<dist::CommEvent> out(all.begin() + static_cast<std::ptrdiff_t>(seen_), all.end());
    seen_ = all.size();
    return out;
  }
  // What was communicated since the last look, outside placements, was needed by an op of the innermost module.
  void flush() {
    for (const auto& e : fresh())
      if (!open_.empty()) moves_[open_.back()].push_back(fmt::format("{} needs it: {}", e.label, collective_text(e)));
  }

  size_t seen_ = 0;
  std::vector<const nn::ModuleBase*> open_;
  std::map<const nn::ModuleBase*, std::string> types_;
  std::map<const nn::ModuleBase*, std::vector<std::string>> moves_;
};

// All below `module`, with names relative to it.
std::string tree_text(const Recorder& recorder, const nn::ModuleBase& module) {
  std::string out;
  for (const auto& [name, m] : module.named_modules()) {
    std::string lines = recorder.text(*m);
    if (!lines.empty()) out += fmt::format("  {}\n{}", name.empty() ? "(itself)" : name, lines);
  }
  return out;
}

// Blocks that do the same are shown once.
std::string modules_text(const Recorder& recorder, const Gpt& model) {
  std::string out = fmt::format("the model\n{}", recorder.text(model));
  auto section = [&](const std::string& title, const nn::ModuleBase& m) {
    out += fmt::format("{}\n{}", title, tree_text(recorder, m));
  };
  for (const nn::ModuleBase* child : model.children()) {
    if (child != &model.blocks) {
      section(child->path(), *child);
      continue;
    }
    for (int64_t i = 0; i < model.blocks.size();) {
      std::string text = tree_text(recorder, model.blocks[i]);
      int64_t end = i + 1;
      while (end < model.blocks.size() && tree_text(recorder, model.blocks[end]) == text) ++end;
      section(end - i == 1 ? fmt::format("blocks.{}", i) : fmt::format("blocks.{} to {}, each", i, end - 1),
              model.blocks[i]);
      i = end;
    }
  }
  return out;
}

// The collectives of a phase, equal ones together, in the order of their first.
std::string collectives_text(const std::vector<dist::CommEvent>& events, const std::string& phase) {
  std::vector<std::pair<std::string, int64_t>> lines;
  for (const auto& e : events) {
    if (e.phase != phase) continue;
    std::string line = fmt::format("{}, for {}", collective_text(e), e.label == "redistribute" ? "the plan" : e.label);
    auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == line; });
    if (found == lines.end())
      lines.emplace_back(line, 1);
    else
      ++found->second;
  }
  std::string out;
  for (const auto& [line, count] : lines) out += fmt::format("  {:4} x {}\n", count, line);
  return out.empty() ? "  nothing\n" : out;
}

std::string totals_text() {
  std::string out;
  double seconds = 0;
  for (const auto& c : dist::comm_counts()) {
    out += fmt::format("  {:9} {:8} {:14} {:4} x, {}\n", c.phase, c.axis, dist::to_string(c.kind), c.count,
                       bytes_text(c.bytes));
    seconds += c.seconds;
  }
  return out + fmt::format("  {:.3g} ms at 10 GB/s and 2 us per round\n", seconds * 1e3);
}

int64_t local_bytes(const nn::ModuleBase& model) {
  int64_t total = 0;
  for (const auto& p : model.parameters()) total += numel(p.tensor().local()) * size_of(p.dtype());
  return total;
}

std::string explained(const PlanOptions& o, const Placement& placement) {
  Gpt model = nn::build<Gpt>({.dtype = o.step.dtype, .device = cleave::Device::Meta, .deferred = true}, o.model);
  nn::shard(model, *placement.mesh, placement.plan);
  auto tokens = [&] {
    Tensor ids =
        cleave::empty({o.step.batch, o.model.seq}, {.dtype = cleave::DType::i64, .device = cleave::Device::Meta});
    return dist::replicate(ids, *placement.mesh);
  };
  dist::reset_comm_counts();
  dist::record_collectives(true);
  Recorder recorder;
  model(tokens(), tokens()).backward();
  auto events = dist::recorded_collectives();
  dist::record_collectives(false);

  std::string out =
      fmt::format("{:.2f} M parameters in {}, {} of {} on rank 0; batch {}, sequence {}; {}, plan {}\n\n",
                  static_cast<double>(parameter_count(model)) * 1e-6, to_string(o.step.dtype),
                  bytes_text(local_bytes(model)), bytes_text(parameter_count(model) * size_of(o.step.dtype)),
                  o.step.batch, o.model.seq, to_string(*placement.mesh), placement.name);
  out += modules_text(recorder, model);
  out += "\nforward, one step\n" + collectives_text(events, "forward");
  out += "backward, with the sync of gradients\n" + collectives_text(events, "backward");
  return out + "one step in total, bytes as rank 0 hands them in\n" + totals_text();
}

}  // namespace

std::string plan_text(const PlanOptions& o) {
  if (o.memory)
    return memory_text({.model = o.model, .step = o.step, .update = o.update, .mesh = o.mesh, .plan = o.plan},
                       {.overlap = o.overlap, .saving = o.saving ? Saving::behind : Saving::none}, o.limit);
  if (o.mesh.empty()) throw cleave::ValueError("gpt plan needs a mesh, for example --mesh dp=2,tp=4");
  int64_t ranks = 1;
  for (const auto& axis : parse_mesh(o.mesh)) ranks *= axis.size;
  if (ranks > (1 << 20))
    throw cleave::ValueError(fmt::format("--mesh {} has {} ranks; at most 2^20 can be simulated", o.mesh, ranks));
  std::string out;
  dist::simulate(static_cast<int>(ranks), 0, [&](dist::World& world) {
    Placement placement = place(world, o.model, o.mesh, o.plan);
    out = o.explain ? explained(o, placement) : to_string(placement.plan);
  });
  return out;
}

}  // namespace gpt
