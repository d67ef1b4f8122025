// The ranks of a program doing something to files together: what fails on one fails alike on all.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <cleave/dist/launch.h>

namespace cleave::nn::detail {

/// All ranks of the running program; one rank outside a launched function. Its members communicate, counted under the
/// phase "checkpoint", and are called by every rank in the same order.
class Together {
 public:
  /// Throws ValueError in a simulated world, which has no values.
  Together();
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Runs f on this rank, then throws on every rank what it threw on the lowest rank that failed, saying which.
  void run(const std::function<void()>& f) const;
  /// The second half: `error` is what this rank has met, or null.
  void agree(const std::exception_ptr& error) const;
  /// Whether it holds on every rank.
  bool all(bool holds) const;
  /// Everyone's numbers in rank order, given how many each has.
  std::vector<int64_t> gather(const std::vector<int64_t>& mine, const std::vector<int64_t>& counts) const;
  /// Rank 0's text.
  std::string text_of_first(const std::string& mine) const;

 private:
  dist::World* world_;
  int rank_ = 0, size_ = 1;
};

}  // namespace cleave::nn::detail
