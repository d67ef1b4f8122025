#include <cleave/core/error.h>
#include <cleave/core/shape.h>

namespace cleave {

void detail::too_many_dims(int64_t n) {
  throw ShapeError("a tensor has at most " + std::to_string(kMaxDims) + " dims, not " + std::to_string(n));
}

int64_t numel(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

Strides contiguous_strides(const Shape& shape) {
  Strides out;
  out.resize(shape.rank());
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    out[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return out;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

std::string to_string(const IntList& list) {
  std::string out = "[";
  for (int i = 0; i < list.rank(); ++i) out += (i ? ", " : "") + std::to_string(list[i]);
  return out + "]";
}

}  // namespace cleave
