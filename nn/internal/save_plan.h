// What a save writes: files, headers, and which rank writes and hashes what.
#pragma once
#include <span>
#include <string>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>
#include <cleave/nn/safetensors.h>

namespace cleave::nn::detail {

struct PlannedTensor {
  SafetensorsEntry entry;
  Tensor tensor;
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

/// A box of a tensor and the rank that writes it.
struct OwnedBox {
  int rank;
  dist::Box box;
};
/// Decides which rank writes which box: of the ranks that hold it the one with the fewest bytes so far.
class Owners {
 public:
  explicit Owners(int ranks) : load_(static_cast<size_t>(ranks), 0) {}
  /// The boxes that make up a tensor, without empty ones. A plain tensor is one box that every rank holds.
  std::vector<OwnedBox> assign(const TensorType& type);

 private:
  int take(const std::vector<int>& holders, int64_t bytes);
  std::vector<int64_t> load_;
};

/// A chunk of a tensor's bytes, and the rank that hashes it.
struct Chunk {
  size_t file, tensor;
  int64_t offset, bytes;  ///< in the file
  int rank = 0;
  bool whole = false;  ///< that rank writes all of it, in one run
};
/// Gives the chunks of one tensor that lie whole within a run of a box to the rank that writes it.
void give_whole_chunks(std::span<Chunk> chunks, const TensorType& type, const std::vector<OwnedBox>& boxes);
/// Shares out the others.
void give_other_chunks(std::span<Chunk> chunks, int ranks);

/// Throws ValueError for a tensor without elements.
void require_elements(const std::string& name, const Tensor& x);
/// x in a layout that can be written well: summed where it is partial, by rows where a split leaves runs of bytes that
/// are shorter than `kShortRun`. May communicate. A rank outside its mesh gets x.
Tensor writable(const Tensor& x);
/// The type of what `writable` gives the members of x's mesh.
TensorType writable_type(const TensorType& type);
inline constexpr int64_t kShortRun = 4096;

}  // namespace cleave::nn::detail
