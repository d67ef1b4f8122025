// Checkpoints: a program's state in a folder of safetensors files that hold global tensors, so that any mesh, layout or
// other reader of the format opens them.
//
//   step-00000100/
//     model.safetensors       or model-00001-of-00003.safetensors, ... with model.safetensors.index.json
//     optimizer.safetensors   one for each further group
//     state.json              values: step, schedule, random numbers, position in the data
//     manifest.json           sizes, and the XXH3 (64 bits) of every file and every chunk of every tensor
//
// The bytes do not depend on the mesh that saved them. A tensor's chunks are `chunk_bytes` long (the last is shorter),
// counted in its own row-major bytes; its `xxh3` is that of its chunks' digests in order, 8 bytes each, little-endian.
//
// All functions here are collective: every rank of the program calls them with tensors of the same names and types, and
// an error on one rank (a full disk, say) is thrown alike on all. Ranks outside a tensor's mesh take part with its
// type.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/nn/module_base.h>
#include <cleave/nn/safetensors.h>

namespace cleave::nn {

namespace detail {
class FileOperations;
class SaveJob;
struct CheckpointFiles;
}  // namespace detail

/// Numbers and texts by name; the same on every rank. What depends on a rank has no place here: a position in the data
/// counts global batches (`LoaderState`), random numbers have one stream (`rng_state`).
using CheckpointValues = std::map<std::string, std::variant<int64_t, double, std::string>>;

/// Tensors that are saved in a file of their own.
struct CheckpointGroup {
  std::string name;  ///< "model": letters, digits, '-' and '_'
  NamedTensors tensors;
  Metadata metadata{};  ///< of its files
};

struct CheckpointContent {
  std::vector<CheckpointGroup> groups;
  CheckpointValues values{};
};

struct SaveOptions {
  int64_t max_file_bytes = 5'000'000'000;   ///< of tensors in one file; a group with more has several
  detail::FileOperations* files = nullptr;  ///< how this rank writes; null: the system's. For tests of faults
};

/// Which names of a tied parameter are written. Readers of ours take either.
enum class TiedNames : uint8_t {
  first,  ///< one: its first
  all     ///< every one, with the same values: for readers that know nothing of ties
};
/// A model's parameters and buffers as they are stored.
NamedTensors named_tensors(const ModuleBase& model, TiedNames ties = TiedNames::first);

/// Writes `folder` whole: under another name first, all on the disk, the manifest last, then renamed. Until the rename,
/// and after any failure or crash, `folder` is what it was before. Every rank writes the boxes it owns (of replicas one
/// does; they share the load) straight to their places. Partial tensors are summed for it, and tensors whose split
/// leaves runs of less than 4 KiB are brought together first: both communicate. Throws ValueError for a name that
/// stands twice or a tensor without elements, FileError.
void save_checkpoint(const std::string& folder, const CheckpointContent& content, const SaveOptions& options = {});

/// A save that goes on while the program computes. Its elements are copies: the tensors may be overwritten at once.
class CheckpointSave {
 public:
  /// A save that was not waited for is given up: its name is what it was, unless all but that was done already.
  ~CheckpointSave();
  CheckpointSave(CheckpointSave&&) noexcept;
  CheckpointSave& operator=(CheckpointSave&&) noexcept;

  /// Goes on if all ranks have come as far, without waiting for the disk; true once all know that the folder is
  /// complete under its name. Collective: one small all-gather each call. Throws what save_checkpoint would. Ask once a
  /// step: a save is complete only when someone has asked or waited.
  bool poll();
  /// Collective. Throws what save_checkpoint would.
  void wait();

