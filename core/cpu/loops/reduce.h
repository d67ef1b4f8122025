// Reductions of dense rows and columns, by kind and compute type.
#pragma once
#include <cleave/core/cpu/loops/convert.h>

namespace cleave::cpu {

inline constexpr int kReduceKinds = 9;

/// Totals are f64 for the floating compute types, i64 for integers: sums of chunks are merged in them.
struct ReduceLoop {
  /// Sets the one total to that of n elements; the identity for none.
  void (*row)(const void* x, int64_t n, void* total);
  /// Sets n elements of the compute type to the identity, then takes rows of n elements into them.
  void (*start)(void* acc, int64_t n);
  void (*column)(const void* x, int64_t n, void* acc);
  /// Sets totals from such elements.
  void (*finish)(const void* acc, int64_t n, void* totals);
  /// Takes n totals into others.
  void (*merge)(const void* from, int64_t n, void* totals);
};

/// Indexed by Reduce (core/cpu/reduce.h), then Compute.
struct ReduceLoops {
  ReduceLoop of[kReduceKinds][kComputeTypes];
};

CLEAVE_EACH_ISA(extern const ReduceLoops reduce_loops)

}  // namespace cleave::cpu
