#include <cleave/core/primitives.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>
#include <cleave/optim/internal/whole_matrices.h>

#include <algorithm>
#include <vector>

namespace cleave::optim::detail {

namespace {

using dist::LayoutData;

// Of the list of matrices [N, R, C], each of them as `one` splits it.
const LayoutData* as_list(const LayoutData& one) {
  LayoutData list = one;
  list.rank = 3;
  list.dims = {{{}, one.dims[0], one.dims[1]}};
  return one.mesh->intern(list);
}

// The axes that split the matrices split their list instead.
const LayoutData* dealt_out(const LayoutData& one) {
  LayoutData list = one;
  list.rank = 3;
  list.dims = {{one.dims[0]}};
  for (int axis : one.dims[1]) list.dims[0].push_back(axis);
  return one.mesh->intern(list);
}

// Number i of a plain list, sharing its storage.
Tensor item(const Tensor& list, int64_t i) {
  const Shape& shape = list.shape();
  View v = cleave::detail::sub_view(cleave::detail::elements(list), Shape{i, 0, 0}, Shape{1, shape[1], shape[2]});
  v.shape.erase(0);
  v.strides.erase(0);
  return cleave::detail::make_view(list, v, v.shape, nullptr);
}

void put(const Tensor& from, const Tensor& list, int64_t i) {
  cleave::detail::copy_view(list.device(), cleave::detail::elements(from), item(list, i).impl()->view);
}

bool alike(const MatrixBlock& a, const MatrixBlock& b) {
  return a.layout == b.layout && a.shape == b.shape && a.block.dtype() == b.block.dtype() &&
         a.block.device() == b.block.device();
}

}  // namespace

void on_whole_matrices(std::span<MatrixBlock> matrices, const std::function<Tensor(size_t, const Tensor&)>& f,
                       const char* label) {
  std::vector<bool> done(matrices.size(), false);
  for (size_t first = 0; first < matrices.size(); ++first) {
    if (done[first]) continue;
    const MatrixBlock head = matrices[first];
    std::vector<size_t> kind;
    for (size_t i = first; i < matrices.size(); ++i)
      if (!done[i] && alike(matrices[i], head)) kind.push_back(i);
    auto count = static_cast<int64_t>(kind.size());
    Shape global{count, head.shape[0], head.shape[1]}, local{count, head.block.shape()[0], head.block.shape()[1]};
    const LayoutData *split = as_list(*head.layout), *dealt = dealt_out(*head.layout);

    Tensor blocks = cleave::detail::make_tensor(global, local, head.block.dtype(), head.block.device(), split);
    for (int64_t k = 0; k < count; ++k) put(matrices[kind[static_cast<size_t>(k)]].block, blocks.local(), k);
    Tensor whole = dist::redistribute_data(blocks, dealt, label), mine = whole.local();
    int64_t offset = dist::local_box(global, *dealt).offset[0];
    for (int64_t k = 0; k < mine.shape()[0]; ++k) put(f(kind[static_cast<size_t>(offset + k)], item(mine, k)), mine, k);
    Tensor back = dist::redistribute_data(whole, split, label).local();
    for (int64_t k = 0; k < count; ++k) {
      matrices[kind[static_cast<size_t>(k)]].block = item(back, k);
      done[kind[static_cast<size_t>(k)]] = true;
    }
  }
}

}  // namespace cleave::optim::detail
