// Collectives that go on in the background: what they use, and how their result is waited for.
#pragma once
#include <cleave/dist/communicator.h>
#include <cleave/dist/redistribute/blocks.h>

namespace cleave::dist::steps {

/// What a collective uses while it goes on.
struct InUse {
  Tensor source{};    ///< sent from, if anything is sent from it directly: whoever wants to write to it waits too
  Pieces sent{};      ///< packed to be sent
  Pieces received{};  ///< to be brought to their `boxes` in the result when somebody waits
  std::vector<Box> boxes{};
};

/// Lets `out` carry the collective that was started to fill it.
void put_under_way(std::unique_ptr<Pending> collective, const Tensor& out, InUse use = {});

}  // namespace cleave::dist::steps
