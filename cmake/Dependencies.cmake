# What this machine has. Each dependency is private: it is compiled against through cleave_flags (or the target that
# needs it) and linked by its full path in CLEAVE_LINK_LIBRARIES, so an installed static library carries its link line
# with it and a user needs find_package(cleave) alone.

set(CLEAVE_LINK_LIBRARIES)
set(CLEAVE_FEATURES ONEDNN BLAS MPI OPENMP)

# cleave_feature(NAME FOUND reason): decides CLEAVE_WITH_<NAME> from the option and what was found.
macro(cleave_feature name found detail package)
  if(CLEAVE_${name} STREQUAL "OFF")
    set(CLEAVE_WITH_${name} 0)
    set(CLEAVE_WHY_${name} "switched off (CLEAVE_${name}=OFF)")
  elseif(${found})
    set(CLEAVE_WITH_${name} 1)
    set(CLEAVE_WHY_${name} "${detail}")
  elseif(CLEAVE_${name} STREQUAL "ON")
    message(FATAL_ERROR "CLEAVE_${name}=ON, but it was not found: install ${package}")
  else()
    set(CLEAVE_WITH_${name} 0)
    set(CLEAVE_WHY_${name} "not found: install ${package}")
  endif()
  if(CLEAVE_WITH_${name})
    target_compile_definitions(cleave_flags INTERFACE CLEAVE_WITH_${name}=1)
  endif()
endmacro()

# Headers of dependencies are system headers: their warnings are not ours.
function(cleave_private_include dir)
  target_include_directories(cleave_flags SYSTEM INTERFACE ${dir})
endfunction()

# Threads ------------------------------------------------------------------------------------------------------------
set(THREADS_PREFER_PTHREAD_FLAG OFF)
find_package(Threads REQUIRED)
list(APPEND CLEAVE_LINK_LIBRARIES ${CMAKE_THREAD_LIBS_INIT})

