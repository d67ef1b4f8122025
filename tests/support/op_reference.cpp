#include "support/op_reference.h"

namespace cleave::test {

Values Reference::gradient(size_t input, uint32_t live) const {
  Values sum{DType::f64, inputs[input].shape, std::vector<double>(inputs[input].v.size(), 0.0)};
  for (size_t k = 0; k < outputs.size(); ++k)
    if ((live >> k & 1) && !gradients[input][k].v.empty())
      for (size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += gradients[input][k].v[i];
  return sum;
}

Reference reference_of(const OpCase& c, DType dtype) {
  Reference ref;
  if (!is_floating(dtype) && !c.integers) return ref;
  try {
    std::vector<Values> values = is_floating(dtype) ? c.values : integer_values(c, dtype);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      ref.inputs.push_back(rounded(values[i], c.dtype(i, dtype)));
      DType computed = c.dtype(i, is_floating(dtype) ? DType::f64 : dtype);
      inputs.push_back(c.inputs[i].absent ? Tensor() : make_tensor(ref.inputs[i], computed));
      if (c.differentiable(i) && is_floating(dtype)) inputs[i].set_requires_grad(true);
    }
    std::vector<Tensor> outputs = run_op(*c.op, c.attributes(), inputs);
    for (const Tensor& y : outputs) ref.outputs.push_back(values_of(y));
    ref.cotangents = cotangents_for(c, outputs);
    if (is_floating(dtype))
      for (Values& v : ref.cotangents) v = rounded(v, dtype);
    ref.gradients.assign(inputs.size(), std::vector<Values>(outputs.size()));
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].requires_grad()) continue;
      std::vector<Seed> seeds(outputs.size());
      seeds[k].block = make_tensor(ref.cotangents[k], outputs[k].dtype());
      std::vector<Tensor> gradients = run_backward(inputs, outputs, seeds);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (gradients[i].defined()) ref.gradients[i][k] = values_of(gradients[i]);
    }
  } catch (const std::exception& e) { ref.error = e.what(); }
  return ref;
}

}  // namespace cleave::test
