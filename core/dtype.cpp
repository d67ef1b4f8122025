#include <cleave/core/dtype.h>

namespace cleave {

std::string_view to_string(DType t) {
  constexpr std::string_view names[kDTypes] = {"f64", "f32", "bf16", "f16", "i64", "i32", "u8", "bool"};
  return names[static_cast<int>(t)];
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  bool fa = is_floating(a), fb = is_floating(b);
  if (fa != fb) return fa ? a : b;
  if (fa && is_half(a) && is_half(b)) return DType::f32;
  return a < b ? a : b;  // within a category the enumeration goes from large to small
}

}  // namespace cleave
