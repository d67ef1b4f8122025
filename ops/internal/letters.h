// Small helpers to build rules from shapes.
#pragma once
#include <cleave/ops/rule.h>

namespace cleave {

/// One letter per dim: 'a' + first, 'b' + first, ...
inline OperandLetters plain_letters(int rank, int first = 0) {
  OperandLetters out;
  for (int d = 0; d < rank; ++d) out.push_back({static_cast<Letter>('a' + first + d)});
  return out;
}
inline Letter dim_letter(int64_t d) { return static_cast<Letter>('a' + d); }

}  // namespace cleave
