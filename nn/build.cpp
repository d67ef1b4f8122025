#include <cleave/nn/build.h>

#include <utility>

namespace cleave::nn::detail {
namespace {
thread_local BuildOptions current;
}

BuildScope::BuildScope(const BuildOptions& options) : before_(std::exchange(current, options)) {}
BuildScope::~BuildScope() { current = before_; }
const BuildOptions& build_options() { return current; }

}  // namespace cleave::nn::detail
