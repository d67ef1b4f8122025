#include <cleave/dist/internal/reduce.h>

#include <cleave/core/cpu/combine.h>

namespace cleave::dist::detail {

void reduce_elements(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                     int64_t begin, int64_t end) {
  auto how = op == ReduceOp::sum ? cpu::Combine::sum : op == ReduceOp::max ? cpu::Combine::max : cpu::Combine::min;
  cpu::combine(dtype, how, in, out, begin, end);
}

}  // namespace cleave::dist::detail
