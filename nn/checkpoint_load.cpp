#include <cleave/core/error.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/buffer.h>
#include <cleave/nn/checkpoint.h>
#include <cleave/nn/internal/match_names.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/observer.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace cleave::nn {

using detail::CheckpointFiles;
using detail::LoadTarget;
using detail::Match;
using detail::StoredChunk;
using detail::StoredTensor;

namespace {

namespace core = cleave::detail;

using LayoutOf = std::function<dist::Layout(const std::string&, const TensorType&)>;

// What this rank holds of a tensor; none outside its mesh.
dist::Box own_box(const TensorType& type) {
  Shape origin(type.shape.rank(), 0);
  if (!type.layout) return {origin, type.shape};
  if (!type.layout->mesh->member()) return {origin, Shape(type.shape.rank(), 0)};
  return dist::local_box(type.shape, *type.layout);
}
bool holds(const TensorType& type) { return !type.layout || type.layout->mesh->member(); }

dist::Box stored_box(const Match& match) {
  dist::Box box = own_box(match.target->tensor.type());
  if (match.transposed) {
    std::swap(box.offset[0], box.offset[1]);
    std::swap(box.shape[0], box.shape[1]);
  }
  return box;
}

// Every name of a tied tensor must say the same.
void require_ties(const CheckpointFiles& files, const Match& match, const dist::Box& box) {
  auto bytes = [](const Tensor& x) { return static_cast<size_t>(numel(x.shape()) * size_of(x.dtype())); };
  Tensor first = files.read(*match.stored[0], box);
  for (size_t i = 1; i < match.stored.size(); ++i) {
    Tensor other = files.read(*match.stored[i], box);
    const void *a = core::elements(first).data, *b = core::elements(other).data;
    if (first.dtype() != other.dtype() || (bytes(first) > 0 && std::memcmp(a, b, bytes(first)) != 0))
      throw FileError(fmt::format("{}: {} and {} are one tensor in the model, but differ in the file", files.path,
                                  match.stored[0]->entry->name, match.stored[i]->entry->name));
  }
}

// All that this rank is going to read, and that it can be read.
int64_t verify_matches(CheckpointFiles& files, const std::vector<Match>& matches) {
  std::vector<StoredChunk> chunks;
  for (const Match& match : matches)
    if (holds(match.target->tensor.type()))
      for (const StoredTensor* stored : match.stored) files.list_chunks(*stored, stored_box(match), chunks);
  files.verify(chunks);
  int64_t bytes = 0;
  for (const Match& match : matches) {
    if (!holds(match.target->tensor.type())) continue;
    dist::Box box = stored_box(match);
    if (match.stored.size() > 1) require_ties(files, match, box);
    if (match.stored[0]->entry->dtype == DType::boolean) files.read(*match.stored[0], box);  // checks its bytes
    bytes += numel(box.shape) * size_of(match.stored[0]->entry->dtype);
  }
  return bytes;
}

TensorType type_to_read(const std::string& name, const StoredTensor& stored, const LayoutOf& layout_of) {
  TensorType type{stored.entry->dtype, stored.entry->shape};
  dist::Layout layout = layout_of(name, type);
  if (layout.defined()) type.layout = layout.resolve(type.shape.rank()).data();
  if (type.layout && type.layout->partial)
    throw LayoutError(
        fmt::format("[read] {} cannot be read as {}: a partial sum has no one value", name, describe(type)));
  return type;
}

Tensor read_as(const CheckpointFiles& files, const StoredTensor& stored, const TensorType& type) {
  dist::Box box = own_box(type);
  if (!holds(type)) return core::make_tensor(type.shape, box.shape, type.dtype, Device::Meta, type.layout, true);
  Tensor block = files.read(stored, box);
  return type.layout ? core::make_view(block, block.impl()->view, type.shape, type.layout) : block;
}

// Whether the file's bytes are the tensor's.
bool direct(const Match& match) {
  const Tensor& x = match.target->tensor;
  return !match.transposed && match.stored[0]->entry->dtype == x.dtype() && core::elements(x).contiguous();
}

// Room for the largest block that is converted on its way, so that nothing is allocated while the model changes.
Tensor room_for_blocks(const std::vector<Match>& matches) {
  int64_t bytes = 0;
  for (const Match& match : matches)
    if (holds(match.target->tensor.type()) && !direct(match))
      bytes = std::max(bytes, numel(stored_box(match).shape) * size_of(match.stored[0]->entry->dtype));
  return core::make_tensor({bytes}, DType::u8, Device::Cpu);
}

void assign(const CheckpointFiles& files, const Match& match, const Tensor& room) {
  const Tensor& x = match.target->tensor;
  if (!holds(x.type())) return;
  const StoredTensor& stored = *match.stored[0];
  View to = core::elements(x);
  dist::Box box = stored_box(match);
  if (direct(match)) {
    files.files[stored.file].read(*stored.entry, box, to.data);
    x.bump_version();
    return;
  }
  View from{core::elements(room).data, stored.entry->dtype, box.shape, contiguous_strides(box.shape)};
  files.files[stored.file].read(*stored.entry, box, from.data);
  if (match.transposed) {
    std::swap(from.shape[0], from.shape[1]);
    std::swap(from.strides[0], from.strides[1]);
  }
  core::copy_view(x.device(), from, to);
  x.bump_version();
}

LoadReport load_targets(CheckpointFiles& files, const std::vector<LoadTarget>& targets, const LoadOptions& options,
                        const std::string& group) {
  detail::Matches matches;
  int64_t bytes = 0;
  Tensor room;
  files.ranks.run([&] {
    matches = match_names(files.group(group), targets, options, files.path);
    bytes = verify_matches(files, matches.list);
    room = room_for_blocks(matches.list);
  });
  FileSpan span("load", bytes);
  for (const Match& match : matches.list) assign(files, match, room);
  return std::move(matches.report);
}

// Each parameter and buffer once, under all its names.
std::vector<LoadTarget> targets_of(const ModuleBase& model) {
  std::vector<LoadTarget> out;
  std::map<const detail::ParameterState*, size_t> known;
  for (const auto& [name, p] : model.named_parameters_with_ties()) {
    auto [at, added] = known.emplace(p.state().get(), out.size());
    if (added) out.push_back({.names = {}, .tensor = p.tensor()});
    out[at->second].names.push_back(name);
  }
  for (const auto& [name, b] : model.named_buffers()) out.push_back({{name}, b.tensor()});
  return out;
}

template <class T>
const T& value_of(const CheckpointFiles& files, const std::string& name, const char* kind) {
  auto at = files.values.find(name);
  if (at == files.values.end()) {
    std::vector<std::string> known;
    for (const auto& [other, value] : files.values) known.push_back(other);
    throw FileError(fmt::format("{} lacks the value {}{}", files.path, name, detail::nearest(name, known)));
  }
  if (const T* value = std::get_if<T>(&at->second)) return *value;
  throw FileError(fmt::format("{}: the value {} is no {}", files.path, name, kind));
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : files_(std::make_unique<CheckpointFiles>()) {
  files_->ranks.run([&] { detail::open_files(*files_, path); });
  detail::require_one(*files_);
}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const std::string& Checkpoint::path() const { return files_->path; }
bool Checkpoint::has_manifest() const { return files_->manifest.has_value(); }
bool Checkpoint::has_group(const std::string& group) const { return files_->groups.contains(group); }
const Metadata& Checkpoint::metadata(const std::string& group) const { return files_->group(group).metadata; }
const CheckpointValues& Checkpoint::values() const { return files_->values; }

std::vector<std::string> Checkpoint::groups() const {
  std::vector<std::string> out;
  for (const auto& [name, group] : files_->groups) out.push_back(name);
  return out;
}

std::vector<std::pair<std::string, TensorType>> Checkpoint::tensors(const std::string& group) const {
  std::vector<std::pair<std::string, TensorType>> out;
  for (const auto& [name, stored] : files_->group(group).tensors)
    out.emplace_back(name, TensorType{stored.entry->dtype, stored.entry->shape});
  return out;
}

int64_t Checkpoint::integer(const std::string& name) const { return value_of<int64_t>(*files_, name, "whole number"); }
double Checkpoint::number(const std::string& name) const { return value_of<double>(*files_, name, "number"); }
const std::string& Checkpoint::text(const std::string& name) const {
  return value_of<std::string>(*files_, name, "text");
}

void Checkpoint::verify() const {
  std::vector<StoredChunk> chunks;
  for (const auto& [name, group] : files_->groups)
    for (const auto& [tensor, stored] : group.tensors)
      for (int64_t c = 0; c < files_->chunks_of(stored); ++c) chunks.push_back({&stored, c});
  files_->ranks.run([&] {
    auto mine = dist::balanced_block(static_cast<int64_t>(chunks.size()), files_->ranks.size(), files_->ranks.rank());
    auto first = chunks.begin() + mine.offset;
    files_->verify({first, first + mine.size});
  });
}

NamedTensors Checkpoint::read(
    const std::string& group,
    const std::function<dist::Layout(const std::string&, const TensorType&)>& layout_of) const {
  NamedTensors out;
  files_->ranks.run([&] {
    const auto& stored = files_->group(group).tensors;
    std::vector<TensorType> types;
    std::vector<StoredChunk> chunks;
    for (const auto& [name, tensor] : stored) {
      types.push_back(type_to_read(name, tensor, layout_of));
      if (holds(types.back())) files_->list_chunks(tensor, own_box(types.back()), chunks);
    }
    files_->verify(chunks);
    auto type = types.begin();
    for (const auto& [name, tensor] : stored) out.emplace_back(name, read_as(*files_, tensor, *type++));
  });
  return out;
}

LoadReport Checkpoint::load(const ModuleBase& model, const LoadOptions& options, const std::string& group) const {
  return load_targets(*files_, targets_of(model), options, group);
}

LoadReport Checkpoint::load(const NamedTensors& targets, const LoadOptions& options, const std::string& group) const {
  std::vector<LoadTarget> list;
  for (const auto& [name, tensor] : targets) list.push_back({{name}, tensor});
  return load_targets(*files_, list, options, group);
}

LoadReport load_checkpoint(const std::string& path, const ModuleBase& model, const LoadOptions& options) {
  return Checkpoint(path).load(model, options);
}

}  // namespace cleave::nn
