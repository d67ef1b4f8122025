// What a save writes: files, headers, and the boxes of each tensor that this rank is to write.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>
#include <cleave/nn/safetensors.h>

namespace cleave::nn::detail {

struct PlannedTensor {
  SafetensorsEntry entry;
  Tensor tensor;                   ///< without partial axes; on ranks outside its mesh what the caller gave
  std::vector<dist::Box> boxes{};  ///< within the global tensor, that this rank writes: none or its own block
};
struct PlannedFile {
  std::string name, header;
  int64_t bytes = 0;
  std::vector<PlannedTensor> tensors{};
};

/// Files of one group in order: one named `<group>.safetensors`, or with more than `max_bytes` of tensors numbered
/// ones. A function of names and types alone, but for `tensor`. Throws ValueError for names that stand twice.
std::vector<PlannedFile> plan_files(const std::string& group, const NamedTensors& tensors, const Metadata& metadata,
                                    int64_t max_bytes);

/// Decides which rank writes which box: of the ranks that hold it the one with the fewest bytes so far.
class Owners {
 public:
  Owners(int rank, int ranks) : rank_(rank), load_(static_cast<size_t>(ranks), 0) {}
  /// The boxes of this rank. A plain tensor is one box that every rank holds.
  std::vector<dist::Box> assign(const TensorType& type);

 private:
  int take(const std::vector<int>& holders, int64_t bytes);
  int rank_;
  std::vector<int64_t> load_;
};

/// x in a layout that can be written well: summed where it is partial, by rows where a split leaves runs of bytes that
/// are shorter than `kShortRun`. May communicate. A rank outside its mesh gets x.
Tensor writable(const Tensor& x);
/// The type of what `writable` gives the members of x's mesh.
TensorType writable_type(const TensorType& type);
inline constexpr int64_t kShortRun = 4096;

}  // namespace cleave::nn::detail
