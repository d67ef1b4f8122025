#include <cleave/dist/communicator.h>

#include <cleave/core/error.h>
#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/counters.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/observer.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist {
namespace {

[[noreturn]] void invalid(const Collective& call, const std::string& what) {
  throw ValueError(
      fmt::format("[{}] {}", *call.label ? std::string(call.label) : std::string(to_string(call.kind)), what));
}

void check_counts(const Collective& call, std::span<const int64_t> counts, int size, const char* what) {
  if (counts.size() != static_cast<size_t>(size))
    invalid(call, fmt::format("{} {} for a group of {} ranks; give one per rank", counts.size(), what, size));
  if (std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; }))
    invalid(call, fmt::format("{} [{}] must not be negative", what, fmt::join(counts, ", ")));
}

void validate(const Collective& call, int size) {
  if (call.device == Device::Cuda) invalid(call, "this communicator moves cpu tensors; move the tensor to the cpu");
  if (call.count < 0) invalid(call, fmt::format("count {} must not be negative", call.count));
  switch (call.kind) {
    case CollectiveKind::all_gather:
      check_counts(call, call.recv_counts, size, "counts");
      break;
    case CollectiveKind::reduce_scatter:
      check_counts(call, call.send_counts, size, "counts");
      break;
    case CollectiveKind::all_to_all:
      check_counts(call, call.send_counts, size, "send counts");
      check_counts(call, call.recv_counts, size, "receive counts");
      break;
    case CollectiveKind::broadcast:
    case CollectiveKind::send_recv:
      if (call.peer < 0 || call.peer >= size)
        invalid(call, fmt::format("rank {} is out of range for a group of {} ranks", call.peer, size));
      break;
    case CollectiveKind::all_reduce:
    case CollectiveKind::barrier:
      break;
  }
}

Collective point_to_point(const void* send, void* recv, int64_t count, DType dtype, int peer, Device device) {
  return {.kind = CollectiveKind::send_recv,
          .send = send,
          .recv = recv,
          .count = count,
          .dtype = dtype,
          .peer = peer,
          .device = device,
          .label = send ? "send" : "recv"};
}

}  // namespace

CollectiveSpan Communicator::enter(const Collective& given) {
  validate(given, size_);
  if (size_ > 1) detail::note_collective(given, name_);
  check_interrupt();
  Collective call = given;
  bool receives = call.kind == CollectiveKind::send_recv && !call.send;
  if (call.kind != CollectiveKind::send_recv) ++sequence_;
  int64_t bytes = 0;
  if (size_ > 1 && call.kind != CollectiveKind::barrier && !receives) {
    bytes = detail::payload_bytes(call, rank_);
    int64_t whole =
        call.kind == CollectiveKind::all_gather ? detail::sum(call.recv_counts) * size_of(call.dtype) : bytes;
    if (!detail::count_collective(call, name_, size_, bytes, whole)) bytes = 0;
  }
  if (call.kind == CollectiveKind::all_reduce || call.kind == CollectiveKind::broadcast) {
    if (!call.recv) call.recv = const_cast<void*>(call.send);
    if (call.send && call.send != call.recv && call.device == Device::Cpu && call.count)
      std::memmove(call.recv, call.send, static_cast<size_t>(call.count * size_of(call.dtype)));
    call.send = call.recv;
  }
  return {call, name_, bytes};
}

void Communicator::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, Device device, const char* label) {
  run(enter({.kind = CollectiveKind::all_reduce,
             .send = data,
             .recv = data,
             .count = count,
             .dtype = dtype,
             .op = op,
             .device = device,
             .label = label}));
}

void Communicator::all_gather(const void* send, void* recv, std::span<const int64_t> counts, DType dtype, Device device,
                              const char* label) {
  run(enter({.kind = CollectiveKind::all_gather,
             .send = send,
             .recv = recv,
             .recv_counts = counts,
             .dtype = dtype,
             .device = device,
             .label = label}));
}

void Communicator::reduce_scatter(const void* send, void* recv, std::span<const int64_t> counts, DType dtype,
                                  ReduceOp op, Device device, const char* label) {
  run(enter({.kind = CollectiveKind::reduce_scatter,
             .send = send,
             .recv = recv,
             .send_counts = counts,
             .dtype = dtype,
             .op = op,
             .device = device,
             .label = label}));
}

void Communicator::all_to_all(const void* send, std::span<const int64_t> send_counts, void* recv,
                              std::span<const int64_t> recv_counts, DType dtype, Device device, const char* label) {
  run(enter({.kind = CollectiveKind::all_to_all,
             .send = send,
             .recv = recv,
             .send_counts = send_counts,
             .recv_counts = recv_counts,
             .dtype = dtype,
             .device = device,
             .label = label}));
}

void Communicator::broadcast(void* data, int64_t count, DType dtype, int root, Device device, const char* label) {
  run(enter({.kind = CollectiveKind::broadcast,
             .send = data,
             .recv = data,
             .count = count,
             .dtype = dtype,
             .peer = root,
             .device = device,
             .label = label}));
}

void Communicator::send(const void* data, int64_t count, DType dtype, int to, Device device) {
  static const char nothing = 0;
  if (!data) data = &nothing;  // a null pointer to send means that the call receives
  CollectiveSpan span = enter(point_to_point(data, nullptr, count, dtype, to, device));
  if (device == Device::Cpu) send_bytes(data, count * size_of(dtype), to);
}

void Communicator::recv(void* data, int64_t count, DType dtype, int from, Device device) {
  CollectiveSpan span = enter(point_to_point(nullptr, data, count, dtype, from, device));
  if (device == Device::Cpu) receive_bytes(data, count * size_of(dtype), from);
}

void Communicator::barrier() { run(enter({.kind = CollectiveKind::barrier, .label = "barrier"})); }

void Communicator::call(const Collective& given) {
  CollectiveSpan entered = enter(given);
  const Collective& call = entered.call;
  if (call.kind != CollectiveKind::send_recv) return run(call);
  if (call.device != Device::Cpu) return;
  int64_t bytes = detail::payload_bytes(call, rank_);
  call.send ? send_bytes(call.send, bytes, call.peer) : receive_bytes(call.recv, bytes, call.peer);
}

std::unique_ptr<Pending> Communicator::start(const Collective& given) {
  CollectiveSpan call = enter(given);
  int64_t began = Observer::current() ? Observer::now_ns() : 0;  // it may be over as soon as it has been handed on
  return observed(begin(call), call, began);
}

}  // namespace cleave::dist
