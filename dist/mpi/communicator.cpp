#include <cleave/dist/mpi/communicator.h>

#include <cleave/core/error.h>
#include <cleave/dist/mpi/hosts.h>
#include <cleave/dist/mpi/round.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

struct Done : Pending {
  void wait() override {}
};

/// What members compare: the hash of the call, and for all_to_all what is sent to the receiver of the stamp.
struct Stamp {
  uint64_t hash = 0;
  int64_t count = 0;
};
struct Text {
  char text[400] = {};
};

}  // namespace

std::vector<std::string> MpiCommunicator::exchange_texts(const CallRecord& record, const std::string& mine,
                                                         uint64_t number) {
  Text text;
  std::strncpy(text.text, mine.c_str(), sizeof text.text - 1);
  std::vector<Text> out(ranks.size(), text), in = out;
  exchange_round(process, ranks, "comparing " + place(record, name()), tag(number, verdict), out, in);
  std::vector<std::string> texts;
  for (const Text& t : in) texts.emplace_back(t.text);
  return texts;
}

void MpiCommunicator::compare(const Collective& call, uint64_t number) {
  CallRecord record(call, sequence());
  bool pairs = call.kind == CollectiveKind::all_to_all;
  std::vector<Stamp> out(ranks.size(), {hash(record, record.counts), 0});
  for (size_t r = 0; pairs && r < out.size(); ++r) out[r].count = call.send_counts[r];
  std::vector<Stamp> in = out;
  exchange_round(process, ranks, "comparing " + place(record, name()), tag(number, compared), out, in);

  auto other = std::find_if(in.begin(), in.end(), [&](const Stamp& s) { return s.hash != in[0].hash; });
  if (other != in.end()) {
    auto texts = exchange_texts(record, describe(record), number);
    auto i = static_cast<size_t>(other - in.begin());
    throw CommError(disagreement(sequence(), name(), ranks[0], ranks[i], texts[0], texts[i]));
  }
  if (!pairs) return;
  std::string fault;  // a pair whose counts differ is seen by its receiver, who tells the others
  for (size_t r = in.size(); r-- > 0;)
    if (in[r].count != call.recv_counts[r])
      fault = fmt::format("[{}] rank {} sends {} elements to rank {}, which expects {} (call {} on {})", call.label,
                          ranks[r], in[r].count, process.rank, call.recv_counts[r], sequence(), name());
  for (const std::string& text : exchange_texts(record, fault, number))
    if (!text.empty()) throw CommError(text);
}

MpiCommunicator::MpiCommunicator(MpiProcess& process, std::vector<int> ranks, int rank, int number,
                                 const std::string& name, std::unique_ptr<Window> window)
    : Communicator(rank, static_cast<int>(ranks.size()), name),
      process(process),
      ranks(std::move(ranks)),
      window_(std::move(window)),
      number_(number) {}

void MpiCommunicator::run(const Collective& call) {
  if (window_ && !process.failed()) {
    if (call.device == Device::Meta && !checked_mode()) return;
    return window_->run(call, sequence());
  }
  process.check();
  uint64_t number = calls_++;
  if (checked_mode()) compare(call, number);
  if (call.device == Device::Cpu) MpiCall(*this, call, number, false).wait();
}

std::unique_ptr<Pending> MpiCommunicator::begin(const Collective& call) {
  process.check();
  bool point_to_point = call.kind == CollectiveKind::send_recv;
  uint64_t number = point_to_point ? 0 : calls_++;
  if (checked_mode() && !point_to_point) compare(call, number);
  if (call.device != Device::Cpu) return std::make_unique<Done>();
  return std::make_unique<MpiCall>(*this, call, number, true);
}

void MpiCommunicator::send_bytes(const void* data, int64_t bytes, int to) {
  process.check();
  Collective call{
      .kind = CollectiveKind::send_recv, .send = data, .count = bytes, .dtype = DType::u8, .peer = to, .label = "send"};
  MpiCall(*this, call, 0, false).wait();
}

void MpiCommunicator::receive_bytes(void* data, int64_t bytes, int from) {
  process.check();
  Collective call{.kind = CollectiveKind::send_recv,
                  .recv = data,
                  .count = bytes,
                  .dtype = DType::u8,
                  .peer = from,
                  .label = "recv"};
  MpiCall(*this, call, 0, false).wait();
}

std::shared_ptr<void> MpiCommunicator::shared_buffer(int64_t bytes) {
  std::shared_ptr<void> shared = window_ ? process.memory->allocate(bytes) : nullptr;
  return shared ? shared : Communicator::shared_buffer(bytes);
}

}  // namespace cleave::dist::detail
