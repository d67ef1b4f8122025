// Which sizes of collectives are measured, and how often: shared by our program and by the one of plain MPI.
#pragma once
#include <cstdint>

namespace bench {

constexpr int64_t kCollectiveBytes[] = {1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 23, 1 << 26, 1 << 28};

/// A batch of calls moves about 16 MB; all ranks must agree on the numbers, so they follow from the size alone.
constexpr int calls_for(int64_t bytes) {
  int64_t calls = (int64_t{16} << 20) / bytes;
  return static_cast<int>(calls < 1 ? 1 : calls > 200 ? 200 : calls);
}
constexpr int batches_for(int64_t bytes) { return bytes > (1 << 23) ? 4 : bytes > (1 << 16) ? 20 : 50; }

}  // namespace bench
