#include "support/op_case.h"

#include <cleave/autograd/engine.h>
#include <cleave/autograd/sync.h>
#include <cleave/ops/registry.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace cleave::test {
namespace {

double on_grid(double x) { return std::round(x * 0x1p20) * 0x1p-20; }

// About normal, both signs, never nearer to 0 than 1/64: functions with a kink at 0 stay differentiable.
double normal(uint64_t r) {
  double x = 0;
  for (uint64_t i = 0; i < 4; ++i) x += unit(mix(r, i)) - 0.5;
  x = on_grid(1.7 * x);
  return std::abs(x) >= 0x1p-6 ? x : std::copysign(0x1p-6 + unit(r) * 0x1p-6, x);
}

std::vector<double> permutation(int64_t n, uint64_t seed) {
  std::vector<double> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0.0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mix(seed, i) % i]);
  return order;
}

Values fill(const SampleInput& input, uint64_t seed) {
  Values out{DType::f64, input.shape, {}};
  int64_t n = numel(input.shape);
  if (input.fill == Fill::index) out.dtype = DType::i64;
  if (input.fill == Fill::boolean) out.dtype = DType::boolean;
  if (input.fill == Fill::distinct) {
    out.v = permutation(n, seed);
    for (double& x : out.v) x = (x - static_cast<double>(n / 2)) * 0.25 + 0.125;
    return out;
  }
  for (int64_t i = 0; i < n; ++i) {
    uint64_t r = mix(seed, static_cast<uint64_t>(i));
    double x = 0;
    switch (input.fill) {
      case Fill::normal:
        x = on_grid(normal(r));
        break;
      case Fill::positive:
        x = on_grid(0.5 + 1.5 * unit(r));
        break;
      case Fill::index:
        x = static_cast<double>(r % static_cast<uint64_t>(std::max<int64_t>(1, input.high)));
        break;
      case Fill::boolean:
        x = static_cast<double>(r & 1);
        break;
      case Fill::distinct:
        break;
    }
    out.v.push_back(x);
  }
  return out;
}

OpCase case_of(const OpDef& op, const std::string& name, const Sample& sample) {
  OpCase c{&op, name, sample.inputs, sample.attributes, sample.has_gradient, sample.integers, sample.tolerance, {}};
  // Equal shapes get equal values: samples that differ in attributes alone must not be told apart by anything else.
  for (size_t i = 0; i < c.inputs.size(); ++i) c.values.push_back(fill(c.inputs[i], mix(hash_of(op.name), i)));
  return c;
}

// The case with one size replaced everywhere, if the op takes such inputs.
std::optional<OpCase> resized(const OpCase& c, int64_t from, int64_t to) {
  Sample sample{c.inputs, c.attribute_bytes, c.has_gradient, c.integers, c.tolerance};
  for (SampleInput& input : sample.inputs) {
    for (int64_t& n : input.shape)
      if (n == from) n = to;
    if (input.fill == Fill::index && input.high == from) input.high = to;
    if (input.fill == Fill::index && input.high == 0 && numel(input.shape) > 0) return std::nullopt;
  }
  OpCase out = case_of(*c.op, c.name + "/" + std::to_string(from) + "=" + std::to_string(to), sample);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < out.inputs.size(); ++i)
    inputs.push_back(out.inputs[i].absent ? Tensor() : make_tensor(out.values[i], out.dtype(i, DType::f64)));
  try {
    run_op(*out.op, out.attributes(), inputs);
  } catch (const Error&) { return std::nullopt; }
  return out;
}

void add_resized(std::vector<OpCase>& cases, const OpCase& c, Sizes sizes) {
  std::set<int64_t> all;
  for (const SampleInput& input : c.inputs) all.insert(input.shape.begin(), input.shape.end());
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (int64_t from : all)
    for (int64_t to : {0, 1, 2, 3, 11})
      if (from != to && from > 1) changes.emplace_back(from, to);
  if (sizes == Sizes::some && changes.size() > 2) {
    size_t start = mix(hash_of(c.name)) % changes.size();
    std::rotate(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(start), changes.end());
    changes.resize(2);
  }
  for (auto [from, to] : changes)
    if (auto other = resized(c, from, to)) cases.push_back(std::move(*other));
}

}  // namespace

bool OpCase::differentiable(size_t input) const {
  const SampleInput& s = inputs[input];
  return has_gradient && !s.absent && s.differentiable && s.fill != Fill::index && s.fill != Fill::boolean;
}

DType OpCase::dtype(size_t input, DType floating) const {
  Fill f = inputs[input].fill;
  return f == Fill::index ? DType::i64 : f == Fill::boolean ? DType::boolean : floating;
}

double OpCase::slack() const { return std::max(1.0, tolerance / 1e-12); }

