#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/checkpoint.h>
#include <cleave/nn/internal/safetensors_header.h>
#include <cleave/nn/internal/save_plan.h>
#include <cleave/nn/observer.h>

#include <map>

namespace cleave::nn {

CheckpointCopies checkpoint_copies(const std::vector<CheckpointGroup>& groups, bool background) {
  NoGrad off;
  FileSpan span("save", 0);
  const dist::World* world = dist::World::current();
  int rank = world ? world->rank() : 0, ranks = world ? world->size() : 1;
  detail::Owners owners(ranks);
  CheckpointCopies out{.held = {}, .bytes = std::vector<int64_t>(static_cast<size_t>(ranks), 0)};
  auto take = [&](const Tensor& given) {
    TensorType type = detail::writable_type(given.type());
    Tensor x = given.detach();
    if (type.layout && type.layout->mesh->member()) x = dist::redistribute(x, dist::Layout(type.layout));
    bool fresh = x.storage() != given.storage();
    for (const detail::OwnedBox& owned : owners.assign(type)) {
      out.bytes[static_cast<size_t>(owned.rank)] += numel(owned.box.shape) * size_of(type.dtype);
      if (owned.rank != rank) continue;
      Tensor block = x.local();
      bool copied = background && !fresh;
      out.held.push_back(copied ? cleave::detail::dense_copy(block, type.dtype) : cleave::detail::dense(block));
    }
  };
  for (const CheckpointGroup& group : groups) {
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, Tensor> by_name;
    for (const auto& [name, x] : group.tensors) {
      entries.push_back({.name = name, .dtype = x.dtype(), .shape = x.shape()});
      by_name.emplace(name, x);
    }
    detail::make_header(entries, {});  // in the order of a file
    for (const SafetensorsEntry& e : entries) take(by_name.at(e.name));
  }
  return out;
}

}  // namespace cleave::nn
