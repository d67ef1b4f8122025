// The rule cache: rows chosen once per op, input types and layouts, and declared attributes. Per rank, bounded.
#pragma once
#include <cleave/ops/op.h>

namespace cleave {

struct CachedRow {
  ResolvedRow row;
  std::vector<Shape> local;  ///< this rank's block of each output
  bool moves = false;        ///< some input must be redistributed
};

/// Valid until the next call.
const CachedRow& cached_row(const OpDef& op, Inputs in, Attributes attributes, std::span<const OutputType> out,
                            const dist::MeshState& mesh);

/// Number of entries on this rank, for tests: constant while a training loop repeats itself.
size_t row_cache_size();

}  // namespace cleave
