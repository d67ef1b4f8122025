# The loops of core/cpu/loops are compiled once per instruction set and chosen at run time; nothing else is compiled
# above the base instruction set, and no flag here makes floating point inexact (never -ffast-math).
#
# In each copy CLEAVE_ISA is v2, v3 or v4 (elsewhere than x86-64: generic), and CLEAVE_ISA_X86=1 tells core/cpu that
# the three exist. A loops file must not define an inline or template function with external linkage: the linker would
# keep one copy for the whole program, possibly the AVX-512 one. The test loops/no_weak_symbols looks for them.

include(CheckCXXCompilerFlag)
set(CLEAVE_ISAS generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SIZEOF_VOID_P EQUAL 8)
  check_cxx_compiler_flag(-march=x86-64-v4 CLEAVE_COMPILER_HAS_V4)
  if(CLEAVE_COMPILER_HAS_V4)
    set(CLEAVE_ISAS v2 v3 v4)
    set(CLEAVE_ISA_X86 1)
  endif()
endif()
set(CLEAVE_ISA_FLAGS_v2 -march=x86-64-v2)
set(CLEAVE_ISA_FLAGS_v3 -march=x86-64-v3 -ffp-contract=fast)
set(CLEAVE_ISA_FLAGS_v4 -march=x86-64-v4 -ffp-contract=fast -mprefer-vector-width=512)
set(CLEAVE_LOOP_FLAGS -fno-math-errno -fno-trapping-math)
if(CLEAVE_SANITIZE)
  list(APPEND CLEAVE_LOOP_FLAGS -O2)
else()
  list(APPEND CLEAVE_LOOP_FLAGS -O3)
endif()
