#include <cleave/autograd/redistribute.h>
#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>

#include <cstring>
#include <memory>
#include <optional>

#include "support/op_layouts.h"
#include "support/op_reference.h"
#include "support/placement.h"

namespace cleave::test {
namespace {

// The types of a call, kept alive for the RuleCall that refers to them.
struct Call {
  std::vector<TensorType> in, out;
  std::unique_ptr<bool[]> present, parameter;
  RuleCall rule;

  Call(const OpCase& c, const Reference& ref, const dist::MeshState& mesh, const ResolvedRow* row) {
    size_t n = c.inputs.size();
    present.reset(new bool[n]);
    parameter.reset(new bool[n]());
    for (size_t i = 0; i < n; ++i) {
      present[i] = !c.inputs[i].absent;
      const dist::LayoutData* layout =
          row ? row->in[i] : dist::DeviceMesh(&mesh).replicated(c.inputs[i].shape.rank()).data();
      in.push_back(present[i] ? TensorType{c.dtype(i, DType::f64), c.inputs[i].shape, layout} : TensorType{});
    }
    for (const Values& y : ref.outputs) out.push_back({y.dtype, y.shape, nullptr});
    rule = {c.op->name, in, {present.get(), n}, {parameter.get(), n}, out, c.attributes()};
  }
};

// The local computation of a row, as the dispatcher would do it.
std::vector<Tensor> run_row(const OpCase& c, const Call& call, const ResolvedRow& row, std::span<const Tensor> inputs) {
  std::vector<const Tensor*> in;
  for (const Tensor& x : inputs) in.push_back(&x);
  std::vector<OutputType> types;
  for (const TensorType& t : call.out) types.push_back({t.dtype, t.shape});
  alignas(16) std::array<std::byte, 256> bytes;
  Attributes attributes = c.attributes();
  if (c.op->localize) {
    std::memcpy(bytes.data(), attributes.data(), attributes.size());
    c.op->localize({in, types, row.in, row.out}, bytes.data());
    attributes = {bytes.data(), attributes.size()};
  }
  std::vector<Tensor> out;
  std::vector<const View*> views, results;
  for (size_t k = 0; k < types.size(); ++k) {
    Shape local = dist::local_box(types[k].shape, *row.out[k]).shape;
    if (c.op->view) {
      View view;
      if (!c.op->view(inputs[0].impl()->view, k, local, attributes, view)) throw Error("a dense block has no view");
      out.push_back(detail::make_view(inputs[0], view, types[k].shape, row.out[k]));
      continue;
    }
    out.push_back(detail::make_tensor(types[k].shape, local, types[k].dtype, Device::Cpu, row.out[k]));
  }
  if (c.op->view) return out;
  for (const Tensor& x : inputs) views.push_back(x.defined() ? &x.impl()->view : nullptr);
  for (const Tensor& y : out) results.push_back(&y.impl()->view);
  launch(c.op->kernel, Device::Cpu, c.op->name, {views, results, attributes});
  return out;
}

struct Seen {
  std::string line, error;
  std::vector<Held> outputs, dispatched;
  std::vector<dist::LayoutData> wanted;
};

Seen see(const OpCase& c, const Reference& ref, const ResolvedRow& row, const dist::MeshState& mesh,
         const std::string& prefix) {
  Seen seen;
  Call call(c, ref, mesh, &row);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    inputs.push_back(c.inputs[i].absent
                         ? Tensor()
                         : place(ref.inputs[i], c.dtype(i, DType::f64), row.in[i], mix(hash_of(c.name), i)));
  seen.line = prefix + describe_inputs(inputs);
  if (!selected(seen.line)) return {};
  for (const dist::LayoutData* l : row.out) seen.wanted.push_back(*l);
  try {
    for (const Tensor& y : run_row(c, call, row, inputs)) seen.outputs.push_back(hold(y));
    ResolvedRow chosen = resolve_row(c.op->layout.factors()(call.rule), call.rule, mesh, c.op->decompose != nullptr);
    if (chosen.in != row.in || chosen.out != row.out || chosen.decompose) return seen;
    dist::ForbidImplicitRedistribution forbid;
    dist::record_collectives(true);
    for (const Tensor& y : run_op(*c.op, c.attributes(), inputs)) seen.dispatched.push_back(hold(y));
    if (!dist::recorded_collectives().empty())
      seen.error = "the dispatcher communicated for inputs placed as the row says";
  } catch (const CommError&) { throw; } catch (const Error& e) {
    seen.error = std::string("threw ") + e.what();
  }
  return seen;
}

std::string fault_of(const OpCase& c, const Reference& ref, std::span<const Seen* const> ranks,
                     const dist::MeshState& mesh) {
  for (const Seen* seen : ranks)
    if (!seen->error.empty()) return seen->error;
  for (size_t k = 0; k < ref.outputs.size(); ++k)
    for (auto list : {&Seen::outputs, &Seen::dispatched}) {
      if ((ranks[0]->*list).empty()) continue;
      std::vector<const Held*> held;
      for (const Seen* seen : ranks) held.push_back(&(seen->*list)[k]);
      if (!same_layout(held[0]->layout, ranks[0]->wanted[k]))
        return "output " + std::to_string(k) + " has another layout than the row's";
      std::string d = check_held(held, mesh, ref.outputs[k], 1e-12 * c.slack());
      if (!d.empty()) return "output " + std::to_string(k) + ": " + d;
    }
  return "";
}

}  // namespace

void check_rows(std::span<const OpCase> cases, const std::vector<dist::MeshAxis>& axes, size_t limit, Report& report) {
  int ranks = 1;
  for (const auto& a : axes) ranks *= a.size;
  std::vector<Reference> references;
  for (const OpCase& c : cases) references.push_back(reference_of(c, DType::f64));
  std::vector<std::vector<Seen>> all(static_cast<size_t>(ranks));

  auto run_case = [&](dist::World& world, const dist::MeshState& mesh, const OpCase& c, const Reference& ref) {
    Call call(c, ref, mesh, nullptr);
    std::vector<ResolvedRow> rows = legal_rows(c.op->layout.factors()(call.rule), call.rule, mesh, false);
    std::vector<Seen>& mine = all[static_cast<size_t>(world.rank())];
    mine.clear();
    size_t start = rows.size() > limit ? mix(hash_of(c.name)) % rows.size() : 0, step = rows.size() / limit + 1;
    for (size_t j = 0, at = start; j < std::min(rows.size(), limit); ++j, at += step) {
      Seen seen =
          see(c, ref, rows[at % rows.size()], mesh, "row " + to_string(dist::DeviceMesh(&mesh)) + " " + c.name + " ");
      if (!seen.line.empty()) mine.push_back(std::move(seen));
    }
    world.communicator().barrier();
    for (size_t j = static_cast<size_t>(world.rank()); j < mine.size(); j += static_cast<size_t>(ranks)) {
      std::vector<const Seen*> seen;
      for (const auto& list : all) seen.push_back(&list[j]);
      report.count();
      std::string fault = fault_of(c, ref, seen, mesh);
      if (!fault.empty()) report.fail(seen[0]->line + ": " + fault);
    }
    world.communicator().barrier();
  };

  detail::set_poison(true);
  try {
    dist::run_ranks({.ranks = ranks, .checked = 1}, [&](dist::World& world) {
      dist::DeviceMesh mesh(world, axes);
      for (size_t k = 0; k < cases.size(); ++k)
        if (cases[k].op->layout.factors() && references[k].error.empty())
          run_case(world, *mesh.state(), cases[k], references[k]);
    });
  } catch (const std::exception& e) { report.fail(std::string("the ranks stopped: ") + e.what()); }
  detail::set_poison(false);
}

}  // namespace cleave::test
