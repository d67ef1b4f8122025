// Parameters that an optimizer has updated on their owners alone.
#pragma once
#include <vector>

#include <cleave/core/tensor.h>

namespace cleave::optim::detail {

/// Collects updated blocks and brings them to where the parameters are stored, in buckets where they are gathered.
class Updated {
 public:
  /// `block` is `stored` updated, under the layout of its owners.
  void add(const Tensor& stored, const Tensor& block);
  /// Communicates.
  void bring_back();

 private:
  struct Item {
    Tensor stored, block;
  };
  std::vector<Item> items_;
};

}  // namespace cleave::optim::detail
