// What goes along one dim in order: extrema by index, running sums, sorting.
#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/reduce.h>
#include <cleave/core/cpu/reduce.h>
#include <cleave/core/cpu/scratch.h>

#include <type_traits>

namespace cleave::cpu {
namespace {

// The rows of a view along one dim.
struct Rows {
  Rows(const View& v, int dim) : view(v), count(1), length(v.shape[dim]) {
    row.add(length, v.strides[dim]);
    for (int d = 0; d < v.rank(); ++d) {
      if (d == dim) continue;
      outer.add(v.shape[d], v.strides[d]);
      count *= v.shape[d];
    }
  }
  char* start(int64_t r) const { return static_cast<char*>(view.data) + outer.offset(r) * size_of(view.dtype); }
  Walker walker(Compute type) const { return Walker(view.data, view.dtype, row, type); }
  // Calls f(row) for all rows, on several threads.
  template <class F>
  void each(const F& f) const {
    int64_t grain = std::max<int64_t>(1, kBlock * kGrainBlocks / std::max<int64_t>(1, length));
    parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) f(r);
    });
  }

  const View& view;
  Dimensions row, outer;
  int64_t count, length;
};

// Calls f with a value of the compute type of `t`.
template <class F>
void visit_compute(DType t, const F& f) {
  switch (compute_type(t)) {
    case Compute::f32:
      return f(float{});
    case Compute::f64:
      return f(double{});
    case Compute::i64:
      return f(int64_t{});
  }
}

// Calls f(first, elements, n) for pieces of row r of at most kBlock elements.
template <class T, class F>
void read_row(const Rows& rows, int64_t r, const F& f) {
  alignas(64) std::byte buffer[kBlock * 8];
  Walker walker = rows.walker(compute_type(dtype_of<T>()));
  walker.rebase(rows.start(r));
  walker.seek(0);
  for (int64_t i = 0, n; i < rows.length; i += n) {
    n = std::min(kBlock, rows.length - i);
    f(i, static_cast<const T*>(walker.read(n, buffer)), n);
  }
}

// The extremum of each piece is found by the vectorised loop; only the winning piece is searched for its index.
template <class T>
int64_t extremum_of(const Rows& rows, int64_t r, bool largest) {
  using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  Reduce kind = largest ? Reduce::max : Reduce::min;
  auto loop = CLEAVE_PICK(reduce_loops).of[static_cast<int>(kind)][static_cast<int>(compute_type(dtype_of<T>()))].row;
  Total best{};
  int64_t index = -1;
  read_row<T>(rows, r, [&](int64_t first, const T* x, int64_t n) {
    Total here;
    loop(x, n, &here);
    bool nan = here != here, better = largest ? here > best : here < best;
    if (index >= 0 && !better && !(nan && best == best)) return;
    int64_t i = 0;
    while (nan ? x[i] == x[i] : static_cast<Total>(x[i]) != here) ++i;
    best = here;
    index = first + i;
  });
  return index;
}

template <class T>
void cumsum_row(const Rows& from, const Rows& to, int64_t r) {
  using Total = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;  // integers wrap
  alignas(64) std::byte buffer[kBlock * 8];
  Walker out = to.walker(compute_type(dtype_of<T>()));
  out.rebase(to.start(r));
  out.seek(0);
  Total sum = 0;
  read_row<T>(from, r, [&](int64_t, const T* x, int64_t n) {
    T* y = static_cast<T*>(out.target(n, buffer));
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(sum += static_cast<Total>(x[i]));
    out.written(n, buffer);
  });
}

template <class T>
struct Entry {
  T value;
  int64_t index;
};

template <class T>
void sort_row(bool descending, const Rows& from, const Rows& values, const Rows& indices, int64_t r, Entry<T>* row) {
  read_row<T>(from, r, [&](int64_t first, const T* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) row[first + i] = {x[i], first + i};
  });
  auto less = [](T a, T b) { return a < b || (a == a && b != b); };
  std::stable_sort(row, row + from.length, [&](const Entry<T>& a, const Entry<T>& b) {
    return descending ? less(b.value, a.value) : less(a.value, b.value);
  });
  auto store = CLEAVE_PICK(convert_loops)
                   .store[static_cast<int>(values.view.dtype)][static_cast<int>(compute_type(dtype_of<T>()))];
  char* value = values.start(r);
  auto* index = reinterpret_cast<int64_t*>(indices.start(r));
  for (int64_t i = 0; i < from.length; ++i) {
    store(&row[i].value, 1, value + i * values.row.stride[0] * size_of(values.view.dtype), 1);
    index[i * indices.row.stride[0]] = row[i].index;
  }
}

}  // namespace

void arg_extremum(bool largest, const View& x, int dim, const View& out) {
  if (out.numel() == 0) return;
  Rows from(x, dim), to(out, dim);
  visit_compute(x.dtype, [&]<class T>(T) {
    from.each([&](int64_t r) { *reinterpret_cast<int64_t*>(to.start(r)) = extremum_of<T>(from, r, largest); });
  });
}

void cumsum(const View& x, int dim, const View& out) {
  if (out.numel() == 0) return;
  Rows from(x, dim), to(out, dim);
  visit_compute(x.dtype, [&]<class T>(T) { from.each([&](int64_t r) { cumsum_row<T>(from, to, r); }); });
}

void sort(bool descending, const View& x, int dim, const View& values, const View& indices) {
  if (x.numel() == 0) return;
  Rows from(x, dim), to(values, dim), order(indices, dim);
  visit_compute(x.dtype, [&]<class T>(T) {
    Scratch memory(x.numel() * static_cast<int64_t>(sizeof(Entry<T>)));
    from.each([&](int64_t r) { sort_row<T>(descending, from, to, order, r, memory.as<Entry<T>>() + r * from.length); });
  });
}

}  // namespace cleave::cpu
