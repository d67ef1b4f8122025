#include <cleave/dist/internal/call.h>

#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::dist {

std::string_view to_string(CollectiveKind kind) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "broadcast",  "send_recv",  "barrier"};
  return names[static_cast<int>(kind)];
}

namespace detail {

void CallHeader::assign(const Collective& call, uint64_t number) {
  sequence = number;
  kind = call.kind;
  dtype = call.dtype;
  op = call.op;
  device = call.device;
  peer = call.peer;
  count = call.count;
  std::strncpy(label, call.label, sizeof label - 1);  // pads with zeros: the hash is of all of it
}

CallRecord::CallRecord(const Collective& call, uint64_t number) {
  assign(call, number);
  auto alike = compared_counts(call);
  counts.assign(alike.begin(), alike.end());
}

std::span<const int64_t> compared_counts(const Collective& call) {
  if (call.kind == CollectiveKind::all_gather) return call.recv_counts;
  if (call.kind == CollectiveKind::reduce_scatter) return call.send_counts;
  return {};
}

uint64_t hash(const CallHeader& r, std::span<const int64_t> counts) {
  uint64_t h = 0;
  auto mix = [&h](int64_t value) { h = (h ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15u, h ^= h >> 29; };
  int64_t words[sizeof r.label / 8];
  std::memcpy(words, r.label, sizeof words);
  for (int64_t word : words) {
    mix(word);
    if (!word) break;
  }
  mix(static_cast<int64_t>(r.sequence));
  mix(static_cast<int64_t>(r.kind) | static_cast<int64_t>(r.dtype) << 8 | static_cast<int64_t>(r.op) << 16 |
      static_cast<int64_t>(r.device) << 24);
  mix(r.peer);
  mix(r.count);
  mix(static_cast<int64_t>(counts.size()));
  for (int64_t n : counts) mix(n);
  return h;
}

std::string describe(const CallRecord& r) {
  std::string text(to_string(r.kind));
  if (*r.label && text != r.label) text += fmt::format(" '{}'", r.label);
  if (r.kind == CollectiveKind::barrier) return text;
  std::string amount = r.counts.empty() ? fmt::format("{} ", r.count) : fmt::format("[{}] ", fmt::join(r.counts, ", "));
  if (r.kind == CollectiveKind::all_to_all) amount.clear();
  text += fmt::format(" of {}{}", amount, to_string(r.dtype));
  if (r.kind == CollectiveKind::all_reduce || r.kind == CollectiveKind::reduce_scatter)
    text += fmt::format(", {}", to_string(r.op));
  if (r.kind == CollectiveKind::broadcast) text += fmt::format(" from member {}", r.peer);
  if (r.device != Device::Cpu) text += fmt::format(" on {}", to_string(r.device));
  return text;
}

std::string place(const CallRecord& r, const std::string& name) {
  std::string text(to_string(r.kind));
  if (*r.label && text != r.label) text += fmt::format(" '{}'", r.label);
  text += " on " + name;
  return r.sequence ? fmt::format("{} (call {})", text, r.sequence) : text;
}

std::string disagreement(uint64_t sequence, const std::string& name, int a, int b, const std::string& call_a,
                         const std::string& call_b) {
  return fmt::format(
      "[communicator {}] ranks disagree in call {}: rank {} calls {}; rank {} calls {}. every rank must make the same "
      "calls with the same sizes in the same order",
      name, sequence, a, call_a, b, call_b);
}

int64_t sum(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

int64_t payload_bytes(const Collective& call, int rank) {
  int64_t elements = call.count;
  if (call.kind == CollectiveKind::all_gather) elements = call.recv_counts[static_cast<size_t>(rank)];
  if (call.kind == CollectiveKind::reduce_scatter || call.kind == CollectiveKind::all_to_all)
    elements = sum(call.send_counts);
  if (call.kind == CollectiveKind::barrier) elements = 0;
  return elements * size_of(call.dtype);
}

}  // namespace detail
}  // namespace cleave::dist
