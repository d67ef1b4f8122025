#include <cleave/dist/internal/checks.h>

#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/internal/counters.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>

#include <vector>

#include <fmt/format.h>

namespace cleave::dist::detail {

bool same_on_all(const MeshState& mesh, std::span<const int64_t> numbers, const char* op) {
  std::vector<int64_t> most(numbers.begin(), numbers.end());
  for (int64_t x : numbers) most.push_back(~x);  // the largest ~x is that of the smallest x
  Uncounted scope;
  mesh.communicator(mesh.all_axes())
      .all_reduce(most.data(), static_cast<int64_t>(most.size()), DType::i64, ReduceOp::max, Device::Cpu, op);
  for (size_t i = 0; i < numbers.size(); ++i)
    if (most[i] != ~most[numbers.size() + i]) return false;
  return true;
}

void require_same_key(const char* op, cleave::detail::RandomKey key, const LayoutData* layout, Device device) {
  if (!layout || device != Device::Cpu || !checked_mode() || !layout->mesh->member()) return;
  const int64_t numbers[] = {static_cast<int64_t>(key.seed), static_cast<int64_t>(key.call)};
  if (same_on_all(*layout->mesh, numbers, op)) return;
  throw CommError(
      fmt::format("[{}] the ranks' random numbers differ: this one is at seed {} call {}, others are elsewhere; call "
                  "seed() with one number on all ranks, and draw random numbers on all of them alike. Every element "
                  "has its own: no seed by rank is needed",
                  op, key.seed, key.call));
}

}  // namespace cleave::dist::detail
