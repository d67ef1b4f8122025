// The generic harness over layouts: every op on thread ranks against one device.
#pragma once
#include <cleave/dist/mesh.h>

#include "support/op_case.h"

namespace cleave::test {

/// Combinations of input layouts of one case: all of them up to `exhaustive`, else every layout of each input (at most
/// `single`) beside R of the others, and `sampled` pseudo-random ones.
struct Breadth {
  int64_t exhaustive = 64;
  int64_t sampled = 24;
  size_t single = 1000;
};

/// Runs the cases on a mesh of thread ranks with checked collectives and poisoned buffers. For each combination of
/// input layouts: outputs and gradients (of random plain and partial cotangents, some or all inputs requiring grad) put
/// together equal one device's; replicas are bit-equal; blocks and layouts fit; all ranks made the same collectives.
void check_layouts(std::span<const OpCase> cases, const std::vector<dist::MeshAxis>& axes, const Breadth& breadth,
                   Report& report);

/// Runs every legal row (at most `rows` of a case) of every op that has a factor rule: blocks in exactly the row's
/// layouts through the local kernel give blocks of the right value in the row's output layouts; and where the
/// dispatcher chooses that row, it runs without any communication.
void check_rows(std::span<const OpCase> cases, const std::vector<dist::MeshAxis>& axes, size_t rows, Report& report);

}  // namespace cleave::test
