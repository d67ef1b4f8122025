// What a loader's thread does: global positions to this rank's tokens. Touches no tensor.
#pragma once
#include <optional>
#include <vector>

#include <cleave/nn/data/token_loader.h>

namespace cleave::nn::detail {

/// This rank's block of a MicroBatch, row-major.
struct HostPart {
  dist::Block rows;  ///< of the global batch, over all ranks
  int64_t tokens = 0;
  std::vector<int64_t> ids, targets;
};
struct HostBatch {
  LoaderState after;
  int64_t tokens = 0;
  std::vector<int64_t> windows;
  std::vector<HostPart> parts;
};

class BatchReader {
 public:
  BatchReader(const TokenDataset& data, const LoaderOptions& options);

  int64_t samples() const { return samples_; }
  int64_t steps() const;
  LoaderState start() const;
  /// The batch at a position, or nothing after the last epoch.
  std::optional<HostBatch> read(LoaderState at) const;

  const TokenDataset data;
  const LoaderOptions options;

 private:
  int64_t first_token(int64_t epoch, int64_t sample) const;
  int64_t valid_targets(int64_t first_token) const;
  void announce(const HostPart& part, const std::vector<int64_t>& windows, const dist::Box& box) const;
  void read_part(HostPart& part, const std::vector<int64_t>& windows, const dist::Box& box) const;
  void read_row(int64_t first_token, int64_t column, int64_t count, int64_t* ids, int64_t* targets) const;

  int64_t windows_ = 0, samples_ = 0;  // of the data; of an epoch
  std::vector<dist::Box> boxes_;       // of this rank, by part
  uint64_t fingerprint_ = 0;
};

}  // namespace cleave::nn::detail
