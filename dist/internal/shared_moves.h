// What one member of a call does with the payloads of all, once it reaches them.
#pragma once
#include <span>
#include <vector>

#include <cleave/dist/communicator.h>

namespace cleave::dist::detail {

inline std::byte* at(void* p, int64_t elements, DType t) { return static_cast<std::byte*>(p) + elements * size_of(t); }
inline const std::byte* at(const void* p, int64_t elements, DType t) {
  return static_cast<const std::byte*>(p) + elements * size_of(t);
}
void copy_elements(void* to, const void* from, int64_t elements, DType dtype);

/// The payloads by member, whole and dense, as one of them sees them.
struct Payloads {
  std::vector<const void*>& data;         ///< may be changed
  std::span<const int64_t> send_offsets;  ///< all_to_all: where in each payload this member's part begins
  bool writable;                          ///< all_reduce: every member's result belongs there
};
/// `outputs` is scratch.
void move_payloads(const Collective& call, int me, const Payloads& payloads, std::vector<void*>& outputs);

}  // namespace cleave::dist::detail
