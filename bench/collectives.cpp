// Collectives of `dist::Communicator`, started as thread ranks (--ranks 2) or by mpirun, beside a memcpy.
//   bench_collectives --ranks 2 [--largest 268435456]
// Bytes are those of the whole buffer: what an all-reduce, reduce-scatter or all-to-all is given, what an all-gather
// gives.
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/creation.h>

#include <cstring>
#include <functional>
#include <memory>

#include "collective_sizes.h"
#include "measure.h"

using namespace cleave;

namespace {

// Seconds of one call on rank 0: the least over batches, of the mean over a batch.
double seconds_of(dist::Communicator& all, int64_t bytes, const std::function<void()>& call) {
  int calls = bench::calls_for(bytes);
  auto batch = [&] {
    for (int i = 0; i < calls; ++i) call();
  };
  call();
  double best = 1e9;
  for (int b = 0; b < bench::batches_for(bytes); ++b) {
    all.barrier();
    best = std::min(best, bench::least(1, batch));
  }
  return best / calls;
}

std::shared_ptr<float> buffer(dist::Communicator& all, int64_t bytes, bool shared) {
  if (shared) return std::static_pointer_cast<float>(all.shared_buffer(bytes));
  Tensor x = ones({bytes / 4});
  return {x.data<float>(), [x](float*) {}};
}

void measure(dist::World& world, int64_t bytes, bool shared) {
  dist::Communicator& all = world.communicator();
  int64_t n = bytes / 4, ranks = all.size();
  auto in = buffer(all, bytes, shared), out = buffer(all, bytes, shared);
  if (!in) return;
  std::vector<int64_t> counts(static_cast<size_t>(ranks), n / ranks);
  float *a = in.get(), *b = out.get();
  std::fill_n(a, n, 1.0f), std::fill_n(b, n, 1.0f);
  struct Kind {
    const char* name;
    std::function<void()> call;
  };
  Kind kinds[] = {{"all_reduce", [&] { all.all_reduce(a, n, DType::f32); }},
                  {"all_gather", [&] { all.all_gather(a, b, counts, DType::f32); }},
                  {"reduce_scatter", [&] { all.reduce_scatter(a, b, counts, DType::f32); }},
                  {"all_to_all", [&] { all.all_to_all(a, counts, b, counts, DType::f32); }}};
  std::string place = std::string(" ").append(world.backend());
  place.append(shared ? " shared " : " ") += std::to_string(ranks) + " ";
  for (const Kind& kind : kinds) {
    double seconds = seconds_of(all, bytes, kind.call);
    if (world.rank() == 0) bench::report("collectives", kind.name + place + std::to_string(bytes), seconds * 1e6, "us");
  }
}

void measure_barrier(dist::World& world, const std::string& load) {
  dist::Communicator& all = world.communicator();
  double seconds = seconds_of(all, 1024, [&] { all.barrier(); });
  std::string name = std::string("barrier ").append(world.backend()) + " " + std::to_string(all.size()) +
                     (load.empty() ? "" : " " + load);
  if (world.rank() == 0) bench::report("collectives", name, seconds * 1e6, "us");
}

void measure_memcpy(int64_t bytes) {
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(from);
  int calls = bench::calls_for(bytes);
  double seconds = bench::least(bench::batches_for(bytes), [&] {
    for (int i = 0; i < calls; ++i) {
      std::memcpy(to.data(), from.data(), from.size());
      asm volatile("" : : "r"(to.data()) : "memory");  // the copy is wanted, though nobody reads it
    }
  });
  bench::report("collectives", "memcpy " + std::to_string(bytes), seconds / calls * 1e6, "us");
}

}  // namespace

int main(int argc, char** argv) {
  return dist::launch(argc, argv, [](dist::World& world) {
    dist::set_checked_mode(false);
    bench::Options o(world.arguments());
    measure_barrier(world, o.text("load"));
    if (!o.text("load").empty()) return;
    for (int64_t bytes : bench::kCollectiveBytes) {
      if (bytes > o.number("largest", 1 << 28)) continue;
      measure(world, bytes, false);
      if (std::strcmp(world.backend(), "mpi") == 0) measure(world, bytes, true);
      world.communicator().barrier();
      if (world.rank() == 0 && std::strcmp(world.backend(), "threads") == 0) measure_memcpy(bytes);
      world.communicator().barrier();
    }
  });
}
