// Random numbers of a distributed tensor are one stream's: all ranks of its mesh must draw them by one key.
#pragma once
#include <cleave/core/device.h>
#include <cleave/core/random.h>
#include <cleave/dist/layout.h>

namespace cleave::dist::detail {

/// In checked mode throws CommError, on all ranks of the layout's mesh, unless they have the same key for `op`.
/// Communicates then: one small all-reduce. Nothing for plain tensors (null) and for those without elements.
void require_same_key(const char* op, cleave::detail::RandomKey key, const LayoutData* layout, Device device);

}  // namespace cleave::dist::detail
