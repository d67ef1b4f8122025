// Inputs whose rows lie across the output's rows.
#pragma once
#include <optional>

#include <cleave/core/cpu/scratch.h>
#include <cleave/core/view.h>

namespace cleave::cpu {

/// x itself or, where reading it in out's order would fetch a cache line for every element, a copy in that order.
class Turned {
 public:
  Turned(const View& x, const View& out);
  const View& view() const { return view_; }

 private:
  View view_;
  std::optional<Scratch> memory_;
};

}  // namespace cleave::cpu
