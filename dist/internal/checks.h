// What checked mode compares of values that all ranks of a mesh should hold alike.
#pragma once
#include <span>

#include <cleave/core/device.h>
#include <cleave/core/random.h>
#include <cleave/dist/layout.h>

namespace cleave::dist::detail {

/// Whether all ranks of the mesh give the same numbers. One small all-reduce, which no counter sees: it is no part of
/// the program.
bool same_on_all(const MeshState& mesh, std::span<const int64_t> numbers, const char* op);

/// Random numbers of a distributed tensor are one stream's. In checked mode throws CommError, on all ranks of the
/// layout's mesh, unless they have the same key for `op`. Nothing for plain tensors (null) and for those without
/// elements.
void require_same_key(const char* op, cleave::detail::RandomKey key, const LayoutData* layout, Device device);

}  // namespace cleave::dist::detail
