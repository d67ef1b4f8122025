// The cases of collectives.cpp in plain MPI: open_mpi NAME, where NAME says with which settings it was started.
#include <mpi.h>

#include <functional>

#include "../collective_sizes.h"
#include "../measure.h"

namespace {

double seconds_of(int64_t bytes, const std::function<void()>& call) {
  int calls = bench::calls_for(bytes);
  call();
  double best = 1e9;
  for (int b = 0; b < bench::batches_for(bytes); ++b) {
    MPI_Barrier(MPI_COMM_WORLD);
    best = std::min(best, bench::least(1, [&] {
                      for (int i = 0; i < calls; ++i) call();
                    }));
  }
  return best / calls;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::string by = std::string("open mpi ").append(argc > 1 ? argv[1] : "default");
  auto say = [&](const std::string& name, double seconds) {
    if (rank == 0) bench::report("collectives", name, seconds * 1e6, "us", by.c_str());
  };
  say("barrier mpi " + std::to_string(ranks), seconds_of(1024, [] { MPI_Barrier(MPI_COMM_WORLD); }));
  for (int64_t bytes : bench::kCollectiveBytes) {
    auto n = static_cast<int>(bytes / 4);
    std::vector<float> in(static_cast<size_t>(n), 1.0f), out(in);
    int part = n / ranks;
    struct Kind {
      const char* name;
      std::function<void()> call;
    };
    Kind kinds[] = {
        {"all_reduce", [&] { MPI_Allreduce(MPI_IN_PLACE, in.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
        {"all_gather", [&] { MPI_Allgather(in.data(), part, MPI_FLOAT, out.data(), part, MPI_FLOAT, MPI_COMM_WORLD); }},
        {"reduce_scatter",
         [&] { MPI_Reduce_scatter_block(in.data(), out.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }},
        {"all_to_all", [&] { MPI_Alltoall(in.data(), part, MPI_FLOAT, out.data(), part, MPI_FLOAT, MPI_COMM_WORLD); }}};
    for (const Kind& kind : kinds)
      say(std::string(kind.name).append(" mpi ") + std::to_string(ranks) + " " + std::to_string(bytes),
          seconds_of(bytes, kind.call));
  }
  MPI_Finalize();
}
