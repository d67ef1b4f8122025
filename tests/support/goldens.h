// Cases computed by PyTorch (tests/goldens/make_goldens.py): named tensors by case.
#pragma once
#include <map>
#include <string>

#include "support/values.h"

namespace cleave::test {

using Golden = std::map<std::string, Values>;

/// All cases of tests/goldens/goldens.txt, read once from $CLEAVE_SOURCE (by default the folder above the test's).
const std::map<std::string, Golden>& goldens();
/// One case; throws Error for a name that the file lacks.
const Golden& golden(const std::string& name);
/// A tensor of a case in f64 (indices and masks in their own dtype); throws Error for a name that the case lacks.
Tensor golden_tensor(const Golden& golden, const std::string& name);

}  // namespace cleave::test
