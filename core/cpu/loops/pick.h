// Declares a table of loops for every instruction set that was built, and picks the one this process runs.
#pragma once

#ifdef CLEAVE_ISA_X86
#define CLEAVE_EACH_ISA(declaration) \
  namespace v2 {                     \
  declaration;                       \
  }                                  \
  namespace v3 {                     \
  declaration;                       \
  }                                  \
  namespace v4 {                     \
  declaration;                       \
  }
#define CLEAVE_PICK(table) (isa() == Isa::v4 ? v4::table : isa() == Isa::v3 ? v3::table : v2::table)
#else
#define CLEAVE_EACH_ISA(declaration) \
  namespace generic {                \
  declaration;                       \
  }
#define CLEAVE_PICK(table) generic::table
#endif
