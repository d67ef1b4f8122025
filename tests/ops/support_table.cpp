// docs/ops.md: what every registered op takes, found by running its samples and reading its rule. The test fails where
// the committed file is another; CLEAVE_WRITE_DOCS=1 writes it.
#include <doctest/doctest.h>

#include <cleave/core/error.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "support/op_case.h"

using namespace cleave;
using namespace cleave::test;

namespace {

const char* const kHead = R"(# Ops

Made by `tests/ops/support_table.cpp` from the registry; `CLEAVE_WRITE_DOCS=1 ctest -R ops/support_table` writes it again.

One row per operation record (`OpDef`); public functions are made of these. *Rule* names the dims of the first sample's
inputs and outputs (`.`: never split; `(ab)`: two factors of one dim). A dim with a letter may be split over any list of mesh
axes and stays split, except as *split dims* says. *Partial sums* lists the inputs through which a partial sum passes
without being reduced (`a+b`: only together); others, and those of bool and u8, are reduced first. All layouts work for
every op: what a rule does not allow is redistributed. Types without data (`meta`) work for every op.
*Autocast* is what a scope of `Autocast` does to floating inputs: `low` in its 16 bits, `f32` at least in f32, `widest` in the
widest among them; f64 and what is empty here stay as they come.

| op | rule | split dims | partial sums | dtypes | autocast | kernels | gradient |
|---|---|---|---|---|---|---|---|
)";

struct Call {
  std::vector<TensorType> in, out;
  std::unique_ptr<bool[]> present, parameter;
  RuleCall rule;
  Call(const OpCase& c, std::span<const Tensor> outputs) {
    size_t n = c.inputs.size();
    present.reset(new bool[n]);
    parameter.reset(new bool[n]());
    for (size_t i = 0; i < n; ++i) {
      present[i] = !c.inputs[i].absent;
      in.push_back({c.dtype(i, DType::f64), c.inputs[i].shape, nullptr});
    }
    for (const Tensor& y : outputs) out.push_back(y.type());
    rule = {c.op->name, in, {present.get(), n}, {parameter.get(), n}, out, c.attributes()};
  }
};

std::vector<Tensor> inputs_of(const OpCase& c, DType dtype) {
  std::vector<Values> values = is_floating(dtype) ? c.values : integer_values(c, dtype);
  std::vector<Tensor> out;
  for (size_t i = 0; i < values.size(); ++i)
    out.push_back(c.inputs[i].absent ? Tensor() : make_tensor(values[i], c.dtype(i, dtype)));
  return out;
}

// Letters by first appearance, so that the text does not depend on how a rule names them.
class Names {
 public:
  std::string of(Letter l) {
    auto [it, fresh] = names_.try_emplace(l, static_cast<char>('a' + names_.size()));
    return std::string(1, it->second);
  }
  std::string operand(const OperandLetters& letters) {
    std::string out;
    for (const DimLetters& d : letters) {
      std::string dim;
      for (Letter l : d) dim += of(l);
      out.append(d.size() > 1 ? "(" : "").append(d.empty() ? "." : dim).append(d.size() > 1 ? ")" : "");
    }
    return out.empty() ? "scalar" : out;
  }

 private:
  std::map<Letter, char> names_;
};

std::string join(const std::vector<std::string>& parts, const char* between) {
  std::string out;
  for (const std::string& p : parts) out += (out.empty() ? "" : between) + p;
  return out;
}

std::string rule_text(const Rule& rule, const Call& call, Names& names) {
  std::vector<std::string> in, out;
  for (size_t i = 0; i < rule.in.size(); ++i)
    if (call.present[i]) in.push_back(names.operand(rule.in[i]));
  for (const OperandLetters& o : rule.out) out.push_back(names.operand(o));
  std::string text = "`";
  return text.append(join(in, ", ")).append(" -> ").append(join(out, ", ")).append("`");
}

std::string split_text(const Rule& rule, const OpDef& op, Names& names) {
  std::vector<std::string> reduced, whole, parts;
  for (Letter l : rule.reduced) reduced.push_back(names.of(l));
  for (Letter l : rule.whole) whole.push_back(names.of(l));
  if (!reduced.empty()) parts.push_back(join(reduced, ", ") + ": partial sum");
  if (!whole.empty()) parts.push_back(join(whole, ", ") + (op.decompose ? ": small collectives" : ": gathered"));
  for (Letter l : rule.even) parts.push_back(names.of(l) + ": into equal blocks");
  return join(parts, "; ");
}

std::string partial_text(const Rule& rule) {
  std::vector<std::string> sets;
  for (uint32_t set : rule.linear) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < rule.in.size(); ++i)
      if (set >> i & 1) inputs.push_back(std::string(1, static_cast<char>('a' + i)));
    sets.push_back(join(inputs, "+"));
  }
  return join(sets, ", ");
}

std::string dtypes(const OpCase& c) {
  std::vector<std::string> out;
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8, DType::boolean}) {
    if (!is_floating(t) && !c.integers) continue;
    try {
      run_op(*c.op, c.attributes(), inputs_of(c, t));
      out.emplace_back(to_string(t));
    } catch (const DTypeError&) {}
  }
  std::string all = join(out, " ");
  if (all == "f64 f32 bf16 f16 i64 i32 u8 bool") return "all";
  return all == "f64 f32 bf16 f16" ? "floating" : all;
}

std::string precision(const OpDef& op) {
  switch (op.precision) {
    case Precision::low:
      return "low";
    case Precision::f32:
      return "f32";
    case Precision::widest:
      return "widest";
    case Precision::keeps:
      break;
  }
  return "";
}

std::string row(const OpDef& op) {
  std::vector<OpCase> cases = cases_of(op, op.name, Sizes::samples);
  const OpCase* shown = &cases.front();
  bool gradient = false;
  for (const OpCase& c : cases) {
    gradient = gradient || c.has_gradient;
    if (c.integers && !shown->integers) shown = &c;
  }
  std::vector<Tensor> outputs = run_op(op, shown->attributes(), inputs_of(*shown, DType::f64));
  Call call(*shown, outputs);
  std::string inputs, rule = "blocks that coincide", split = "others: box exchange", partial = "a";
  for (size_t i = 0; i < shown->inputs.size(); ++i)
    inputs += (i ? ", " : "") + std::string(1, static_cast<char>('a' + i));
  if (op.layout.factors()) {
    Rule r = op.layout.factors()(call.rule);
    Names names;
    rule = rule_text(r, call, names);
    split = split_text(r, op, names);
    partial = partial_text(r);
  }
  std::string kernels = op.view ? "view" : op.kernel.cuda ? "cpu cuda" : "cpu";
  return "| " + std::string(op.name) + "(" + inputs + ") | " + rule + " | " + split + " | " + partial + " | " +
         dtypes(*shown) + " | " + precision(op) + " | " + kernels + " | " + (gradient && op.backward ? "yes" : "") +
         " |\n";
}

std::string table() {
  std::string out = kHead;
  for (const auto& [op, name] : named_ops()) out += row(*op);
  return out;
}

}  // namespace

TEST_CASE("docs/ops.md is what the registry says") {
  const char* root = std::getenv("CLEAVE_SOURCE");
  std::string here = __FILE__,
              path = (root ? std::string(root) : here.substr(0, here.rfind("/tests/"))) + "/docs/ops.md";
  std::string wanted = table();
  if (std::getenv("CLEAVE_WRITE_DOCS")) std::ofstream(path) << wanted;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  CHECK_MESSAGE(text.str() == wanted, "docs/ops.md is out of date: run CLEAVE_WRITE_DOCS=1 ctest -R ops/support_table");
}
