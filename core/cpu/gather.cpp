// Single elements by index, along one dim.
#include <cleave/core/cpu/index.h>
#include <cleave/core/cpu/index_parts.h>
#include <cleave/core/cpu/row_plan.h>
#include <cleave/core/cpu/workspace.h>

namespace cleave::cpu {
namespace {

// Lines along dim of an indexed view, the indices and the view that is shaped like them.
struct Lines {
  RowPlan plan;
  int64_t n, x_step, index_step, other_step;

  Lines(const View& x, const View& index, const View& other, int dim)
      : plan(without(index.shape, dim),
             std::array<Strides, 3>{without(x.strides, dim), without(contiguous_strides(index.shape), dim),
                                    without(other.strides, dim)}),
        n(index.shape[dim]),
        x_step(x.strides[dim]),
        index_step(contiguous_strides(index.shape)[dim]),
        other_step(other.strides[dim]) {}
};

}  // namespace

void gather(const View& x, int dim, const View& index, int64_t first, const View& out) {
  if (out.numel() == 0) return;
  DenseIndices dense(index);
  Lines lines(x, index, out, dim);
  int64_t rows = x.shape[dim];
  visit_width(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(lines.plan.rows(), row_grain(lines.n), [&](int64_t begin, int64_t end) {
      lines.plan.walk(begin, end, end - begin, [&](int64_t, int64_t count, const auto& base, const auto& step) {
        auto one = [&](int64_t line, int64_t i) {
          int64_t r = dense.data()[base[1] + line * step[1] + i * lines.index_step] - first;
          T value = zero;
          if (r >= 0 && r < rows) value = x.as<T>()[base[0] + line * step[0] + r * lines.x_step];
          out.as<T>()[base[2] + line * step[2] + i * lines.other_step] = value;
        };
        if (lines.other_step == 1) {
          for (int64_t line = 0; line < count; ++line)
            for (int64_t i = 0; i < lines.n; ++i) one(line, i);
        } else {
          for (int64_t i = 0; i < lines.n; ++i)
            for (int64_t line = 0; line < count; ++line) one(line, i);
        }
      });
    });
  });
}

// A line of dx belongs to one line of indices, so lines are independent; each is summed in a buffer.
void scatter_add(const View& dout, int dim, const View& index, int64_t first, const View& dx) {
  fill(dx, int64_t{0});
  if (dx.numel() == 0 || index.numel() == 0) return;
  DenseIndices dense(index);
  Lines lines(dx, index, dout, dim);
  int64_t rows = dx.shape[dim];
  visit_dtype(dx.dtype, [&](auto type) {
    using T = decltype(type);
    using A = typename SumOf<T>::type;
    parallel_for(lines.plan.rows(), row_grain(lines.n + rows), [&](int64_t begin, int64_t end) {
      Workspace<A, 8> memory(rows);
      A* sum = memory.data();
      lines.plan.walk(begin, end, end - begin, [&](int64_t, int64_t count, const auto& base, const auto& step) {
        for (int64_t line = 0; line < count; ++line) {
          std::fill_n(sum, rows, A(0));
          for (int64_t i = 0; i < lines.n; ++i) {
            int64_t r = dense.data()[base[1] + line * step[1] + i * lines.index_step] - first;
            if (r >= 0 && r < rows)
              sum[r] += static_cast<A>(dout.as<T>()[base[2] + line * step[2] + i * lines.other_step]);
          }
          T* to = dx.as<T>() + base[0] + line * step[0];
          for (int64_t r = 0; r < rows; ++r) to[r * lines.x_step] = static_cast<T>(sum[r]);
        }
      });
    });
  });
}

}  // namespace cleave::cpu
