#include "support/op_checks.h"

#include <cleave/core/allocator.h>
#include <cleave/core/primitives.h>

#include <cmath>

namespace cleave::test {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};
constexpr DType kIntegers[] = {DType::i64, DType::i32, DType::u8, DType::boolean};

struct Poison {
  Poison() { detail::set_poison(true); }
  ~Poison() { detail::set_poison(false); }
};

std::vector<Tensor> make_inputs(const OpCase& c, std::span<const Values> values, DType floating,
                                Form form = Form::dense, DType index = DType::i64) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < values.size(); ++i) {
    DType dtype = c.inputs[i].fill == Fill::index ? index : c.dtype(i, floating);
    out.push_back(c.inputs[i].absent ? Tensor() : make_tensor(values[i], dtype, form));
  }
  return out;
}

std::vector<Values> rounded_all(const OpCase& c, DType dtype) {
  std::vector<Values> out;
  for (size_t i = 0; i < c.values.size(); ++i) out.push_back(rounded(c.values[i], c.dtype(i, dtype)));
  return out;
}

// One step of the check under its own line: runs `body`, which returns what differs, and reports that or an error.
template <class Body>
void step(const OpCase& c, Report& report, const std::string& what, Body&& body) {
  std::string line = c.name + " " + what;
  if (!selected(line)) return;
  report.count();
  std::string fault;
  try {
    fault = body();
  } catch (const std::exception& e) { fault = std::string("threw ") + e.what(); }
  if (fault.empty()) return;
  std::string shapes;
  for (const SampleInput& input : c.inputs) shapes.append(" ").append(input.absent ? "-" : to_string(input.shape));
  report.fail(line + shapes + ": " + fault);
}

std::string compare(std::span<const Tensor> got, std::span<const Tensor> want, double tolerance) {
  for (size_t k = 0; k < want.size(); ++k) {
    std::string d = difference(values_of(got[k]), values_of(want[k]), tolerance);
    if (!d.empty()) return "output " + std::to_string(k) + ": " + d;
  }
  return "";
}

std::string unwritten(const OpCase& c) {
  std::vector<Tensor> inputs = make_inputs(c, c.values, DType::f64);
  std::vector<Tensor> before = run_op(*c.op, c.attributes(), inputs);
  Poison on;
  std::vector<Tensor> poisoned = run_op(*c.op, c.attributes(), inputs);
  for (size_t k = 0; k < before.size(); ++k) {
    std::string d = bit_difference(poisoned[k], before[k]);
    if (!d.empty()) return "output " + std::to_string(k) + " with fresh buffers of NaN: " + d;
  }
  return "";
}

std::string meta_types(const OpCase& c) {
  std::vector<Tensor> inputs = make_inputs(c, c.values, DType::f32), metas;
  for (const Tensor& x : inputs)
    metas.push_back(x.defined() ? detail::make_tensor(x.shape(), x.dtype(), Device::Meta) : Tensor());
  std::vector<Tensor> want = run_op(*c.op, c.attributes(), inputs), got = run_op(*c.op, c.attributes(), metas);
  for (size_t k = 0; k < want.size(); ++k) {
    if (got[k].device() != Device::Meta) return "output " + std::to_string(k) + " is not on meta";
    if (!(got[k].type() == want[k].type()))
      return to_string(got[k].type()) + " instead of " + to_string(want[k].type());
  }
  return "";
}

std::string float_values(const OpCase& c, DType dtype, Form form) {
  std::vector<Values> values = rounded_all(c, dtype);
  if (form == Form::expanded || form == Form::expanded_last)  // what stride 0 says must not depend on dim 0
    for (size_t i = 0; i < values.size(); ++i) values[i] = values_of(make_tensor(values[i], c.dtype(i, dtype), form));
  std::vector<Tensor> want = run_op(*c.op, c.attributes(), make_inputs(c, values, DType::f64));
  std::vector<Tensor> got = run_op(*c.op, c.attributes(), make_inputs(c, values, dtype, form));
  return compare(got, want, default_tolerance(dtype) * c.slack());
}

// Integers are computed modulo their size; bool is "not 0".
Values wrapped(Values v, DType dtype) {
  v.dtype = dtype;
  for (double& x : v.v) {
    if (dtype == DType::boolean) x = x != 0;
    if (dtype == DType::u8) x = static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(x)));
  }
  return v;
}

