#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/internal/boxes.h>
#include <cleave/nn/internal/safetensors_header.h>
#include <cleave/nn/internal/save_plan.h>

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

using dist::LayoutData;
using Coordinates = std::array<int, dist::kMaxAxes>;

PlannedFile make_file(const std::string& name, std::vector<SafetensorsEntry> entries, const Metadata& metadata,
                      const std::map<std::string, Tensor>& tensors) {
  PlannedFile file{.name = name, .header = make_header(entries, metadata)};
  file.bytes = static_cast<int64_t>(file.header.size());
  for (auto& e : entries) {
    file.bytes += e.bytes;
    file.tensors.push_back({e, tensors.at(e.name)});
  }
  return file;
}

// Where a box of `mask`'s axes begins in the mesh: the coordinates on all other axes are 0.
int first_holder(const dist::MeshState& mesh, Coordinates c, dist::AxisMask mask) {
  for (size_t a = 0; a < c.size(); ++a)
    if (!(mask >> a & 1)) c[a] = 0;
  return mesh.index_of(c);
}

const LayoutData* by_rows(const LayoutData& layout) {
  LayoutData rows = layout;
  rows.dims = {};
  for (int d = 0; d < layout.rank; ++d)
    for (int axis : layout.dims[static_cast<size_t>(d)]) rows.dims[0].push_back(axis);
  return layout.mesh->intern(rows);
}

const LayoutData* writable_layout(const TensorType& type) {
  LayoutData whole = *type.layout;
  whole.partial = 0;
  const LayoutData* layout = type.layout->mesh->intern(whole);
  Shape largest = dist::local_box(type.shape, *layout, Coordinates{}).shape;
  int64_t run = run_bytes(type.shape, largest, size_of(type.dtype));
  bool few = numel(type.shape) * size_of(type.dtype) <= 16 * kShortRun;
  return few || run >= kShortRun || type.shape.empty() ? layout : by_rows(*layout);
}

}  // namespace

std::vector<PlannedFile> plan_files(const std::string& group, const NamedTensors& tensors, const Metadata& metadata,
                                    int64_t max_bytes) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__" || !by_name.emplace(name, tensor).second)
      throw ValueError(fmt::format("[checkpoint] the tensor name {} {}", name,
                                   name == "__metadata__" ? "is the format's own" : "stands twice in " + group));
    require_elements(name, tensor);
    entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
  }
  make_header(entries, {});  // their order and sizes
  std::vector<std::vector<SafetensorsEntry>> parts(1);
  int64_t bytes = 0;
  for (auto& e : entries) {
    if (bytes > 0 && bytes + e.bytes > max_bytes) {
      parts.emplace_back();
      bytes = 0;
    }
    bytes += e.bytes;
    parts.back().push_back(std::move(e));
  }
  std::vector<PlannedFile> files;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string name = parts.size() == 1 ? group : fmt::format("{}-{:05}-of-{:05}", group, i + 1, parts.size());
    files.push_back(make_file(name + ".safetensors", std::move(parts[i]), metadata, by_name));
  }
  return files;
}

int Owners::take(const std::vector<int>& holders, int64_t bytes) {
  int least = holders.front();
  for (int r : holders)
    if (load_[static_cast<size_t>(r)] < load_[static_cast<size_t>(least)]) least = r;
  load_[static_cast<size_t>(least)] += bytes;
  return least;
}

std::vector<OwnedBox> Owners::assign(const TensorType& type) {
  std::vector<OwnedBox> out;
  int64_t element = size_of(type.dtype);
  if (numel(type.shape) == 0) return out;
  if (!type.layout) {
    std::vector<int> all(load_.size());
    std::iota(all.begin(), all.end(), 0);
    out.push_back({take(all, numel(type.shape) * element), {Shape(type.shape.rank(), 0), type.shape}});
    return out;
  }
  const dist::MeshState& mesh = *type.layout->mesh;
  std::map<int, std::vector<int>> holders;  // of each box, by its first holder
  for (size_t i = 0; i < mesh.ranks().size(); ++i)
    holders[first_holder(mesh, mesh.coordinates_of(static_cast<int>(i)), type.layout->split())].push_back(
        mesh.ranks()[i]);
  for (const auto& [first, ranks] : holders) {
    dist::Box box = dist::local_box(type.shape, *type.layout, mesh.coordinates_of(first));
    if (int64_t bytes = numel(box.shape) * element; bytes > 0) out.push_back({take(ranks, bytes), box});
  }
  return out;
}

void give_whole_chunks(std::span<Chunk> chunks, const TensorType& type, const std::vector<OwnedBox>& boxes) {
  if (chunks.empty()) return;
  int64_t element = size_of(type.dtype), bytes = numel(type.shape) * element, chunk = chunks.front().bytes;
  for (const auto& [rank, box] : boxes) {
    if (run_bytes(type.shape, box.shape, element) < chunk) continue;
    each_run(type.shape, box, element, [&, rank = rank](int64_t at, int64_t, int64_t run) {
      int64_t end = at + run == bytes ? bytes + chunk : at + run;  // the last chunk may be short
      for (int64_t i = (at + chunk - 1) / chunk; (i + 1) * chunk <= end && i < std::ssize(chunks); ++i) {
        chunks[static_cast<size_t>(i)].rank = rank;
        chunks[static_cast<size_t>(i)].whole = true;
      }
    });
  }
}

void give_other_chunks(std::span<Chunk> chunks, int ranks) {
  int next = 0;
  for (Chunk& c : chunks)
    if (!c.whole) c.rank = next++ % ranks;
}

TensorType writable_type(const TensorType& type) {
  return {type.dtype, type.shape, type.layout ? writable_layout(type) : nullptr};
}

void require_elements(const std::string& name, const Tensor& x) {
  if (!x.defined())
    throw ValueError(fmt::format("[checkpoint] the tensor {} is undefined; leave it out, or assign it first", name));
  if (x.device() == Device::Meta && !x.impl()->absent)
    throw ValueError(
        fmt::format("[checkpoint] {} is {} and has no elements; call shard(model, mesh, plan) or materialize(model) "
                    "before a deferred model is saved",
                    name, describe(x.type())));
}

Tensor writable(const Tensor& x) {
  NoGrad off;
  Tensor out = x.detach();
  const LayoutData* layout = x.impl()->layout;
  if (!layout || !layout->mesh->member()) return out;
  const LayoutData* to = writable_layout(x.type());
  return to == layout ? out : dist::redistribute(out, dist::Layout(to));
}

}  // namespace cleave::nn::detail
