// Signal handlers for the time of a launch.
#pragma once
#include <csignal>

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

}  // namespace cleave::dist::detail
