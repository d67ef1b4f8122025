// The cases of the generic harness: one op with inputs and attributes from its samples, and what it gives on one
// device.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <cleave/ops/op.h>

#include "support/values.h"

namespace cleave::test {

/// How many variants of each sample, with other sizes, are added where the op takes them.
enum class Sizes { samples, some, all };

struct OpCase {
  const OpDef* op = nullptr;
  std::string name;  ///< "add.3": the op and the number of the sample; "add.3/5=0" a variant with other sizes
  std::vector<SampleInput> inputs;
  std::vector<std::byte> attribute_bytes;
  bool has_gradient = false, integers = false;
  double tolerance = 0;
  std::vector<Values> values;  ///< f64 (integers for indices, bool for masks), exact in steps of 2^-20; by input

  Attributes attributes() const { return {attribute_bytes.data(), attribute_bytes.size()}; }
  bool differentiable(size_t input) const;
  /// The dtype of an input when floating inputs have the dtype `floating`.
  DType dtype(size_t input, DType floating) const;
  /// `tolerance` of the sample relative to the default of f64; at least 1.
  double slack() const;
};

/// The samples of an op, or of all registered ops, with variants. Ops of one name are told apart as "add", "add'1".
std::vector<OpCase> cases_of(const OpDef& op, const std::string& name, Sizes sizes);
std::vector<OpCase> registered_cases(Sizes sizes);
/// Op and unique name, for every registered op.
std::vector<std::pair<const OpDef*, std::string>> named_ops();

/// Inputs in other dtypes: `values` for floating and index inputs; small integers where `dtype` is none of these.
std::vector<Values> integer_values(const OpCase& c, DType dtype);
/// Pseudo-random cotangents of these outputs.
std::vector<Values> cotangents_for(const OpCase& c, std::span<const Tensor> outputs);

/// Runs the op. An absent input is an undefined tensor.
std::vector<Tensor> run_op(const OpDef& op, Attributes attributes, std::span<const Tensor> inputs);
/// Gradients of sum over outputs of <cotangents[k], output k>, by input: undefined where nothing flows or where
/// `needs` is false. Cotangents are this rank's blocks in the outputs' splits (undefined: zero), partial as given.
struct Seed {
  Tensor block;
  uint32_t partial = 0;
};
std::vector<Tensor> run_backward(std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                                 std::span<const Seed> seeds);

/// "f64[5, 7], i64[3]".
std::string describe_inputs(std::span<const Tensor> inputs);

/// What went wrong, one line a case, and how many cases there were. For use by several ranks at once.
class Report {
 public:
  void fail(const std::string& line);
  void count(int64_t cases = 1);
  int64_t cases() const { return cases_; }
  int64_t failures() const { return failures_; }
  /// The first failures, one a line.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  int64_t cases_ = 0, failures_ = 0;
  std::vector<std::string> lines_;
  std::map<std::string, int> by_kind_;  ///< a few lines of each op are enough
};

/// Whether the environment's CLEAVE_CASE, if set, is part of this text: runs a printed case alone.
bool selected(const std::string& text);
/// Whether CLEAVE_CASE is set: only then do callers need to make the text.
bool selecting();

}  // namespace cleave::test