 private:
  friend CheckpointSave save_checkpoint_async(const std::string&, const CheckpointContent&, const SaveOptions&);
  explicit CheckpointSave(std::unique_ptr<detail::SaveJob> job);
  std::unique_ptr<detail::SaveJob> job_;
};
/// Returns as soon as the elements are copied. A thread of this rank writes and hashes and never communicates: all that
/// ranks agree on, they agree on in `poll` and `wait`, so no collective of the program can stand in the way. The result
/// is, byte for byte, that of save_checkpoint.
[[nodiscard]] CheckpointSave save_checkpoint_async(const std::string& folder, const CheckpointContent& content,
                                                   const SaveOptions& options = {});

/// What a save holds on this rank from its start to its completion, made of nothing: to plan memory with.
struct CheckpointCopies {
  std::vector<Tensor> held;
  std::vector<int64_t> bytes;  ///< of the elements that each rank writes
};
/// Of a program whose parameters and state are on Device::Meta, and may have no elements: by save_checkpoint_async, or
/// by save_checkpoint, which copies only what it has to bring together. Communicates as a save does.
CheckpointCopies checkpoint_copies(const std::vector<CheckpointGroup>& groups, bool background = true);

struct LoadOptions {
  /// Off: names that only the model or only the file has are left alone, and told in the report.
  bool strict = true;
  /// Conversions that keep every value (bf16 to f32, f32 to f64, ...) are always made; with this also those among
  /// floating dtypes that round. Others are errors.
  bool cast = false;
  /// Names in the file to names in the model: each name that a regular expression (ECMAScript) matches whole becomes
  /// its text, with $1, $2, ... for what the parentheses took. The first that matches counts.
  std::vector<std::pair<std::string, std::string>> renames{};
  /// Names in the model (`*` is a segment, `**` any number; each names one) whose matrices the file holds transposed.
  std::vector<std::string> transposed{};
};

/// Names that were not loaded: of the model, and of the file.
struct LoadReport {
  std::vector<std::string> missing, unexpected;
};

/// A checkpoint that is open for reading: a folder of ours, a folder or index of Hugging Face's, or one safetensors
/// file. Every rank maps the files and reads its own boxes alone; what has a manifest is verified chunk by chunk before
/// it is used. Restore a program so that nothing has changed if anything is wrong:
///
///   nn::Checkpoint file(folder);
///   auto state = file.read("optimizer", layout_of);  // verified; nothing changes yet
///   file.load(model);                                // all is verified on all ranks before the first is assigned
///   optimizer.load_state(state);
class Checkpoint {
 public:
  /// Reads and checks headers, manifest and sizes. Throws FileError alike on all ranks, also if what they see there is
  /// not the same.
  explicit Checkpoint(const std::string& path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::string& path() const;
  /// Whether there are hashes to verify.
  bool has_manifest() const;
  /// "model", ...; without a manifest "model" alone.
  std::vector<std::string> groups() const;
  bool has_group(const std::string& group) const;
  /// Names and plain types of a group. Throws FileError for one that it lacks.
  std::vector<std::pair<std::string, TensorType>> tensors(const std::string& group) const;
  const Metadata& metadata(const std::string& group) const;
  const CheckpointValues& values() const;
  /// Throw FileError for a value that is missing or of another kind.
  int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;

  /// Reads and hashes everything, each rank a part. Throws FileError naming the tensor.
  void verify() const;
  /// A group's tensors, each in the layout that `layout_of` gives for its name and type (patterns allowed; an undefined
  /// one: plain), this rank's blocks alone.
  NamedTensors read(const std::string& group,
                    const std::function<dist::Layout(const std::string&, const TensorType&)>& layout_of) const;
  /// Into a model's parameters and buffers, which keep their layouts and dtypes. A tied one may stand under any of its
  /// names; under several its values must be the same. Verifies everything on all ranks before it changes anything.
  /// Throws FileError for names that are missing, unexpected (with the nearest ones) or of the wrong shape, DTypeError
  /// for conversions that the options do not allow, ValueError for a deferred model, for two names in the file that
  /// become one, for a bad regular expression, and for one of `transposed` that names nothing.
  LoadReport load(const ModuleBase& model, const LoadOptions& options = {}, const std::string& group = "model") const;
  /// Into tensors of any kind.
  LoadReport load(const NamedTensors& targets, const LoadOptions& options = {},
                  const std::string& group = "model") const;

 private:
  std::unique_ptr<detail::CheckpointFiles> files_;
};

/// Checkpoint(path).load(model, options).
LoadReport load_checkpoint(const std::string& path, const ModuleBase& model, const LoadOptions& options = {});

}  // namespace cleave::nn