std::vector<OpCase> cases_of(const OpDef& op, const std::string& name, Sizes sizes) {
  std::vector<OpCase> out;
  if (!op.samples) return out;
  std::vector<Sample> samples = op.samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    out.push_back(case_of(op, name + "." + std::to_string(i), samples[i]));
    if (sizes != Sizes::samples && !op.view && !op.localize) {  // else attributes may speak of sizes
      OpCase c = out.back();
      add_resized(out, c, sizes);
    }
  }
  return out;
}

std::vector<std::pair<const OpDef*, std::string>> named_ops() {
  std::vector<std::pair<const OpDef*, std::string>> out;
  std::map<std::string, int> seen;
  for (const OpDef* op : registered_ops()) {
    int n = seen[op->name]++;
    std::string name = op->name;
    if (n) name.append("'").append(std::to_string(n));
    out.emplace_back(op, name);
  }
  return out;
}

std::vector<OpCase> registered_cases(Sizes sizes) {
  std::vector<OpCase> out;
  for (const auto& [op, name] : named_ops()) {
    std::vector<OpCase> cases = cases_of(*op, name, sizes);
    std::move(cases.begin(), cases.end(), std::back_inserter(out));
  }
  return out;
}

std::vector<Values> integer_values(const OpCase& c, DType dtype) {
  std::vector<Values> out = c.values;
  for (size_t i = 0; i < out.size(); ++i) {
    if (c.dtype(i, dtype) != dtype || c.inputs[i].fill == Fill::index) continue;
    out[i].dtype = dtype;
    if (c.inputs[i].fill == Fill::distinct) {
      out[i].v = permutation(numel(out[i].shape), mix(hash_of(c.op->name), i));
      if (dtype == DType::boolean)
        for (double& x : out[i].v) x = static_cast<double>(static_cast<int64_t>(x) % 2);
      continue;
    }
    for (size_t k = 0; k < out[i].v.size(); ++k) {
      int64_t r = static_cast<int64_t>(mix(hash_of(c.op->name), i, k) % 9);
      bool positive = c.inputs[i].fill == Fill::positive;
      double x = static_cast<double>(positive ? 1 + r % 5 : dtype == DType::u8 ? r : r - 4);
      out[i].v[k] = dtype == DType::boolean ? static_cast<double>(positive || r % 2) : x;
    }
  }
  return out;
}

std::vector<Values> cotangents_for(const OpCase& c, std::span<const Tensor> outputs) {
  std::vector<Values> out;
  for (size_t k = 0; k < outputs.size(); ++k)
    out.push_back(fill({outputs[k].shape(), Fill::normal}, mix(hash_of(c.op->name), 100 + k)));
  return out;
}

std::vector<Tensor> run_op(const OpDef& op, Attributes attributes, std::span<const Tensor> inputs) {
  std::vector<const Tensor*> in;
  for (const Tensor& x : inputs) in.push_back(&x);
  std::vector<Tensor> out(static_cast<size_t>(op.outputs));
  dispatch(op, in, attributes, out);
  return out;
}

std::vector<Tensor> run_backward(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                 std::span<const Seed> seeds) {
  std::vector<autograd::Root> roots;
  for (size_t k = 0; k < outputs.size(); ++k)
    if (seeds[k].block.defined() && outputs[k].defined() && outputs[k].requires_grad())
      roots.push_back({outputs[k], {seeds[k].block, seeds[k].partial}});
  std::vector<Tensor> leaves = autograd::run_backward(roots, {.retain_graph = true});
  sync_gradients(leaves);
  std::vector<Tensor> out;
  for (const Tensor& x : inputs) out.push_back(x.defined() ? x.grad() : Tensor());
  for (const Tensor& x : inputs)
    if (x.defined()) x.zero_grad();
  return out;
}

std::string describe_inputs(std::span<const Tensor> inputs) {
  std::string out;
  for (size_t i = 0; i < inputs.size(); ++i)
    out += (i ? ", " : "") + (inputs[i].defined() ? to_string(inputs[i].type()) : "-");
  return out;
}

void Report::fail(const std::string& line) {
  std::lock_guard lock(mutex_);
  ++failures_;
  if (lines_.size() < 60 && ++by_kind_[line.substr(0, line.find('.'))] <= 4) lines_.push_back(line);
}

void Report::count(int64_t cases) {
  std::lock_guard lock(mutex_);
  cases_ += cases;
}

std::string Report::text() const {
  std::lock_guard lock(mutex_);
  std::string out;
  for (const std::string& line : lines_) out += "\n" + line;
  if (failures_ > static_cast<int64_t>(lines_.size()))
    out += "\n... " + std::to_string(failures_ - static_cast<int64_t>(lines_.size())) + " more";
  return out;
}

bool selecting() { return std::getenv("CLEAVE_CASE") != nullptr; }
bool selected(const std::string& text) {
  const char* wanted = std::getenv("CLEAVE_CASE");
  return !wanted || text.find(wanted) != std::string::npos;
}

}  // namespace cleave::test
