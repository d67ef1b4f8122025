// Whole slices by index: rows of a table, slices along a dim, and their gradients.
#include <cleave/core/cpu/index.h>
#include <cleave/core/cpu/index_parts.h>
#include <cleave/core/cpu/row_plan.h>
#include <cleave/core/cpu/workspace.h>
#include <cleave/core/error.h>

#include <string>

namespace cleave::cpu {
namespace {

// Slices of a source and a destination: how their elements are walked, and where each slice starts.
struct Slices {
  RowPlan elements;  // view 0: source, view 1: destination
  int64_t source_step;
  std::vector<int64_t> places;  // of the slices that positions name, in the other view
};

// Offsets of all elements of (shape, strides) in row-major order.
std::vector<int64_t> offsets_of(const Shape& shape, const Strides& strides) {
  std::vector<int64_t> out(static_cast<size_t>(numel(shape)));
  const Strides only[] = {strides};
  RowPlan plan(shape, only);
  plan.walk(0, plan.rows(), plan.rows(), [&](int64_t first, int64_t count, const auto& base, const auto& step) {
    for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(first + i)] = base[0] + i * step[0];
  });
  return out;
}

Shape first_dims(const Shape& shape, int n) {
  Shape out = shape;
  out.resize(n);
  return out;
}
Strides first_dims(const Strides& strides, int n) {
  Strides out = strides;
  out.resize(n);
  return out;
}
template <class List>
List without_first(List list, int n) {
  for (int i = 0; i < n; ++i) list.erase(0);
  return list;
}

RowPlan plan_of(const Shape& shape, const Strides& a, const Strides& b) {
  const Strides both[] = {a, b};
  return RowPlan(shape, both);
}

template <class T>
void move_run(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t n) {
  if (from_step == 1 && to_step == 1)
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  else
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = from[i * from_step];
}

// Slice places[p] of out = slice index[p] - first of x (of `rows`), or zeros.
void gather_slices(const View& x, int64_t rows, const int64_t* index, int64_t first, const View& out, const Slices& s) {
  int64_t size = s.elements.rows();
  visit_width(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto positions = static_cast<int64_t>(s.places.size());
    parallel_for(positions, row_grain(size), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        int64_t r = index[p] - first;
        bool here = r >= 0 && r < rows;
        T* to = out.as<T>() + s.places[static_cast<size_t>(p)];
        s.elements.walk(0, size, size, [&](int64_t, int64_t count, const auto& base, const auto& step) {
          if (here) return move_run(x.as<T>() + r * s.source_step + base[0], step[0], to + base[1], step[1], count);
          for (int64_t i = 0; i < count; ++i) to[base[1] + i * step[1]] = zero;
        });
      }
    });
  });
}

// Positions grouped by the row they name, each group in order of position: those of row r are order[starts[r] ..].
struct Groups {
  std::vector<int64_t> starts, order;
  Groups(const int64_t* index, int64_t positions, int64_t first, int64_t rows)
      : starts(static_cast<size_t>(rows) + 1, 0) {
    auto in = [&](int64_t p) { return index[p] >= first && index[p] - first < rows; };
    for (int64_t p = 0; p < positions; ++p)
      if (in(p)) ++starts[static_cast<size_t>(index[p] - first) + 1];
    for (size_t r = 1; r < starts.size(); ++r) starts[r] += starts[r - 1];
    order.resize(static_cast<size_t>(starts.back()));
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    for (int64_t p = 0; p < positions; ++p)
      if (in(p)) order[static_cast<size_t>(next[static_cast<size_t>(index[p] - first)]++)] = p;
  }
};

// Slice r of dx (of `rows`) = the sum of the slices places[p] of dout with index[p] - first == r: of the same dtype, or
// f32 for halves. View 0 is dx.
void add_slices(const View& dout, const int64_t* index, int64_t first, const View& dx, int64_t rows, const Slices& s) {
  Groups groups(index, static_cast<int64_t>(s.places.size()), first, rows);
  constexpr int64_t kPiece = 1024;
  int64_t size = s.elements.rows();
  auto run = [&]<class T, class R>(T, R) {
    using A = typename SumOf<T>::type;
    parallel_for(rows, row_grain(size), [&](int64_t begin, int64_t end) {
      A sum[kPiece];
      for (int64_t r = begin; r < end; ++r)
        s.elements.walk(0, size, kPiece, [&](int64_t, int64_t count, const auto& base, const auto& step) {
          std::fill_n(sum, count, A(0));
          for (int64_t g = groups.starts[static_cast<size_t>(r)]; g < groups.starts[static_cast<size_t>(r) + 1]; ++g) {
            int64_t place = s.places[static_cast<size_t>(groups.order[static_cast<size_t>(g)])];
            const T* from = dout.as<T>() + place + base[1];
            for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<A>(from[i * step[1]]);
          }
          R* to = dx.as<R>() + r * s.source_step + base[0];
          for (int64_t i = 0; i < count; ++i) to[i * step[0]] = static_cast<R>(sum[i]);
        });
    });
  };
  visit_dtype(dout.dtype, [&](auto type) {
    if (is_half(dout.dtype) && dx.dtype == DType::f32)
      run(type, 0.0F);
    else
      run(type, type);
  });
}

// Slices of a table's rows against a tensor [index..., rest...].
Slices row_slices(const View& table, const View& index, const View& out) {
  int n = index.rank();
  return {plan_of(without_first(table.shape, 1), without_first(table.strides, 1), without_first(out.strides, n)),
          table.strides[0], offsets_of(first_dims(out.shape, n), first_dims(out.strides, n))};
}

Slices dim_slices(const View& x, int dim, const View& out) {
  Slices s{plan_of(without(x.shape, dim), without(x.strides, dim), without(out.strides, dim)), x.strides[dim], {}};
  s.places = offsets_of({out.shape[dim]}, {out.strides[dim]});
  return s;
}

}  // namespace

int64_t index_scratch(const View& index) {
  View dense{nullptr, DType::i64, index.shape, contiguous_strides(index.shape)};
  return DenseIndices::bytes(index) + copy_scratch(index, dense);
}

void check_indices(const char* op, const View& index, int64_t size, int64_t ignore) {
  DenseIndices dense(index);
  for (int64_t i = 0, n = index.numel(); i < n; ++i) {
    int64_t at = dense.data()[i];
    if ((at < 0 || at >= size) && at != ignore)
      throw IndexError("[" + std::string(op) + "] index " + std::to_string(at) + " is out of range for a dim of size " +
                       std::to_string(size));
  }
}

void take_rows(const View& table, const View& index, int64_t first, const View& out) {
  if (out.numel() == 0) return;
  gather_slices(table, table.shape[0], DenseIndices(index).data(), first, out, row_slices(table, index, out));
}

void add_rows(const View& dout, const View& index, int64_t first, const View& dtable) {
  if (dtable.numel() == 0) return;
  add_slices(dout, DenseIndices(index).data(), first, dtable, dtable.shape[0], row_slices(dtable, index, dout));
}

void index_select(const View& x, int dim, const View& index, int64_t first, const View& out) {
  if (out.numel() == 0) return;
  gather_slices(x, x.shape[dim], DenseIndices(index).data(), first, out, dim_slices(x, dim, out));
}

void index_add(const View& dout, int dim, const View& index, int64_t first, const View& dx) {
  if (dx.numel() == 0) return;
  add_slices(dout, DenseIndices(index).data(), first, dx, dx.shape[dim], dim_slices(dx, dim, dout));
}

}  // namespace cleave::cpu
