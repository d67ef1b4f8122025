#include "support/op_layouts.h"

#include <cleave/autograd/gradient_rules.h>
#include <cleave/core/allocator.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>

#include <optional>
#include <set>

#include "dist/all_layouts.h"
#include "support/op_checks.h"
#include "support/op_reference.h"
#include "support/placement.h"

namespace cleave::test {
namespace {

using dist::Layout;
using dist::LayoutData;

constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                             DType::i64, DType::i32, DType::u8,   DType::boolean};

// By input the number of its layout among all of its rank, and what else varies.
using Choice = std::vector<size_t>;

struct Plan {
  DType dtype = DType::f64;
  uint32_t live = ~0u;      // outputs that get a cotangent
  uint32_t needs = ~0u;     // inputs that require grad
  uint32_t parameters = 0;  // inputs that count as parameters
  Form form = Form::dense;
  uint64_t seed = 0;
};

// What one rank saw of one combination.
struct Seen {
  std::string line, error;
  std::vector<std::optional<Held>> outputs, gradients;
  std::vector<LayoutData> inputs;
  std::string collectives;
};

struct References {
  std::vector<Reference> by_dtype;
  const Reference& of(DType dtype) const {
    for (size_t d = 0; d < by_dtype.size(); ++d)
      if (kDTypes[d] == dtype) return by_dtype[d];
    return by_dtype[0];
  }
};

std::vector<Choice> combinations(const OpCase& c, std::span<const std::vector<Layout>> layouts,
                                 const Breadth& breadth) {
  int64_t product = 1;
  for (const auto& l : layouts) product *= static_cast<int64_t>(l.size());
  std::set<Choice> out;
  size_t n = layouts.size();
  if (product <= breadth.exhaustive) {
    for (int64_t k = 0; k < product; ++k) {
      Choice choice(n);
      int64_t rest = k;
      for (size_t i = 0; i < n; rest /= static_cast<int64_t>(layouts[i].size()), ++i)
        choice[i] = static_cast<size_t>(rest) % layouts[i].size();
      out.insert(choice);
    }
    return {out.begin(), out.end()};
  }
  // By shapes, not by sample: samples that differ in attributes alone get the same layouts and meet in the cache.
  uint64_t seed = hash_of(c.op->name);
  for (const SampleInput& input : c.inputs) seed = mix(seed, hash_of(to_string(input.shape)));
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < std::min(layouts[i].size(), breadth.single); ++k) {
      Choice choice(n, 0);  // layout 0 is R
      choice[i] = layouts[i].size() <= breadth.single ? k : mix(seed, i, k) % layouts[i].size();
      out.insert(choice);
    }
  for (int64_t k = 0; k < breadth.sampled; ++k) {
    Choice choice(n);
    for (size_t i = 0; i < n; ++i) choice[i] = mix(seed, static_cast<uint64_t>(k), i) % layouts[i].size();
    out.insert(choice);
  }
  return {out.begin(), out.end()};
}

Plan plan_of(const OpCase& c, const Choice& choice, bool partial) {
  Plan p;
  uint64_t r = hash_of(c.op->name);
  for (size_t l : choice) r = mix(r, l);
  p.seed = r;
  // Half of the combinations in f64. Sums of halves round, which functions with jumps would show, and sums of bools are
  // no bools and those of u8 wrap: no partial inputs there.
  constexpr DType kByChance[] = {DType::f32, DType::f32, DType::bf16,   DType::f16,
                                 DType::i64, DType::i32, DType::boolean};
  uint64_t chance = mix(r, 1) % 14;
  if (chance < 7) p.dtype = kByChance[chance];
  bool sums = size_of(p.dtype) >= 4;
  if ((partial && !sums) || (!is_floating(p.dtype) && !c.integers)) p.dtype = DType::f64;
  if (mix(r, 2) % 4 == 0) p.form = Form::strided;
  if (mix(r, 3) % 4 == 0) p.needs = static_cast<uint32_t>(mix(r, 4));
  if (mix(r, 5) % 3 == 0) p.live = static_cast<uint32_t>(mix(r, 6));
  p.parameters = static_cast<uint32_t>(mix(r, 7));
  return p;
}

std::string collectives_made() {
  std::string out;
  for (const dist::CommEvent& e : dist::recorded_collectives())
    out += std::string(dist::to_string(e.kind)) + "(" + e.axis + ", " + std::string(to_string(e.dtype)) + ", " +
           e.label + ") ";
  return out;
}

