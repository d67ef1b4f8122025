// Loops over this rank's threads.
#pragma once
#include <cstdint>

namespace cleave {

/// Threads this rank uses for kernels; by default floor(cores / ranks on this host), at least 1.
int num_threads();
/// Sets it for this rank. All ranks must set the same number: replicas stay bit-identical only then.
void set_num_threads(int n);

/// Calls f(begin, end) for chunks that cover [0, n); chunks have at least `grain` items and may run concurrently.
/// f must not depend on where the chunks are cut.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  int threads = num_threads();
  if (threads <= 1 || n <= grain) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  int64_t chunks = (n + grain - 1) / grain;
  if (chunks > threads) chunks = threads;
  int64_t base = n / chunks, extra = n % chunks;
#ifdef _OPENMP
#pragma omp parallel for num_threads(static_cast <int>(chunks)) schedule(static, 1)
#endif
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t begin = c * base + (c < extra ? c : extra);
    f(begin, begin + base + (c < extra ? 1 : 0));
  }
}

}  // namespace cleave
