// Working memory inside parallel loops: one block per thread, kept between calls up to a bound.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace cleave::cpu {

/// An aligned array of n uninitialised elements for the time of a scope. One at a time per thread and per `Slot`
/// comes from the block kept by the thread, further ones from the system.
template <class T, int Slot = 0>
class Workspace {
 public:
  explicit Workspace(int64_t n) {
    size_t bytes = (static_cast<size_t>(n > 0 ? n : 1) * sizeof(T) + 63) / 64 * 64;
    block_ = std::exchange(mine().block, Block{});
    if (block_.bytes >= bytes) return;
    std::free(block_.data);
    block_ = {std::aligned_alloc(64, bytes), bytes};
    if (!block_.data) throw std::bad_alloc();
  }
  ~Workspace() {
    Kept& kept = mine();
    if (block_.bytes > kept.block.bytes && block_.bytes <= kKeptBytes) std::swap(block_, kept.block);
    std::free(block_.data);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  T* data() const { return static_cast<T*>(block_.data); }

 private:
  static constexpr size_t kKeptBytes = size_t{16} << 20;
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
  };
  struct Kept {
    Block block;
    ~Kept() { std::free(block.data); }
  };
  static Kept& mine() {
    thread_local Kept kept;
    return kept;
  }
  Block block_;
};

}  // namespace cleave::cpu
