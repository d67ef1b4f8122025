#include <cleave/dist/internal/shared_group.h>

#include <new>

namespace cleave::dist::detail {

size_t SharedGroup::bytes(int members, int64_t slot_bytes) {
  return sizeof(Member) + kRing * stride(members, slot_bytes);
}

void SharedGroup::construct(std::byte* part, int members, int64_t slot_bytes) {
  new (part) Member;
  for (uint64_t k = 0; k < kRing; ++k) new (part + sizeof(Member) + k * stride(members, slot_bytes)) Post;
}

}  // namespace cleave::dist::detail
