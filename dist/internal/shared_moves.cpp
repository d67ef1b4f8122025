#include <cleave/dist/internal/shared_moves.h>

#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/reduce.h>

#include <algorithm>
#include <cstring>

namespace cleave::dist::detail {
namespace {

// In place: this member sums its block, of whole cache lines, and stores it to all; else it sums everything for itself.
void all_reduce(const Collective& call, int me, std::vector<const void*>& data, bool in_place,
                std::vector<void*>& out) {
  out.clear();
  if (!in_place) {
    out.push_back(call.recv);
    return reduce_elements(call.dtype, call.op, data, out, 0, call.count);
  }
  constexpr int64_t kLine = 64;
  for (const void* p : data) out.push_back(const_cast<void*>(p));
  Block block = balanced_block((call.count + kLine - 1) / kLine, static_cast<int64_t>(data.size()), me);
  reduce_elements(call.dtype, call.op, data, out, block.offset * kLine,
                  std::min(call.count, (block.offset + block.size) * kLine));
}

void reduce_scatter(const Collective& call, int me, std::vector<const void*>& data, std::vector<void*>& out) {
  auto mine = static_cast<size_t>(me);
  int64_t begin = sum(call.send_counts.first(mine)), n = call.send_counts[mine];
  if (!n) return;
  for (const void*& p : data) p = at(p, begin, call.dtype);
  out.assign(1, call.recv);
  reduce_elements(call.dtype, call.op, data, out, 0, n);
}

}  // namespace

void copy_elements(void* to, const void* from, int64_t elements, DType dtype) {
  if (elements && to != from) std::memmove(to, from, static_cast<size_t>(elements * size_of(dtype)));
}

void reduce_payloads(const Collective& call, int me, std::vector<const void*>& data, bool in_place,
                     std::vector<void*>& outputs) {
  if (call.kind == CollectiveKind::all_reduce)
    all_reduce(call, me, data, in_place, outputs);
  else
    reduce_scatter(call, me, data, outputs);
}

}  // namespace cleave::dist::detail
