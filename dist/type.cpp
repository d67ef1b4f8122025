// The one form in which the type of a tensor is printed; a tensor's layout as users see it.
#include <cleave/core/error.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/dist/mesh_state.h>

namespace cleave {

std::string to_string(const TensorType& type) {
  std::string out = std::string(to_string(type.dtype)) + "[";
  for (int d = 0; d < type.shape.rank(); ++d) {
    if (d) out += ", ";
    out += std::to_string(type.shape[d]);
    if (!type.layout) continue;
    char before = '@';
    for (int a : type.layout->dims[static_cast<size_t>(d)]) {
      out += before + type.layout->mesh->axes()[static_cast<size_t>(a)].name;
      before = '.';
    }
  }
  out += ']';
  if (type.layout && type.layout->partial) out.append(1, ' ').append(dist::detail::partial_text(*type.layout));
  return out;
}

std::string describe(const TensorType& type) {
  std::string out = to_string(type);
  if (type.layout) out.append(" on ").append(to_string(dist::DeviceMesh(type.layout->mesh)));
  return out;
}

dist::Layout Tensor::layout() const {
  TensorType t = type();
  if (!t.layout) throw LayoutError("[layout] " + to_string(t) + " is a plain tensor, which has none");
  return dist::Layout(t.layout);
}

}  // namespace cleave
