// Inputs whose rows lie across the output's rows.
#pragma once
#include <optional>

#include <cleave/core/cpu/scratch.h>
#include <cleave/core/view.h>

namespace cleave::cpu {

/// x itself, which must stay, or, where reading it in out's order would fetch a cache line for every element, a copy in
/// that order.
class Turned {
 public:
  Turned(const View& x, const View& out);
  const View& view() const { return copy_ ? copy_->view : x_; }
  /// Of the copy; 0: none is made.
  static int64_t copy_bytes(const View& x, const View& out);

 private:
  struct Copy {
    Copy(int64_t bytes, const View& x) : memory(bytes), view(x) {}
    Scratch memory;
    View view;
  };
  const View& x_;
  std::optional<Copy> copy_;
};

}  // namespace cleave::cpu
