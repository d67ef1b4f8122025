// The size of the tile of a product's result that fits the registers. Only for files in this folder.
#pragma once

namespace cleave::cpu::CLEAVE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kTileBytes = 64, kTileRows = 8, kTileVectors = 3;
#elif defined(__AVX2__)
constexpr int kTileBytes = 32, kTileRows = 4, kTileVectors = 3;
#else
constexpr int kTileBytes = 16, kTileRows = 4, kTileVectors = 2;
#endif

template <class T>
struct TileVector {
  typedef T type __attribute__((vector_size(kTileBytes)));
  typedef T loose __attribute__((vector_size(kTileBytes), aligned(alignof(T)), may_alias));
  static constexpr int lanes = kTileBytes / static_cast<int>(sizeof(T));
};

}  // namespace
}  // namespace cleave::cpu::CLEAVE_ISA
