// One rank of a world that exists only as counters.
#include <cleave/dist/internal/call.h>
#include <cleave/dist/internal/world_backend.h>

#include <cleave/core/error.h>

#include <algorithm>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

struct Done : Pending {
  void wait() override {}
};

class SimulatedCommunicator : public Communicator {
 public:
  SimulatedCommunicator(int rank, int size, const std::string& name) : Communicator(rank, size, name) {}

 private:
  void run(const Collective& call) override {
    if (call.device == Device::Meta || call.kind == CollectiveKind::barrier) return;
    refuse(call.label);
  }
  std::unique_ptr<Pending> begin(const Collective& call) override {
    run(call);
    return std::make_unique<Done>();
  }
  void send_bytes(const void*, int64_t, int) override { refuse("send"); }
  void receive_bytes(void*, int64_t, int) override { refuse("recv"); }

  [[noreturn]] void refuse(const char* what) {
    throw CommError(fmt::format("[{}] a simulated world of ranks moves no data; use tensors of device meta", what));
  }
};

class SimulatedBackend : public WorldBackend {
 public:
  SimulatedBackend(int ranks, int rank) : WorldBackend("simulated", rank, ranks, ranks) {}
  std::unique_ptr<Communicator> make_communicator(const std::vector<int>& ranks, const std::string& axis) override {
    auto me = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return std::make_unique<SimulatedCommunicator>(static_cast<int>(me), static_cast<int>(ranks.size()), axis);
  }
};

}  // namespace

std::unique_ptr<WorldBackend> make_simulated_backend(int ranks, int rank) {
  return std::make_unique<SimulatedBackend>(ranks, rank);
}

}  // namespace cleave::dist::detail
