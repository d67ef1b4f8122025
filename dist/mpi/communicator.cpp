#include <cleave/dist/mpi/communicator.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

struct Done : Pending {
  void wait() override {}
};

/// One round of messages of the same size between all members.
class Round : public Polled {
 public:
  Round(MpiCommunicator& comm, const CallRecord& record, int tag, const std::byte* out, std::byte* in, int64_t bytes)
      : place_("comparing " + detail::place(record, comm.name())) {
    for (int r = 0; r < comm.size(); ++r) {
      if (r == comm.rank()) continue;
      exchange_.receive(comm.process.data, comm.world_rank(r), in + r * bytes, bytes, tag);
      exchange_.send(comm.process.data, comm.world_rank(r), out + r * bytes, bytes, tag);
    }
  }
  bool advance() override { return exchange_.done(); }
  std::vector<int> missing() override { return exchange_.missing(); }
  void abandon() override { exchange_.abandon(); }
  std::string place() const override { return place_; }

 private:
  std::string place_;
  Exchange exchange_;
};

/// What members compare: the hash of the call, and for all_to_all what is sent to the receiver of the stamp.
struct Stamp {
  uint64_t hash = 0;
  int64_t count = 0;
};
struct Text {
  char text[400] = {};
};

template <class T>
void exchange(MpiCommunicator& comm, const CallRecord& record, int tag, const std::vector<T>& out, std::vector<T>& in) {
  Round round(comm, record, tag, reinterpret_cast<const std::byte*>(out.data()),
              reinterpret_cast<std::byte*>(in.data()), sizeof(T));
  comm.process.wait(round);
}

}  // namespace

std::vector<std::string> MpiCommunicator::exchange_texts(const CallRecord& record, const std::string& mine,
                                                         uint64_t number) {
  Text text;
  std::strncpy(text.text, mine.c_str(), sizeof text.text - 1);
  std::vector<Text> out(ranks.size(), text), in = out;
  exchange(*this, record, tag(number, verdict), out, in);
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
  exchange(*this, record, tag(number, compared), out, in);

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

void MpiCommunicator::run(const Collective& call) {
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

}  // namespace cleave::dist::detail
