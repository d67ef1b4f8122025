// The instruction-set level that kernels run at: chosen once per process, alike on all ranks.
#pragma once
#include <cstdint>
#include <string_view>

namespace cleave::cpu {

/// x86-64 levels in increasing order; `generic` is the only one where the loops are compiled once.
enum class Isa : uint8_t { generic, v2, v3, v4 };

/// What the processor and the environment variable CLEAVE_ISA (v2, v3 or v4; it can only lower) allow, further lowered
/// by `limit_isa`. Throws ValueError for another value of the variable.
Isa isa();
/// Lowers the level of this process, to the least one among the ranks, before work starts.
void limit_isa(Isa level);
/// "generic", "v2", "v3", "v4".
std::string_view to_string(Isa level);

}  // namespace cleave::cpu

// Declares `Type name`, defined once per level in namespaces v2, v3, v4 (or generic) by a file of core/cpu/loops, and
// the function `name()` that gives the one in use. Write it in namespace cleave::cpu.
#ifdef CLEAVE_ISA_X86
#define CLEAVE_LOOP_TABLE(Type, name)       \
  namespace v2 {                            \
  extern const Type name;                   \
  }                                         \
  namespace v3 {                            \
  extern const Type name;                   \
  }                                         \
  namespace v4 {                            \
  extern const Type name;                   \
  }                                         \
  inline const Type& name() {               \
    Isa level = isa();                      \
    if (level == Isa::v4) return v4::name;  \
    if (level == Isa::v3) return v3::name;  \
    return v2::name;                        \
  }
#else
#define CLEAVE_LOOP_TABLE(Type, name)       \
  namespace generic {                       \
  extern const Type name;                   \
  }                                         \
  inline const Type& name() { return generic::name; }
#endif
