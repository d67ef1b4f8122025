// Signal handlers for the time of a launch.
#pragma once
#include <csignal>
#include <functional>

namespace cleave::dist::detail {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_int_, before_term_;
};

/// While it lives, what this rank does first when it finds that a signal asked it to end: throw a PeerError, if a rank
/// that died is why.
class BlameScope {
 public:
  explicit BlameScope(std::function<void()> blame);
  ~BlameScope();
  BlameScope(const BlameScope&) = delete;
  BlameScope& operator=(const BlameScope&) = delete;
};

}  // namespace cleave::dist::detail
