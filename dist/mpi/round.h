// One round of messages of the same size between all members of a group.
#pragma once
#include <span>
#include <string>
#include <vector>

#include <cleave/dist/mpi/exchange.h>
#include <cleave/dist/mpi/process.h>

namespace cleave::dist::detail {

/// Sends out[r] to the r-th of `ranks` and gets in[r] from it; in[r] of this rank itself stays. `place` is for reports.
class Round : public Polled {
 public:
  Round(MpiProcess& process, std::span<const int> ranks, std::string place, int tag, const std::byte* out,
        std::byte* in, int64_t bytes);
  bool advance() override { return exchange_.done(); }
  std::vector<int> missing() override { return exchange_.missing(); }
  void abandon() override { exchange_.abandon(); }
  std::string place() const override { return place_; }

 private:
  std::string place_;
  Exchange exchange_;
};

/// T is plain bytes.
template <class T>
void exchange_round(MpiProcess& process, std::span<const int> ranks, std::string place, int tag,
                    const std::vector<T>& out, std::vector<T>& in) {
  Round round(process, ranks, std::move(place), tag, reinterpret_cast<const std::byte*>(out.data()),
              reinterpret_cast<std::byte*>(in.data()), sizeof(T));
  process.wait(round);
}

}  // namespace cleave::dist::detail
