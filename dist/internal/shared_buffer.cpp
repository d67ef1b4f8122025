// Memory that is everyone's anyway, or nobody else's.
#include <cleave/dist/communicator.h>

#include <algorithm>
#include <new>

namespace cleave::dist {

std::shared_ptr<void> Communicator::shared_buffer(int64_t bytes) {
  constexpr std::align_val_t kAlign{64};
  return {::operator new(static_cast<size_t>(std::max<int64_t>(bytes, 1)), kAlign),
          [](void* p) { ::operator delete(p, kAlign); }};
}

}  // namespace cleave::dist
