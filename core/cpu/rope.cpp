// Rotary positions.
#include <cleave/core/cpu/index.h>
#include <cleave/core/cpu/row_plan.h>

#include <cmath>
#include <vector>

namespace cleave::cpu {
namespace {

// Cosines and sines of a run of positions, [rows, pairs] each. The last one used is kept: the layers of a model ask
// for the same in turn.
template <class T>
struct Angles {
  double base = 0;
  int64_t first = 0, rows = 0, pairs = 0;
  std::vector<T> cosine, sine;

  void prepare(double b, int64_t f, int64_t r, int64_t p) {
    if (base == b && first == f && rows == r && pairs == p) return;
    base = b, first = f, rows = r, pairs = p;
    cosine.resize(static_cast<size_t>(r * p));
    sine.resize(static_cast<size_t>(r * p));
    for (int64_t j = 0; j < p; ++j) {
      double frequency = std::pow(b, -static_cast<double>(j) / static_cast<double>(p));
      for (int64_t i = 0; i < r; ++i) {
        double angle = static_cast<double>(f + i) * frequency;
        cosine[static_cast<size_t>(i * p + j)] = static_cast<T>(std::cos(angle));
        sine[static_cast<size_t>(i * p + j)] = static_cast<T>(std::sin(angle));
      }
    }
  }
};

// `gap` lies between the two of a pair, `next` between pairs.
template <class T>
void rotate(const T* x, const T* cosine, const T* sine, T sign, int64_t pairs, int64_t gap, int64_t next, T* y) {
  for (int64_t j = 0; j < pairs; ++j) {
    T a = x[j * next], b = x[j * next + gap], c = cosine[j], s = sign * sine[j];
    y[j * next] = a * c - b * s;
    y[j * next + gap] = a * s + b * c;
  }
}

template <class T>
void rope_rows(const View& x, double base, int64_t first, bool interleaved, bool inverse, const View& out) {
  int dim = x.rank() - 1;
  int64_t d = x.shape[dim], t = x.shape[dim - 1], pairs = d / 2, most = panel_rows(d);
  thread_local Angles<T> kept;
  kept.prepare(base, first, t, pairs);
  const T *cosine = kept.cosine.data(), *sine = kept.sine.data(), sign = inverse ? T(-1) : T(1);
  const Strides strides[] = {without(x.strides, dim), without(out.strides, dim)};
  RowPlan plan(without(x.shape, dim), strides);
  parallel_for(plan.rows(), row_grain(d), [&](int64_t begin, int64_t end) {
    RowReader<T, 2> in(x, x.strides[dim], d, most);
    RowWriter<T, 3> to(out, out.strides[dim], d, most);
    plan.walk(begin, end, most, [&](int64_t row, int64_t count, const auto& from, const auto& step) {
      in.load(from[0], step[0], count);
      to.begin(from[1], step[1]);
      for (int64_t r = 0; r < count; ++r) {
        int64_t at = (row + r) % t * pairs;
        if (interleaved)
          rotate(in.row(r), cosine + at, sine + at, sign, pairs, 1, 2, to.row(r));
        else
          rotate(in.row(r), cosine + at, sine + at, sign, pairs, pairs, 1, to.row(r));
        if (d % 2) to.row(r)[d - 1] = in.row(r)[d - 1];
      }
      to.end(count);
    });
  });
}

}  // namespace

void rope(const View& x, double base, int64_t first, bool interleaved, bool inverse, const View& out) {
  if (x.numel() == 0) return;
  if (x.dtype == DType::f64)
    rope_rows<double>(x, base, first, interleaved, inverse, out);
  else
    rope_rows<float>(x, base, first, interleaved, inverse, out);
}

}  // namespace cleave::cpu
