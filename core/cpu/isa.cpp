#include <cleave/core/cpu/isa.h>
#include <cleave/core/error.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

namespace cleave::cpu {
namespace {

#ifdef CLEAVE_ISA_X86

Isa supported() {
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
  return v4 ? Isa::v4 : v3 ? Isa::v3 : Isa::v2;
}

Isa start() {
  Isa level = supported();
  const char* wanted = std::getenv("CLEAVE_ISA");
  if (!wanted || !*wanted) return level;
  for (Isa i : {Isa::v2, Isa::v3, Isa::v4})
    if (wanted == to_string(i)) return std::min(level, i);
  throw ValueError("[isa] CLEAVE_ISA is \"" + std::string(wanted) + "\"; use v2, v3 or v4");
}

#else

Isa start() { return Isa::generic; }

#endif

constexpr int kUnknown = -1;
std::atomic<int> current{kUnknown};

}  // namespace

Isa isa() {
  int level = current.load(std::memory_order_relaxed);
  if (level == kUnknown) {
    int found = static_cast<int>(start());
    if (current.compare_exchange_strong(level, found)) level = found;
  }
  return static_cast<Isa>(level);
}

void limit_isa(Isa level) {
  int now = static_cast<int>(isa()), wanted = static_cast<int>(level);
  while (wanted < now && !current.compare_exchange_weak(now, wanted)) {}
}

std::string_view to_string(Isa level) {
  constexpr std::string_view names[] = {"generic", "v2", "v3", "v4"};
  return names[static_cast<int>(level)];
}

}  // namespace cleave::cpu
