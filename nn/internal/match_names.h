// Which tensor of a file goes into which of a model.
#pragma once
#include <string>
#include <vector>

#include <cleave/nn/internal/checkpoint_files.h>

namespace cleave::nn::detail {

/// A tensor to be loaded and the names that it may stand under.
struct LoadTarget {
  std::vector<std::string> names;
  Tensor tensor;
};
/// `stored` has one tensor for each name of the target that the file has.
struct Match {
  const LoadTarget* target = nullptr;
  std::vector<const StoredTensor*> stored{};
  bool transposed = false;
};
struct Matches {
  std::vector<Match> list;
  LoadReport report;
};

/// A function of names and types alone. Throws as Checkpoint::load.
Matches match_names(const StoredGroup& group, const std::vector<LoadTarget>& targets, const LoadOptions& options,
                    const std::string& path);

}  // namespace cleave::nn::detail
