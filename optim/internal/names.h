// Names under which the state of parameters is kept.
#pragma once
#include <string>
#include <vector>

#include <cleave/nn/parameter.h>

namespace cleave::optim::detail {

/// Each parameter's name, or its number where it has none. Throws ValueError "[<who>] ..." if two are equal.
std::vector<std::string> names_of(const std::vector<nn::Parameter>& parameters, const char* who);

}  // namespace cleave::optim::detail