# oneDNN: matrix products in f32 and bf16 -----------------------------------------------------------------------------
find_path(CLEAVE_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(CLEAVE_ONEDNN_LIBRARY dnnl)
mark_as_advanced(CLEAVE_ONEDNN_INCLUDE CLEAVE_ONEDNN_LIBRARY)
set(found OFF)
if(CLEAVE_ONEDNN_INCLUDE AND CLEAVE_ONEDNN_LIBRARY)
  set(found ON)
  file(STRINGS ${CLEAVE_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h lines REGEX "DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
  string(REPLACE ";" "." version "${version}")
endif()
cleave_feature(ONEDNN ${found} "oneDNN ${version}" libdnnl-dev)
if(CLEAVE_WITH_ONEDNN)
  cleave_private_include(${CLEAVE_ONEDNN_INCLUDE})
  list(APPEND CLEAVE_LINK_LIBRARIES ${CLEAVE_ONEDNN_LIBRARY})
endif()

# OpenBLAS: f32 without oneDNN. The OpenMP build comes first: its number of threads is OpenMP's, which is per calling
# thread, while the pthread build has one pool and one setting for all ranks of the process. -----------------------------
if(CLEAVE_WITH_ONEDNN AND CLEAVE_BLAS STREQUAL "AUTO")
  set(CLEAVE_WITH_BLAS 0)
  set(CLEAVE_WHY_BLAS "not needed beside oneDNN")
else()
  find_library(CLEAVE_BLAS_LIBRARY openblas
               PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp /usr/lib/openblas-openmp NO_DEFAULT_PATH)
  find_library(CLEAVE_BLAS_LIBRARY openblas)
  get_filename_component(flavour "${CLEAVE_BLAS_LIBRARY}" DIRECTORY)
  get_filename_component(flavour "${flavour}" NAME)
  find_path(CLEAVE_BLAS_INCLUDE cblas.h
            PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/${flavour} NO_DEFAULT_PATH)
  find_path(CLEAVE_BLAS_INCLUDE cblas.h PATH_SUFFIXES openblas)
  mark_as_advanced(CLEAVE_BLAS_LIBRARY CLEAVE_BLAS_INCLUDE)
  set(found OFF)
  if(CLEAVE_BLAS_LIBRARY AND CLEAVE_BLAS_INCLUDE)
    set(found ON)
  endif()
  cleave_feature(BLAS ${found} "OpenBLAS, ${CLEAVE_BLAS_LIBRARY}" libopenblas-openmp-dev)
  if(CLEAVE_WITH_BLAS)
    cleave_private_include(${CLEAVE_BLAS_INCLUDE})
    list(APPEND CLEAVE_LINK_LIBRARIES ${CLEAVE_BLAS_LIBRARY})
  endif()
endif()

# MPI: only its C interface; only dist/mpi compiles against it ---------------------------------------------------------
set(MPI_FOUND OFF)
if(NOT CLEAVE_MPI STREQUAL "OFF")
  find_package(MPI QUIET COMPONENTS C)
endif()
cleave_feature(MPI "${MPI_FOUND}" "MPI ${MPI_C_VERSION}, ${MPI_C_LIBRARIES}" "libopenmpi-dev and openmpi-bin")
if(CLEAVE_WITH_MPI)
  target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  list(APPEND CLEAVE_LINK_LIBRARIES ${MPI_C_LIBRARIES})
endif()

# OpenMP: the CPU kernels' threads -------------------------------------------------------------------------------------
set(OpenMP_CXX_FOUND OFF)
if(NOT CLEAVE_OPENMP STREQUAL "OFF")
  find_package(OpenMP QUIET COMPONENTS CXX)
endif()
cleave_feature(OPENMP "${OpenMP_CXX_FOUND}" "OpenMP ${OpenMP_CXX_VERSION}" "a compiler with OpenMP")
if(CLEAVE_WITH_OPENMP)
  target_compile_options(cleave_flags INTERFACE ${OpenMP_CXX_FLAGS})
  foreach(library ${OpenMP_CXX_LIB_NAMES})
    if(NOT library MATCHES "pthread")
      list(APPEND CLEAVE_LINK_LIBRARIES ${OpenMP_${library}_LIBRARY})
    endif()
  endforeach()
else()
  target_compile_options(cleave_flags INTERFACE -Wno-unknown-pragmas)
endif()

# Text: fmt (linked), toml++, nlohmann-json, xxHash (headers); for tools only CLI11 (headers), PCRE2 and utf8proc (linked) -----------
find_path(CLEAVE_FMT_INCLUDE fmt/format.h REQUIRED)
find_library(CLEAVE_FMT_LIBRARY fmt REQUIRED)
find_path(CLEAVE_TOML_INCLUDE toml++/toml.h REQUIRED)
find_path(CLEAVE_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(CLEAVE_XXHASH_INCLUDE xxhash.h REQUIRED)
mark_as_advanced(CLEAVE_FMT_INCLUDE CLEAVE_FMT_LIBRARY CLEAVE_TOML_INCLUDE CLEAVE_JSON_INCLUDE CLEAVE_XXHASH_INCLUDE)
foreach(name FMT TOML JSON XXHASH)
  cleave_private_include(${CLEAVE_${name}_INCLUDE})
endforeach()
list(APPEND CLEAVE_LINK_LIBRARIES ${CLEAVE_FMT_LIBRARY})
if(CLEAVE_BUILD_APPS)
  find_path(CLEAVE_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
  # Unicode classes in the tokenizer's patterns; only tools use it.
  find_path(CLEAVE_PCRE2_INCLUDE pcre2.h REQUIRED)
  find_library(CLEAVE_PCRE2_LIBRARY pcre2-8 REQUIRED)
  # Unicode's normal forms, in the tokenizer; only tools use it.
  find_path(CLEAVE_UTF8PROC_INCLUDE utf8proc.h REQUIRED)
  find_library(CLEAVE_UTF8PROC_LIBRARY utf8proc REQUIRED)
  mark_as_advanced(CLEAVE_CLI11_INCLUDE CLEAVE_PCRE2_INCLUDE CLEAVE_PCRE2_LIBRARY CLEAVE_UTF8PROC_INCLUDE
                   CLEAVE_UTF8PROC_LIBRARY)
endif()
if(CLEAVE_BUILD_TESTS)
  find_path(CLEAVE_DOCTEST_INCLUDE doctest/doctest.h REQUIRED)
  mark_as_advanced(CLEAVE_DOCTEST_INCLUDE)
endif()
