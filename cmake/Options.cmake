# What a user may choose. A part of a larger project gets the library alone: no tests, no tools, no install rules.

option(BUILD_SHARED_LIBS "Build cleave as a shared library" OFF)
option(CLEAVE_BUILD_APPS "Build the tools, such as gpt" ${PROJECT_IS_TOP_LEVEL})
option(CLEAVE_BUILD_TESTS "Build the tests and the examples" ${PROJECT_IS_TOP_LEVEL})
option(CLEAVE_BUILD_BENCH "Make the target `bench`: the benchmark programs, built only when asked for" ${PROJECT_IS_TOP_LEVEL})
option(CLEAVE_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(CLEAVE_WERROR "Treat warnings as errors" OFF)
set(CLEAVE_SANITIZE "" CACHE STRING "Sanitizers for everything built here: address,undefined or thread")

foreach(feature ONEDNN BLAS MPI OPENMP)
  set(CLEAVE_${feature} AUTO CACHE STRING "Use it: AUTO (if found), ON (else fail), OFF")
  set_property(CACHE CLEAVE_${feature} PROPERTY STRINGS AUTO ON OFF)
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  find_program(CLEAVE_CCACHE ccache)
  if(CLEAVE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CLEAVE_CCACHE})
  endif()
endif()

# A sanitizer must see every object of the program, so these flags are not per target; they are never installed.
if(CLEAVE_SANITIZE)
  add_compile_options(-fsanitize=${CLEAVE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # GCC takes instrumented optionals for uninitialised.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${CLEAVE_SANITIZE})
endif()

# Flags of our own targets only (PRIVATE): a user of the library gets C++20 and nothing else.
# -Wshadow=local: a constructor argument may be named like the member that it sets.
add_library(cleave_flags INTERFACE)
target_compile_features(cleave_flags INTERFACE cxx_std_20)
# -fno-ipa-modref: GCC 12.2 takes f(const View& v) { return g(v); }, where g takes a View by value and is not inlined,
# for a function that does not read v, and drops what the caller stored there (seen at -O1 in
# core/cpu/linear_cross_entropy.cpp).
target_compile_options(cleave_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-ipa-modref>)
target_compile_options(cleave_flags INTERFACE -Wall -Wextra -Wpedantic $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local>
                                              $<$<BOOL:${CLEAVE_WERROR}>:-Werror>)
set(CMAKE_CXX_EXTENSIONS OFF)
