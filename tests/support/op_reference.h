// What a case gives on one device: computed once, read by all ranks.
#pragma once
#include <map>

#include "support/op_case.h"

namespace cleave::test {

struct Reference {
  std::vector<Values> inputs;  ///< rounded to the dtype
  std::vector<Values> outputs;
  std::vector<Values> cotangents;
  /// By input and output: the gradient of <cotangent, output>; empty where nothing flows.
  std::vector<std::vector<Values>> gradients;
  std::string error;  ///< the case does not even run on one device

  /// The gradient of an input for the outputs in `live` (bit mask).
  Values gradient(size_t input, uint32_t live) const;
};

/// For floating inputs of `dtype` (rounded), computed in f64; for integers, computed in that dtype, without gradients.
Reference reference_of(const OpCase& c, DType dtype);

}  // namespace cleave::test
