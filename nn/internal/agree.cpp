#include <cleave/core/error.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/internal/agree.h>

namespace cleave::nn::detail {

namespace {

using dist::LayoutData;
using Coordinates = std::array<int, dist::kMaxAxes>;

// What each rank says of each output: fits (1 or 0), dtype, rank, sizes.
constexpr size_t kWords = 3 + kMaxDims;

std::vector<int64_t> describe_blocks(const std::vector<Tensor>& blocks) {
  std::vector<int64_t> words(blocks.size() * kWords, 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].defined() || blocks[i].is_distributed()) continue;
    int64_t* w = &words[i * kWords];
    w[0] = 1;
    w[1] = static_cast<int64_t>(blocks[i].dtype());
    w[2] = blocks[i].dim();
    for (int d = 0; d < blocks[i].dim(); ++d) w[3 + d] = blocks[i].shape()[d];
  }
  return words;
}

/// Every rank's words, in the order of the mesh.
class Reports {
 public:
  Reports(const std::vector<Tensor>& blocks, const dist::MeshState& mesh) : mesh_(mesh), outputs_(blocks.size()) {
    std::vector<int64_t> mine = describe_blocks(blocks);
    auto ranks = static_cast<size_t>(mesh.ranks().size());
    all_.resize(ranks * mine.size());
    std::vector<int64_t> counts(ranks, static_cast<int64_t>(mine.size()));
    mesh.communicator(mesh.all_axes())
        .all_gather(mine.data(), all_.data(), counts, DType::i64, Device::Cpu, "custom_shard");
  }
  size_t ranks() const { return mesh_.ranks().size(); }
  const int64_t* of(size_t rank, size_t output) const { return &all_[(rank * outputs_ + output) * kWords]; }
  const int64_t* at(const Coordinates& c, size_t output) const {
    return of(static_cast<size_t>(mesh_.index_of(c)), output);
  }

 private:
  const dist::MeshState& mesh_;
  size_t outputs_;
  std::vector<int64_t> all_;
};

std::string which(size_t output) { return "[custom_shard] output " + std::to_string(output); }

void check_types(const Reports& reports, size_t output) {
  const int64_t* first = reports.of(0, output);
  for (size_t r = 0; r < reports.ranks(); ++r) {
    const int64_t* w = reports.of(r, output);
    if (!w[0])
      throw LayoutError(which(output) + " of rank " + std::to_string(r) +
                        " is distributed or undefined; the function must " + "return plain blocks");
    if (w[1] != first[1])
      throw DTypeError(which(output) + " is " + std::string(to_string(static_cast<DType>(first[1]))) +
                       " on rank 0 and " + std::string(to_string(static_cast<DType>(w[1]))) + " on rank " +
                       std::to_string(r));
    if (w[2] != first[2])
      throw ShapeError(which(output) + " has " + std::to_string(first[2]) + " dims on rank 0 and " +
                       std::to_string(w[2]) + " on rank " + std::to_string(r));
  }
}

// The sizes of the blocks along the axes that split the dim add up, the other coordinates being 0.
int64_t global_size(const Reports& reports, size_t output, int d, const LayoutData& layout) {
  const dist::AxisList& axes = layout.dims[static_cast<size_t>(d)];
  int64_t total = 0;
  Coordinates c{};
  auto visit = [&](auto& self, int axis) -> void {
    if (axis == axes.size()) {
      total += reports.at(c, output)[3 + d];
      return;
    }
    auto a = static_cast<size_t>(axes[axis]);
    for (c[a] = 0; c[a] < layout.mesh->size(axes[axis]); ++c[a]) self(self, axis + 1);
    c[a] = 0;
  };
  visit(visit, 0);
  return total;
}

Shape global_shape(const Reports& reports, size_t output, const LayoutData& layout) {
  Shape shape(layout.rank, 0);
  for (int d = 0; d < layout.rank; ++d) shape[d] = global_size(reports, output, d, layout);
  for (size_t r = 0; r < reports.ranks(); ++r) {
    Shape block = dist::local_box(shape, layout, layout.mesh->coordinates_of(static_cast<int>(r))).shape;
    for (int d = 0; d < layout.rank; ++d)
      if (reports.of(r, output)[3 + d] != block[d])
        throw ShapeError(which(output) + ", \"" + to_string(dist::Layout(&layout)) + "\", would be " +
                         to_string(shape) + ", of which rank " + std::to_string(r) + " must hold " + to_string(block) +
                         ", but its dim " + std::to_string(d) + " is " + std::to_string(reports.of(r, output)[3 + d]) +
                         "; return balanced blocks");
  }
  return shape;
}

}  // namespace

std::vector<Tensor> agree_on_outputs(const std::vector<Tensor>& blocks, const std::vector<dist::Layout>& layouts) {
  std::vector<Tensor> out;
  if (blocks.empty()) return out;
  const dist::MeshState& mesh = *layouts.front().data()->mesh;
  Reports reports(blocks, mesh);
  for (size_t i = 0; i < blocks.size(); ++i) {
    check_types(reports, i);
    const LayoutData* layout;
    try {
      layout = layouts[i].resolve(blocks[i].dim()).data();
    } catch (const LayoutError& e) { throw LayoutError(which(i) + ": " + e.what()); }
    Shape shape = global_shape(reports, i, *layout);
    out.push_back(cleave::detail::make_view(blocks[i], blocks[i].impl()->view, shape, layout));
  }
  return out;
}

}  // namespace cleave::nn::detail
