// The fused updates against their formulas in f64.
#include <cleave/core/cpu/optimizer.h>

#include <doctest/doctest.h>

#include "core/view_data.h"

using namespace cleave;
using namespace cleave::testing;

namespace {

const Shape kShapes[] = {{0}, {1}, {77}, {2100}, {33, 40}};

}  // namespace

TEST_CASE("adam: several steps, coupled and decoupled decay") {
  for (const Shape& shape : kShapes)
    for (DType t : {DType::f32, DType::f64})
      for (bool decoupled : {false, true}) {
        Data w(t, shape), g(t, shape), m(t, shape), v(t, shape);
        auto n = static_cast<size_t>(numel(shape));
        std::vector<double> rw(n), rm(n), rv(n);
        set_all(w.view, [](int64_t i) { return noise(i); });
        set_all(m.view, [](int64_t) { return 0; });
        set_all(v.view, [](int64_t) { return 0; });
        for (size_t i = 0; i < n; ++i) rw[i] = get(w.view, static_cast<int64_t>(i));
        const double lr = 0.01, b1 = 0.9, b2 = 0.99, eps = 1e-8, decay = 0.1;
        for (int step = 1; step <= 3; ++step) {
          set_all(g.view, [step](int64_t i) { return noise(i + 1000 * step); });
          double c1 = 1 - std::pow(b1, step), c2 = 1 - std::pow(b2, step);
          cpu::adam(w.view, g.view, m.view, v.view, {lr, b1, b2, eps, decay, c1, c2, decoupled});
          for (size_t i = 0; i < n; ++i) {
            double gi = get(g.view, static_cast<int64_t>(i)) + (decoupled ? 0 : decay * rw[i]);
            if (decoupled) rw[i] *= 1 - lr * decay;
            rm[i] = b1 * rm[i] + (1 - b1) * gi;
            rv[i] = b2 * rv[i] + (1 - b2) * gi * gi;
            rw[i] -= lr * (rm[i] / c1) / (std::sqrt(rv[i] / c2) + eps);
          }
        }
        double error = t == DType::f32 ? 2e-6 : 1e-14;
        for (size_t i = 0; i < n; ++i) {
          auto k = static_cast<int64_t>(i);
          REQUIRE(close(get(w.view, k), rw[i], error, error));
          REQUIRE(close(get(m.view, k), rm[i], error, error));
          REQUIRE(close(get(v.view, k), rv[i], error, error));
        }
      }
}

TEST_CASE("adam: 16-bit parameters and gradients with f32 moments, strided views") {
  Data w(DType::bf16, {30, 50}, Lie::reversed), g(DType::f16, {30, 50}, Lie::gaps), m(DType::f32, {30, 50});
  Data v(DType::f32, {30, 50});
  set_all(w.view, [](int64_t) { return 1; });
  set_all(g.view, [](int64_t i) { return i % 2 ? 0.5 : -2; });
  set_all(m.view, [](int64_t) { return 0; });
  set_all(v.view, [](int64_t) { return 0; });
  cpu::adam(w.view, g.view, m.view, v.view, {0.25, 0.9, 0.99, 0, 0, 0.1, 0.01, true});
  for (int64_t i = 0; i < 1500; ++i) REQUIRE(get(w.view, i) == (i % 2 ? 0.75 : 1.25));  // lr * sign(g)
}

TEST_CASE("sgd: momentum, nesterov, dampening, decay") {
  for (const Shape& shape : kShapes)
    for (DType t : {DType::f32, DType::f64})
      for (int kind = 0; kind < 4; ++kind) {
        Data w(t, shape), g(t, shape), buffer(t, shape);  // the buffer starts as NaN: the first step must not read it
        auto n = static_cast<size_t>(numel(shape));
        std::vector<double> rw(n), rb(n);
        set_all(w.view, [](int64_t i) { return noise(i); });
        for (size_t i = 0; i < n; ++i) rw[i] = get(w.view, static_cast<int64_t>(i));
        cpu::SgdStep s{0.1, kind ? 0.9 : 0, kind == 2 ? 0.5 : 0, 0.01, kind == 3, true};
        for (int step = 1; step <= 3; ++step, s.first = false) {
          set_all(g.view, [step](int64_t i) { return noise(i + 1000 * step); });
          cpu::sgd(w.view, g.view, kind ? &buffer.view : nullptr, s);
          for (size_t i = 0; i < n; ++i) {
            double gi = get(g.view, static_cast<int64_t>(i)) + s.decay * rw[i];
            rb[i] = s.first ? gi : s.momentum * rb[i] + (1 - s.dampening) * gi;
            rw[i] -= s.lr * (kind == 0 ? gi : s.nesterov ? gi + s.momentum * rb[i] : rb[i]);
          }
        }
        double error = t == DType::f32 ? 2e-6 : 1e-14;
        for (size_t i = 0; i < n; ++i) {
          REQUIRE(close(get(w.view, static_cast<int64_t>(i)), rw[i], error, error));
          if (kind) REQUIRE(close(get(buffer.view, static_cast<int64_t>(i)), rb[i], error, error));
        }
      }
}

TEST_CASE("optimizers: the bits of an element do not depend on its block") {
  constexpr int64_t n = 203;
  auto run = [](int64_t piece, bool momentum) {
    Data w(DType::f32, {n}), g(DType::f32, {n}), m(DType::f32, {n}), v(DType::f32, {n});
    set_all(w.view, [](int64_t i) { return noise(i); });
    set_all(g.view, [](int64_t i) { return noise(i + n); });
    set_all(m.view, [](int64_t i) { return noise(i + 2 * n); });
    set_all(v.view, [](int64_t i) { return std::abs(noise(i + 3 * n)); });
    for (int64_t i = 0; i < n; i += piece) {
      View cut[4] = {w.view, g.view, m.view, v.view};
      for (View& view : cut) {
        view.data = view.as<float>() + i;
        view.shape[0] = std::min(piece, n - i);
      }
      if (momentum)
        cpu::sgd(cut[0], cut[1], &cut[2], {0.1, 0.9, 0.1, 0.01, true, false});
      else
        cpu::adam(cut[0], cut[1], cut[2], cut[3], {0.1, 0.9, 0.99, 1e-8, 0.01, 0.5, 0.3, true});
    }
    return std::vector<float>(w.view.as<float>(), w.view.as<float>() + n);
  };
  for (bool momentum : {false, true})
    for (int64_t piece : {1, 7, 16, 100}) CHECK(run(piece, momentum) == run(n, momentum));
}
