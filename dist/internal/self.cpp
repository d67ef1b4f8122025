// Groups of one rank.
#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/world_backend.h>

#include <cleave/core/error.h>

#include <cstring>
#include <deque>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

struct Done : Pending {
  void wait() override {}
};

class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(const std::string& name) : Communicator(0, 1, name) {}

 private:
  void run(const Collective& call) override {
    if (call.device != Device::Cpu) return;
    if (call.kind == CollectiveKind::all_to_all && call.send_counts[0] != call.recv_counts[0])
      throw CommError(
          fmt::format("[all_to_all] {} elements sent where {} are expected", call.send_counts[0], call.recv_counts[0]));
    if (call.kind == CollectiveKind::send_recv && call.send) return send_bytes(call.send, payload_bytes(call, 0), 0);
    if (call.kind == CollectiveKind::send_recv) return receive_bytes(call.recv, payload_bytes(call, 0), 0);
    auto bytes = static_cast<size_t>(payload_bytes(call, 0));
    if (bytes && call.recv != call.send) std::memmove(call.recv, call.send, bytes);
  }

  std::unique_ptr<Pending> begin(const Collective& call) override {
    run(call);
    return std::make_unique<Done>();
  }

  void send_bytes(const void* data, int64_t bytes, int) override {
    auto* p = static_cast<const std::byte*>(data);
    messages_.emplace_back(p, p + bytes);
  }

  void receive_bytes(void* data, int64_t bytes, int) override {
    if (messages_.empty()) throw CommError("[recv] a rank alone would wait for ever: send to itself first");
    std::vector<std::byte> message = std::move(messages_.front());
    messages_.pop_front();
    if (message.size() != static_cast<size_t>(bytes))
      throw CommError(fmt::format("[recv] {} bytes were sent where {} are expected", message.size(), bytes));
    if (bytes) std::memcpy(data, message.data(), message.size());
  }

  std::deque<std::vector<std::byte>> messages_;
};

class SelfBackend : public WorldBackend {
 public:
  SelfBackend() : WorldBackend("self", 0, 1, 1) {}
  std::unique_ptr<Communicator> make_communicator(const std::vector<int>&, const std::string& axis) override {
    return make_self_communicator(axis);
  }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const std::string& name) {
  return std::make_unique<SelfCommunicator>(name);
}
std::unique_ptr<WorldBackend> make_self_backend() { return std::make_unique<SelfBackend>(); }

}  // namespace cleave::dist::detail