std::string integer_results(const OpCase& c, DType dtype) {
  std::vector<Values> values = integer_values(c, dtype);
  std::vector<Tensor> want = run_op(*c.op, c.attributes(), make_inputs(c, values, DType::f64));
  std::vector<Tensor> got = run_op(*c.op, c.attributes(), make_inputs(c, values, dtype));
  for (size_t k = 0; k < want.size(); ++k) {
    bool exact = !is_floating(got[k].dtype());
    Values expected = values_of(want[k]), results = values_of(got[k]);
    for (size_t i = 0; i < results.v.size(); ++i)  // past 2^53 neither integers wrap as f64 rounds
      if (std::abs(expected.v[i]) > 0x1p53) results.v[i] = expected.v[i] = 0;
    std::string d = difference(results, exact ? wrapped(expected, got[k].dtype()) : expected,
                               exact ? 0 : default_tolerance(got[k].dtype()) * c.slack());
    if (!d.empty()) return "output " + std::to_string(k) + ": " + d;
  }
  return "";
}

bool has_fill(const OpCase& c, std::initializer_list<Fill> fills) {
  for (const SampleInput& input : c.inputs)
    if (!input.absent && std::find(fills.begin(), fills.end(), input.fill) != fills.end()) return true;
  return false;
}

bool floating(const OpCase& c) { return has_fill(c, {Fill::normal, Fill::positive, Fill::distinct}); }

std::string name_of(DType dtype) { return std::string(to_string(dtype)); }

}  // namespace

double default_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-13;
    case DType::f32:
      return 4e-6;
    case DType::bf16:
      return 0x1p-7;
    case DType::f16:
      return 0x1p-9;
    default:
      return 0;
  }
}

void check_values(const OpCase& c, Report& report) {
  step(c, report, "f64 unwritten elements", [&] { return unwritten(c); });
  step(c, report, "meta", [&] { return meta_types(c); });
  if (floating(c))
    for (DType dtype : kFloats) step(c, report, name_of(dtype), [&] { return float_values(c, dtype, Form::dense); });
  for (DType dtype : {DType::f64, DType::f32}) {
    step(c, report, name_of(dtype) + " strided", [&] { return float_values(c, dtype, Form::strided); });
    if (!has_fill(c, {Fill::distinct})) {
      step(c, report, name_of(dtype) + " expanded", [&] { return float_values(c, dtype, Form::expanded); });
      if (dtype == DType::f64)  // rows without variance would blow up the rounding of f32
        step(c, report, "f64 expanded along the last dim", [&] { return float_values(c, dtype, Form::expanded_last); });
    }
    if (!floating(c)) break;
  }
  if (c.integers)
    for (DType dtype : kIntegers) step(c, report, name_of(dtype), [&] { return integer_results(c, dtype); });
  if (has_fill(c, {Fill::index}))
    step(c, report, "i32 indices", [&] {
      std::vector<Tensor> want = run_op(*c.op, c.attributes(), make_inputs(c, c.values, DType::f64));
      return compare(run_op(*c.op, c.attributes(), make_inputs(c, c.values, DType::f64, Form::dense, DType::i32)), want,
                     0);
    });
}

namespace {

// Leaves of the tape for one call, its outputs, and cotangents for them.
struct Taped {
  std::vector<Tensor> inputs, outputs;
  std::vector<Seed> seeds;
};

Taped tape(const OpCase& c, std::span<const Values> values, DType dtype, Form form, std::span<const Values> cotangents,
           Form cotangent_form = Form::dense) {
  Taped t{make_inputs(c, values, dtype, form), {}, {}};
  for (size_t i = 0; i < t.inputs.size(); ++i)
    if (c.differentiable(i)) t.inputs[i].set_requires_grad(true);
  t.outputs = run_op(*c.op, c.attributes(), t.inputs);
  for (size_t k = 0; k < t.outputs.size(); ++k)
    t.seeds.push_back({is_floating(t.outputs[k].dtype())
                           ? make_tensor(cotangents[k], t.outputs[k].dtype(), cotangent_form)
                           : Tensor()});
  return t;
}

double loss(const OpCase& c, std::span<const Values> values, std::span<const Seed> seeds,
            std::span<const Values> cotangents) {
  std::vector<Tensor> outputs = run_op(*c.op, c.attributes(), make_inputs(c, values, DType::f64));
  double sum = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!seeds[k].block.defined() || !(c.op->differentiable_outputs >> k & 1)) continue;
    Values y = values_of(outputs[k]);
    for (size_t i = 0; i < y.v.size(); ++i) sum += y.v[i] * cotangents[k].v[i];
  }
  return sum;
}

