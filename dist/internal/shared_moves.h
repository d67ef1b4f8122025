// What one member of a call does with the payloads of all, once it reaches them.
#pragma once
#include <vector>

#include <cleave/dist/communicator.h>

namespace cleave::dist::detail {

inline std::byte* at(void* p, int64_t elements, DType t) { return static_cast<std::byte*>(p) + elements * size_of(t); }
inline const std::byte* at(const void* p, int64_t elements, DType t) {
  return static_cast<const std::byte*>(p) + elements * size_of(t);
}
void copy_elements(void* to, const void* from, int64_t elements, DType dtype);

/// Reductions. `data` are the payloads by member, whole and dense, as one of them sees them; it may be changed, and
/// `outputs` is scratch. In place: the buffers of an all_reduce are everyone's, and each member's result belongs there.
void reduce_payloads(const Collective& call, int me, std::vector<const void*>& data, bool in_place,
                     std::vector<void*>& outputs);

}  // namespace cleave::dist::detail