void run_combination(const OpCase& c, const Reference& ref, const Plan& plan, std::span<const Tensor> inputs,
                     Seen& seen) {
  dist::record_collectives(true);
  std::vector<Tensor> outputs = run_op(*c.op, c.attributes(), inputs);
  // Statistics that an op keeps for its own backward are left out where it runs decomposed.
  for (size_t k = 0; k < outputs.size(); ++k)
    seen.outputs.push_back(outputs[k].defined() || (c.op->differentiable_outputs >> k & 1)
                               ? std::optional(hold(outputs[k]))
                               : std::nullopt);
  std::vector<Seed> seeds(outputs.size());
  bool any = false;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!(plan.live >> k & 1) || !outputs[k].defined() || !outputs[k].requires_grad()) continue;
    const LayoutData* layout = outputs[k].impl()->layout;
    bool as_terms = mix(plan.seed, 50 + k) % 3 == 0 && !is_half(plan.dtype);
    seeds[k].partial = as_terms ? autograd::replicated_axes(layout) & static_cast<uint32_t>(mix(plan.seed, 60 + k)) : 0;
    const LayoutData* held = autograd::gradient_layout(layout, seeds[k].partial);
    seeds[k].block = place(ref.cotangents[k], outputs[k].dtype(), held, plan.seed + k, plan.form).local();
    any = true;
  }
  seen.gradients.resize(inputs.size());
  if (any) {
    std::vector<Tensor> gradients = run_backward(inputs, outputs, seeds);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (gradients[i].defined()) seen.gradients[i] = hold(gradients[i]);
  }
  seen.collectives = collectives_made();
}

Seen see(const OpCase& c, const Reference& ref, const Plan& plan, std::span<const std::vector<Layout>> layouts,
         const Choice& choice, const std::string& prefix) {
  Seen seen;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    seen.inputs.push_back(layouts[i].empty() ? LayoutData{} : *layouts[i][choice[i]].data());
    if (c.inputs[i].absent) {
      inputs.emplace_back();
      continue;
    }
    inputs.push_back(
        place(ref.inputs[i], c.dtype(i, plan.dtype), layouts[i][choice[i]].data(), mix(plan.seed, i), plan.form));
    if (c.differentiable(i) && is_floating(plan.dtype) && (plan.needs >> i & 1)) inputs[i].set_requires_grad(true);
    inputs[i].impl()->parameter = plan.parameters >> i & 1;
  }
  seen.line = prefix + " " + describe_inputs(inputs);
  try {
    run_combination(c, ref, plan, inputs, seen);
  } catch (const CommError& e) { throw CommError(seen.line + ": " + e.what()); } catch (const Error& e) {
    seen.error = e.what();
  }
  return seen;
}

std::string gradient_fault(const OpCase& c, const Reference& ref, const Plan& plan, std::span<const Seen* const> ranks,
                           const dist::MeshState& mesh, double tolerance) {
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.differentiable(i) || !is_floating(plan.dtype) || !(plan.needs >> i & 1)) continue;
    std::string name = "gradient of input " + std::to_string(i) + ": ";
    std::vector<const Held*> held;
    for (const Seen* seen : ranks)
      if (seen->gradients[i]) held.push_back(&*seen->gradients[i]);
    uint32_t live = plan.live & c.op->differentiable_outputs;
    bool expected = false;
    for (size_t k = 0; k < ref.outputs.size(); ++k)
      expected = expected || ((live >> k & 1) && !ref.gradients[i][k].v.empty());
    if (held.empty()) {
      for (double x : ref.gradient(i, live).v)
        if (x != 0) return name + "missing";
      continue;
    }
    if (held.size() != ranks.size()) return name + "missing on some ranks";
    LayoutData wanted = ranks[0]->inputs[i];
    wanted.partial = 0;
    if (!same_layout(held[0]->layout, wanted)) return name + "not in the layout of the input with partial axes R";
    std::string d = check_held(held, mesh, ref.gradient(i, live), tolerance);
    if (!d.empty()) return name + d;
  }
  return "";
}

std::string fault_of(const OpCase& c, const Reference& ref, const Plan& plan, std::span<const Seen* const> ranks,
                     const dist::MeshState& mesh) {
  for (const Seen* seen : ranks) {
    if (seen->error != ranks[0]->error)
      return "other errors on other ranks: \"" + ranks[0]->error + "\" and \"" + seen->error + "\"";
    if (seen->collectives != ranks[0]->collectives)
      return "other collectives on other ranks: " + ranks[0]->collectives + "and " + seen->collectives;
  }
  if (!ranks[0]->error.empty()) return "threw " + ranks[0]->error;
  auto tolerance_of = [&](DType dtype) {
    return (dtype == DType::f64 ? 1e-12 : 4 * default_tolerance(dtype)) * c.slack();
  };
  for (size_t k = 0; k < ref.outputs.size(); ++k) {
    std::vector<const Held*> held;
    for (const Seen* seen : ranks)
      if (seen->outputs[k]) held.push_back(&*seen->outputs[k]);
    if (held.empty()) continue;
    if (held.size() != ranks.size()) return "output " + std::to_string(k) + " is missing on some ranks";
    std::string d = check_held(held, mesh, ref.outputs[k],
                               tolerance_of(is_floating(plan.dtype) ? plan.dtype : ref.outputs[k].dtype));
    if (!d.empty()) return "output " + std::to_string(k) + ": " + d;
  }
  return gradient_fault(c, ref, plan, ranks, mesh, 4 * tolerance_of(plan.dtype));
}