std::string finite_differences(const OpCase& c, std::span<const Values> cotangents, uint32_t live) {
  Taped t = tape(c, c.values, DType::f64, Form::dense, cotangents);
  for (size_t k = 0; k < t.seeds.size(); ++k)
    if (!(live >> k & 1)) t.seeds[k].block = {};
  std::vector<Tensor> gradients;
  {
    Poison on;
    gradients = run_backward(t.inputs, t.outputs, t.seeds);
  }
  std::vector<Values> values = c.values;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!c.differentiable(i)) continue;
    Values analytic{DType::f64, values[i].shape, std::vector<double>(values[i].v.size())};
    if (gradients[i].defined()) analytic = values_of(gradients[i]);
    Values numeric = analytic;
    for (size_t k = 0; k < values[i].v.size(); ++k) {
      double x = values[i].v[k], step = 1e-6 * std::max(1.0, std::abs(x));
      values[i].v[k] = x + step;
      double above = loss(c, values, t.seeds, cotangents);
      values[i].v[k] = x - step;
      double below = loss(c, values, t.seeds, cotangents);
      values[i].v[k] = x;
      numeric.v[k] = (above - below) / (2 * step);
    }
    std::string d = difference(analytic, numeric, 2e-8 * c.slack());
    if (!d.empty()) return "gradient of input " + std::to_string(i) + ": " + d;
  }
  return "";
}

std::string other_gradients(const OpCase& c, std::span<const Values> cotangents, DType dtype, Form form,
                            Form cotangent_form) {
  std::vector<Values> values = rounded_all(c, dtype), rounded_cotangents;
  for (const Values& v : cotangents) rounded_cotangents.push_back(values_of(make_tensor(v, dtype, cotangent_form)));
  Taped want = tape(c, values, DType::f64, Form::dense, rounded_cotangents);
  Taped got = tape(c, values, dtype, form, rounded_cotangents, cotangent_form);
  std::vector<Tensor> a = run_backward(got.inputs, got.outputs, got.seeds);
  std::vector<Tensor> b = run_backward(want.inputs, want.outputs, want.seeds);
  for (size_t i = 0; i < a.size(); ++i) {
    std::string name = "gradient of input " + std::to_string(i) + ": ";
    if (a[i].defined() != b[i].defined()) return name + (a[i].defined() ? "there" : "missing");
    if (!a[i].defined()) continue;
    DType held = is_half(dtype) ? DType::f32 : dtype;
    if (a[i].dtype() != held) return name + to_string(a[i].type()) + ", should be " + name_of(held);
    std::string d = difference(values_of(a[i]), values_of(b[i]), 4 * default_tolerance(dtype) * c.slack());
    if (!d.empty()) return name + d;
  }
  return "";
}

}  // namespace

void check_gradients(const OpCase& c, Report& report) {
  bool any = false;
  for (size_t i = 0; i < c.inputs.size(); ++i) any = any || c.differentiable(i);
  if (!any) return;
  std::vector<Values> cotangents;
  step(c, report, "f64 gradient", [&] {
    cotangents = cotangents_for(c, run_op(*c.op, c.attributes(), make_inputs(c, c.values, DType::f64)));
    if (!c.op->backward && !c.op->decompose) return std::string("the sample has a gradient and the op no backward");
    return finite_differences(c, cotangents, ~0u);
  });
  if (cotangents.empty())
    cotangents = cotangents_for(c, run_op(*c.op, c.attributes(), make_inputs(c, c.values, DType::f64)));
  if (c.op->outputs > 1)
    for (int k = 0; k < c.op->outputs; ++k)
      if (c.op->differentiable_outputs >> k & 1)
        step(c, report, "f64 gradient of output " + std::to_string(k),
             [&] { return finite_differences(c, cotangents, 1u << k); });
  step(c, report, "f64 gradient strided",
       [&] { return other_gradients(c, cotangents, DType::f64, Form::strided, Form::strided); });
  for (Form form : {Form::expanded, Form::expanded_last})  // what sums hand back
    step(c, report, "f64 gradient of an expanded cotangent",
         [&] { return other_gradients(c, cotangents, DType::f64, Form::dense, form); });
  for (DType dtype : kFloats)
    step(c, report, name_of(dtype) + " gradient",
         [&] { return other_gradients(c, cotangents, dtype, Form::dense, Form::dense); });
}

}  // namespace cleave::test
