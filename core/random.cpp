#include <cleave/core/random.h>

namespace cleave {
namespace {
thread_local detail::RandomKey stream;
}

void seed(uint64_t value) { stream = {value, 0}; }

namespace detail {

// Call 0 belongs to explicit seeds, which draw nothing from the stream.
RandomKey next_random_key() {
  ++stream.call;
  return stream;
}
RandomKey random_state() { return stream; }
void set_random_state(RandomKey state) { stream = state; }

}  // namespace detail
}  // namespace cleave
