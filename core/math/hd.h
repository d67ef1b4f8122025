// Scalar functions shared by the CPU loops and CUDA kernels: how they are declared, and bit casts.
#pragma once
#include <cstdint>

// Always inlined, so that a file compiled for one instruction set never exports a copy that another would link to.
#if defined(__CUDACC__)
#define CLEAVE_HD __host__ __device__ __forceinline__
#else
#define CLEAVE_HD [[gnu::always_inline]] inline
#endif

namespace cleave::math {

CLEAVE_HD uint32_t to_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
CLEAVE_HD uint64_t to_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
CLEAVE_HD float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }

template <class T>
inline constexpr T kInf = static_cast<T>(__builtin_inf());
template <class T>
inline constexpr T kNan = static_cast<T>(__builtin_nan(""));

}  // namespace cleave::math
