// Checks of options that optimizers share.
#pragma once
#include <string>

#include <cleave/core/error.h>

namespace cleave::optim::detail {

/// Throws ValueError "[lion] lr is -1; it must not be negative" unless `holds`.
inline void require(bool holds, const char* optimizer, const char* option, double value, const char* rule) {
  if (!holds)
    throw ValueError(std::string("[") + optimizer + "] " + option + " is " + std::to_string(value) + "; it must " +
                     rule);
}
inline void require_positive_or_zero(const char* optimizer, const char* option, double value) {
  require(value >= 0, optimizer, option, value, "not be negative");
}
inline void require_fraction(const char* optimizer, const char* option, double value) {
  require(value >= 0 && value < 1, optimizer, option, value, "be in [0, 1)");
}

}  // namespace cleave::optim::detail