class LayoutRun {
 public:
  LayoutRun(std::span<const OpCase> cases, const std::vector<dist::MeshAxis>& axes, const Breadth& breadth,
            Report& report)
      : cases_(cases), axes_(axes), breadth_(breadth), report_(report) {
    for (const auto& a : axes) ranks_ *= a.size;
    seen_.resize(static_cast<size_t>(ranks_));
    for (const OpCase& c : cases) {
      References refs;
      for (DType dtype : kDTypes) refs.by_dtype.push_back(reference_of(c, dtype));
      references_.push_back(std::move(refs));
    }
  }

  void run() {
    detail::set_poison(true);
    try {
      dist::run_ranks({.ranks = ranks_, .checked = 1}, [&](dist::World& world) { run_rank(world); });
    } catch (const std::exception& e) { report_.fail(std::string("the ranks stopped: ") + e.what()); }
    detail::set_poison(false);
  }

 private:
  void run_rank(dist::World& world) {
    dist::DeviceMesh mesh(world, axes_);
    for (size_t k = 0; k < cases_.size(); ++k) run_case(world, mesh, cases_[k], references_[k]);
  }

  void run_case(dist::World& world, dist::DeviceMesh mesh, const OpCase& c, const References& refs) {
    if (!refs.by_dtype[0].error.empty()) {
      if (world.rank() == 0) report_.fail(c.name + " on one device: " + refs.by_dtype[0].error);
      return;
    }
    std::vector<std::vector<Layout>> layouts;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      bool partials = is_floating(c.dtype(i, DType::f64));
      layouts.push_back(c.inputs[i].absent ? std::vector<Layout>(1)
                                           : all_layouts(mesh, c.inputs[i].shape.rank(), partials));
    }
    for (size_t i = 0; i < layouts.size(); ++i)
      if (c.inputs[i].absent) layouts[i] = {mesh.replicated(0)};
    std::vector<Seen>& mine = seen_[static_cast<size_t>(world.rank())];
    mine.clear();
    std::vector<Plan> plans;
    std::string prefix = to_string(mesh) + " " + c.name;
    for (const Choice& choice : combinations(c, layouts, breadth_)) {
      bool partial = false;
      for (size_t i = 0; i < choice.size(); ++i) partial = partial || layouts[i][choice[i]].data()->partial;
      Plan plan = plan_of(c, choice, partial);
      Seen seen = see_if_selected(c, refs.of(plan.dtype), plan, layouts, choice, prefix);
      if (seen.line.empty()) continue;
      mine.push_back(std::move(seen));
      plans.push_back(plan);
    }
    world.communicator().barrier();
    judge(world, *mesh.state(), c, refs, plans);
    world.communicator().barrier();
  }

  Seen see_if_selected(const OpCase& c, const Reference& ref, const Plan& plan,
                       std::span<const std::vector<Layout>> layouts, const Choice& choice, const std::string& prefix) {
    if (selecting()) {
      std::string line = prefix + " ";
      for (size_t i = 0; i < choice.size(); ++i) {
        TensorType type{c.dtype(i, plan.dtype), c.inputs[i].shape, layouts[i][choice[i]].data()};
        line += (i ? ", " : "") + (c.inputs[i].absent ? "-" : to_string(type));
      }
      if (!selected(line)) return {};
    }
    return see(c, ref, plan, layouts, choice, prefix);
  }

  // The ranks share the work of comparing what all of them saw.
  void judge(dist::World& world, const dist::MeshState& mesh, const OpCase& c, const References& refs,
             std::span<const Plan> plans) {
    for (size_t j = static_cast<size_t>(world.rank()); j < plans.size(); j += static_cast<size_t>(ranks_)) {
      std::vector<const Seen*> all;
      for (const auto& seen : seen_) all.push_back(&seen[j]);
      report_.count();
      std::string fault = fault_of(c, refs.of(plans[j].dtype), plans[j], all, mesh);
      if (!fault.empty()) report_.fail(all[0]->line + ": " + fault);
    }
  }

  std::span<const OpCase> cases_;
  const std::vector<dist::MeshAxis>& axes_;
  Breadth breadth_;
  Report& report_;
  int ranks_ = 1;
  std::vector<References> references_;
  std::vector<std::vector<Seen>> seen_;  // by rank
};

}  // namespace

void check_layouts(std::span<const OpCase> cases, const std::vector<dist::MeshAxis>& axes, const Breadth& breadth,
                   Report& report) {
  LayoutRun(cases, axes, breadth, report).run();
}

}  // namespace cleave::test
