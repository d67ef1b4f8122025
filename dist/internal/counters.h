// This rank's traffic.
#pragma once
#include <cleave/dist/communicator.h>

namespace cleave::dist::detail {

/// Adds a collective of a group of `ranks` in which this rank hands in `bytes`; `whole` is the buffer that the cost
/// model prices. False: an `Uncounted` keeps it out.
bool count_collective(const Collective& call, const std::string& axis, int ranks, int64_t bytes, int64_t whole);

/// While it lives, this rank's collectives are not counted.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  bool before_;
};

/// That this rank enters it, for `last_collective`.
void note_collective(const Collective& call, const std::string& axis);

}  // namespace cleave::dist::detail
