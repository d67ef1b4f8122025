#include <cleave/dist/internal/shared_moves.h>

#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/reduce.h>

#include <algorithm>
#include <cstring>

namespace cleave::dist::detail {
namespace {

// Writable: this member sums its block, of whole cache lines, and stores it to all; else it sums everything for itself.
void all_reduce(const Collective& call, int me, const Payloads& from, std::vector<void*>& out) {
  out.clear();
  if (!from.writable) {
    out.push_back(call.recv);
    return reduce_elements(call.dtype, call.op, from.data, out, 0, call.count);
  }
  constexpr int64_t kLine = 64;
  for (const void* p : from.data) out.push_back(const_cast<void*>(p));
  Block block = balanced_block((call.count + kLine - 1) / kLine, static_cast<int64_t>(from.data.size()), me);
  reduce_elements(call.dtype, call.op, from.data, out, block.offset * kLine,
                  std::min(call.count, (block.offset + block.size) * kLine));
}

void reduce_scatter(const Collective& call, int me, const Payloads& from, std::vector<void*>& out) {
  auto mine = static_cast<size_t>(me);
  int64_t begin = sum(call.send_counts.first(mine)), n = call.send_counts[mine];
  for (const void*& p : from.data) p = at(p, begin, call.dtype);
  out.assign(1, call.recv);
  if (n) reduce_elements(call.dtype, call.op, from.data, out, 0, n);
}

void gather(const Collective& call, const Payloads& from) {
  int64_t to = 0;
  for (size_t r = 0; r < from.data.size(); ++r) {
    int64_t begin = call.kind == CollectiveKind::all_to_all ? from.send_offsets[r] : 0, n = call.recv_counts[r];
    copy_elements(at(call.recv, to, call.dtype), at(from.data[r], begin, call.dtype), n, call.dtype);
    to += n;
  }
}

}  // namespace

void copy_elements(void* to, const void* from, int64_t elements, DType dtype) {
  if (elements && to != from) std::memmove(to, from, static_cast<size_t>(elements * size_of(dtype)));
}

void move_payloads(const Collective& call, int me, const Payloads& from, std::vector<void*>& outputs) {
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return all_reduce(call, me, from, outputs);
    case CollectiveKind::reduce_scatter:
      return reduce_scatter(call, me, from, outputs);
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return gather(call, from);
    case CollectiveKind::broadcast:
      if (me != call.peer) copy_elements(call.recv, from.data[static_cast<size_t>(call.peer)], call.count, call.dtype);
      return;
    case CollectiveKind::send_recv:
    case CollectiveKind::barrier:
      return;
  }
}

}  // namespace cleave::dist::detail
