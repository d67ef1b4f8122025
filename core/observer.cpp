#include <cleave/core/observer.h>

#include <chrono>
#include <utility>

namespace cleave {

thread_local constinit Observer* detail::observer = nullptr;

Observer* Observer::current() { return detail::observer; }
Observer* Observer::set(Observer* observer) { return std::exchange(detail::observer, observer); }

int64_t Observer::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The observer may be gone, or another: then this span is nobody's.
void Span::tell_end() {
  if (observer_ == detail::observer) observer_->end(*this);
}

}  // namespace cleave
