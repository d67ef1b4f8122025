// Layout rules: the dims of an op's inputs and outputs named by letters, once. Propagation, costs, tests and the
// support table all follow from it.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <cleave/core/kernel.h>
#include <cleave/core/type.h>

namespace cleave {

namespace dist {
class MeshState;
}

/// What a rule may look at: types with their global shapes, and the attributes that the op declares as its key.
struct RuleCall {
  const char* op;
  std::span<const TensorType> in;   ///< with layouts
  std::span<const bool> present;    ///< false for an optional input that is left out
  std::span<const bool> parameter;  ///< a parameter, or computed from parameters alone
  std::span<const TensorType> out;  ///< layouts not filled in
  Attributes attributes;
};

/// One factor of the iteration space, e.g. 'm' in "mk,kn->mn".
using Letter = char;

/// The letters of one dim, major first: "(hg)" is one dim of two factors. No letter: the dim stays whole.
using DimLetters = std::vector<Letter>;
using OperandLetters = std::vector<DimLetters>;

/// How an op runs on blocks. For every mesh axis one of these holds:
///  - a letter is split: every operand that has it is S there; outputs that lack it are partial sums (it must be in
///    `reduced`), and so must be the `addends`;
///  - the inputs of one `linear` set are partial, the others R: the outputs are partial;
///  - all are R.
/// Rows in which a bool or u8 operand would be partial are not taken: their terms do not add up.
struct Rule {
  std::vector<OperandLetters> in, out;
  /// Letters that the op sums over: split, they leave a partial sum.
  std::vector<Letter> reduced;
  /// Letters that must not be split, unless the op has a `decompose`.
  std::vector<Letter> whole;
  /// Letters that may be split into equal blocks only (their dims share one with a finer letter).
  std::vector<Letter> even;
  /// Sets of inputs (bit masks) in which the op is jointly linear, the others held fixed.
  std::vector<uint32_t> linear;
  /// Inputs that are added to the result: partial wherever a reduced letter is split or a linear set with them is
  /// chosen.
  uint32_t addends = 0;
};

/// Parses "mk,kn->mn": one letter per dim, "(hg)" for a dim of two factors, "." for a dim without a letter, "..." for
/// leading dims that align from the right over all operands (sizes 1 broadcast). An operand that is absent is skipped.
Rule parse_rule(std::string_view text, const RuleCall& call);

/// The rule of an element-wise op with broadcasting: dims align from the right; a dim of size 1 beside a larger one has
/// no letter.
Rule pointwise_rule(const RuleCall& call, std::vector<uint32_t> linear = {});

/// A row that a rule of the other kind (reshape) gives directly: the layouts that inputs must have, and the outputs'.
struct LayoutRow {
  std::vector<const dist::LayoutData*> in, out;
};

/// An op's layout rule. There is no default: an op without one does not compile.
class LayoutRule {
 public:
  using Factors = Rule (*)(const RuleCall&);
  using Direct = LayoutRow (*)(const RuleCall&);
  template <class F>
  requires std::is_convertible_v<F, Factors>
  constexpr LayoutRule(F factors) : factors_(factors) {}
  template <class F>
  requires std::is_convertible_v<F, Direct>
  constexpr LayoutRule(F direct) : direct_(direct) {}
  Factors factors() const { return factors_; }
  Direct direct() const { return direct_; }

 private:
  Factors factors_ = nullptr;
  Direct direct_ = nullptr;
};

/// The chosen row for one call.
struct ResolvedRow {
  std::vector<const dist::LayoutData*> in;  ///< null for an absent input
  std::vector<const dist::LayoutData*> out;
  bool decompose = false;  ///< a whole letter stays split
  int64_t bytes = 0;       ///< over the busiest link, including the reductions that partial outputs will need
  bool moves_parameter = false;
};

/// Chooses the row for inputs of these layouts on `mesh`, by global metadata alone: rows that move no parameter first,
/// then the fewest bytes, then creating no partial, keeping R, moving fewer inputs, the lower input index.
ResolvedRow resolve_row(const Rule& rule, const RuleCall& call, const dist::MeshState& mesh, bool can_decompose);

/// Every legal row, whatever the inputs' layouts are now; for the brute-force test and the planner.
std::vector<ResolvedRow> legal_rows(const Rule& rule, const RuleCall& call, const dist::MeshState& mesh,
                                    bool can_decompose);

}  // namespace cleave
