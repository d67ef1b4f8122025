#include <cleave/dist/internal/same_key.h>

#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>

#include <fmt/format.h>

namespace cleave::dist::detail {

void require_same_key(const char* op, cleave::detail::RandomKey key, const LayoutData* layout, Device device) {
  if (!layout || device != Device::Cpu || !checked_mode() || !layout->mesh->member()) return;
  auto seed = static_cast<int64_t>(key.seed), call = static_cast<int64_t>(key.call);
  int64_t most[] = {seed, ~seed, call, ~call};  // the largest ~x is that of the smallest x
  layout->mesh->communicator(layout->mesh->all_axes()).all_reduce(most, 4, DType::i64, ReduceOp::max, device, op);
  if (most[0] == ~most[1] && most[2] == ~most[3]) return;
  throw CommError(
      fmt::format("[{}] the ranks' random numbers differ: this one is at seed {} call {}, others are elsewhere; call "
                  "seed() with one number on all ranks, and draw random numbers on all of them alike. Every element "
                  "has its own: no seed by rank is needed",
                  op, key.seed, key.call));
}

}  // namespace cleave::dist::detail
