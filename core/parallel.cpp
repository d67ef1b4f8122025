#include <cleave/core/parallel.h>

#include <algorithm>
#include <thread>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace cleave {
namespace {
thread_local int threads = 0;
}

int num_threads() {
  if (threads == 0) set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
  return threads;
}

// OpenMP's own setting is per thread and not inherited: libraries called from this rank read it.
void set_num_threads(int n) {
  threads = std::max(1, n);
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
}

}  // namespace cleave
