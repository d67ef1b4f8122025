// LoaderState: how far a TokenLoader has come.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::nn {

/// A position in the stream of global batches. It says nothing of ranks or layouts: whoever reads the same data with
/// the same `seq`, `seed`, `shuffle` and `drop_last` goes on from it, on any number of ranks.
struct LoaderState {
  int64_t step = 0;     ///< global batches given since the start
  int64_t samples = 0;  ///< windows given since the start, padding not counted
  int64_t epoch = 0;    ///< from 0
  int64_t sample = 0;   ///< windows of this epoch given or dropped; at most epoch_samples
  // What the order of windows depends on; compared when a loader is restored.
  int64_t epoch_samples = 0;  ///< windows of an epoch
  int64_t seq = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = true;
  uint64_t data = 0;  ///< TokenDataset::fingerprint

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// One line of JSON: {"version":1,"step":12,"samples":96,...}.
std::string to_string(const LoaderState& state);
/// Reads it back. Throws ValueError, naming the member, for one that is missing, of another kind, or below 0, and for
/// another version.
LoaderState read_loader_state(std::string_view text);

}  // namespace cleave::nn
