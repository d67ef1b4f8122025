// Cross-entropy of a linear head by chunks of rows: what the two ops give, without their logits.
#include <cleave/core/allocator.h>
#include <doctest/doctest.h>

#include <cmath>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct Result {
  Tensor loss, x, w;
};

Result of(const Tensor& loss, const Tensor& x, const Tensor& w) {
  sum(loss).backward();
  return {loss.detach(), x.grad(), w.grad()};
}
LinearCrossEntropyOptions in_chunks(const CrossEntropyOptions& o, int64_t chunk) {
  return {o.ignore_index, o.reduction, o.label_smoothing, o.z_loss, chunk};
}
Result chunked(const Tensor& x, const Tensor& w, const Tensor& t, const LinearCrossEntropyOptions& options) {
  return of(linear_cross_entropy(x, w, t, options), x, w);
}
Result two_ops(const Tensor& x, const Tensor& w, const Tensor& t, const CrossEntropyOptions& options) {
  Tensor logits = linear(x, w);
  int last = logits.dim() - 1;
  return of(cross_entropy(last > 1 ? transpose(logits, 1, last) : logits, t, options), x, w);
}
void check_equal(const Result& got, const Result& want, double tolerance = 1e-11) {
  CHECK(near(got.loss, want.loss, tolerance));
  CHECK(near(got.x, want.x, tolerance));
  CHECK(near(got.w, want.w, tolerance));
}

const CrossEntropyOptions kOptions[] = {{},
                                        {.reduction = "sum", .label_smoothing = 0.1},
                                        {.reduction = "none", .z_loss = 0.02},
                                        {.ignore_index = 3, .label_smoothing = 0.3, .z_loss = 0.1}};

}  // namespace

TEST_CASE("value and gradients are those of the two ops, whatever the chunk") {
  Tensor x0 = normal({2, 5, 4}, 1), t = tensor<int64_t>({0, 6, 3, -100, 2, 1, 1, 6, 3, 5}, {2, 5});
  for (int64_t classes : {7, 13}) {
    Tensor w0 = normal({classes, 4}, 2);
    for (CrossEntropyOptions options : kOptions) {
      Tensor targets = options.ignore_index == 3 ? maximum(t, tensor<int64_t>({0})) : t;
      Result want = two_ops(weight(x0), weight(w0), targets, options);
      for (int64_t chunk : {0, 1, 3, 10, 100})
        check_equal(chunked(weight(x0), weight(w0), targets, in_chunks(options, chunk)), want);
    }
  }
}

TEST_CASE("one device's value and gradients, with rows, classes or both split") {
  Tensor x0 = normal({2, 5, 4}, 1), w0 = normal({7, 4}, 2),
         t0 = tensor<int64_t>({0, 6, 3, -100, 2, 1, 1, 6, 3, 5}, {2, 5});
  for (size_t k = 0; k < 3; ++k) {
    LinearCrossEntropyOptions options = in_chunks(kOptions[k], 2);
    Result want = two_ops(weight(x0), weight(w0), t0, kOptions[k]);
    auto check = [&](dist::DeviceMesh mesh, const char* x, const char* w, const char* t) {
      CAPTURE(x);
      CAPTURE(w);
      check_equal(chunked(weight(x0, mesh, x), weight(w0, mesh, w), placed(t0, mesh, t), options), want);
    };
    for (int ranks : {1, 2, 3, 4})
      on_mesh({{"a", ranks}}, [&](dist::DeviceMesh mesh) {
        for (auto [x, w, t] : {std::tuple{"-, -, -", "a, -", "-, -"},
                               {"-, a, -", "-, -", "-, a"},
                               {"a, -, -", "a, -", "a, -"},
                               {"-, a, -", "a, -", "-, -"},
                               {"-, -, a", "-, a", "-, -"},
                               {"-, - , - partial(a)", "a, -", "-, -"}})
          check(mesh, x, w, t);
      });
    on_mesh({{"a", 2}, {"b", 2}}, [&](dist::DeviceMesh mesh) {
      for (auto [x, w, t] : {std::tuple{"a, -, -", "b, -", "a, -"},
                             {"-, b, -", "a, -", "-, b"},
                             {"-, -, -", "b.a, -", "-, -"},
                             {"-, a.b, -", "-, -", "-, a.b"}})
        check(mesh, x, w, t);
    });
  }
}

TEST_CASE("split classes: two small collectives forward, none backward; both gradients stay partial") {
  Tensor x0 = normal({6, 4}, 1), w0 = normal({8, 4}, 2), t0 = randint(0, 8, {6}, {.seed = 3});
  on_mesh({{"dp", 2}, {"tp", 2}}, [&](dist::DeviceMesh mesh) {
    Tensor x = weight(x0, mesh, "dp, -"), w = weight(w0, mesh, "tp, -"), t = placed(t0, mesh, "dp");
    dist::record_collectives(true);
    Tensor loss = linear_cross_entropy(x, w, t, {.reduction = "sum", .chunk = 2});
    CHECK(kinds() == std::vector<std::string>{"all_reduce", "all_reduce"});
    for (const dist::CommEvent& e : dist::recorded_collectives()) CHECK(e.bytes <= 2 * 3 * 8 * 2);
    dist::record_collectives(true);
    loss.backward({.sync = false});
    CHECK(kinds().empty());
    sync_gradients({x, w});
    std::vector<dist::CommEvent> events = dist::recorded_collectives();
    REQUIRE(events.size() == 2);  // dx over tp, dw over dp
    CHECK(std::string(events[0].axis) + std::string(events[1].axis) == "tpdp");
    dist::record_collectives(false);
  });
}

TEST_CASE("nothing but ignored rows is a loss of 0 with gradients of 0") {
  Tensor x = normal({4, 3}, 1), w = normal({5, 3}, 2), t = full({4}, -100, {.dtype = DType::i64});
  for (const char* reduction : {"mean", "sum", "none"}) {
    Result r =
        chunked(weight(x), weight(w), t, {.reduction = reduction, .label_smoothing = 0.1, .z_loss = 0.1, .chunk = 3});
    CHECK(near(sum(abs(r.loss)), f64({0}, {}), 0));
    CHECK(item<double>(sum(abs(r.x))) == 0);
    CHECK(item<double>(sum(abs(r.w))) == 0);
  }
}

TEST_CASE("logits of thousands stay finite; half precision follows f32") {
  Tensor x = normal({6, 8}, 1), w = normal({9, 8}, 2), t = randint(0, 9, {6}, {.seed = 3});
  Result large = chunked(weight(x * 1000.0), weight(w), t, {.label_smoothing = 0.1, .chunk = 4});
  check_equal(large, two_ops(weight(x * 1000.0), weight(w), t, {.label_smoothing = 0.1}));
  CHECK(std::isfinite(item<double>(large.loss)));
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Tensor xh = cast(x, dtype), wh = cast(w, dtype);
    Result got = chunked(weight(xh), weight(wh), t, {.chunk = 4});
    Result want = chunked(weight(cast(xh, DType::f64)), weight(cast(wh, DType::f64)), t, {});
    CHECK(got.loss.dtype() == DType::f32);
    CHECK(got.w.dtype() == DType::f32);
    double tolerance = dtype == DType::bf16 ? 0.02 : dtype == DType::f16 ? 0.003 : 1e-5;
    CHECK(allclose(cast(got.loss, DType::f64), want.loss, {.rtol = 1e-5, .atol = 1e-5}));
    CHECK(allclose(cast(got.x, DType::f64), want.x, {.rtol = tolerance, .atol = tolerance}));
    CHECK(allclose(cast(got.w, DType::f64), want.w, {.rtol = 1e-4, .atol = 1e-4}));
  }
}

TEST_CASE("the peak does not grow with rows times classes") {
  auto peak = [](int64_t rows, int64_t classes, bool whole) {
    Tensor x = weight(randn({rows, 8}, {.seed = 1})), w = weight(randn({classes, 8}, {.seed = 2}));
    Tensor t = randint(0, classes, {rows}, {.seed = 3});
    int64_t before = memory_stats().active;
    reset_peak_memory();
    Tensor loss = whole ? cross_entropy(linear(x, w), t) : linear_cross_entropy(x, w, t, {.chunk = 16});
    loss.backward();
    return memory_stats().peak - before;
  };
  int64_t n = 256, v = 512, one = peak(n, v, false), both = peak(2 * n, 2 * v, false);
  CHECK(both < 2.2 * static_cast<double>(one));  // rows and classes each count for themselves
  CHECK(both < 2 * n * 2 * v * 4 / 8);
  CHECK(peak(2 * n, 2 * v, true) > 2 * n * 2 * v * 4);
}

TEST_CASE("its errors are those of cross_entropy") {
  Tensor x = normal({2, 3}, 1), w = normal({5, 3}, 2);
  auto message = [&](const Tensor& t, const LinearCrossEntropyOptions& o = {}) {
    return message_of<Error>([&] { linear_cross_entropy(x, w, t, o); });
  };
  CHECK(contains(message_of<IndexError>([&] {
                   linear_cross_entropy(x, w, tensor<int64_t>({0, 5}));
                 }),
                 {"5", "out of range"}));
  CHECK(contains(message_of<IndexError>([&] { linear_cross_entropy(x, w, tensor<int64_t>({-1, 0})); }), {"-1"}));
  CHECK(contains(message(tensor<int64_t>({0})), {"[2]", "i64[1]"}));
  CHECK(contains(message(f64({0, 1}, {2})), {"i64 or i32"}));
  CHECK(contains(message(tensor<int64_t>({0, 1}), {.reduction = "max"}), {"\"max\""}));
  CHECK(contains(message(tensor<int64_t>({0, 1}), {.chunk = -1}), {"chunk is -1"}));
  CHECK(contains(message_of<ShapeError>([&] {
                   linear_cross_entropy(x, normal({5, 4}, 1), tensor<int64_t>({0, 1}));
                 }),
                 {"[5, 4]"}));
}

TEST_CASE("sums over micro-batches by the count of all that count: any order, unlike ranks, nothing at all") {
  Tensor x0 = normal({12, 5}, 1), w0 = normal({7, 5}, 2);
  // 1, 4 and 7 tokens that count of 4, 4 and 12 rows; the second rank's rows of the first two are all ignored.
  std::vector<Tensor> targets = {tensor<int64_t>({3, -100, -100, -100}),
                                 tensor<int64_t>({0, 6, 1, 2, -100, -100, -100, -100}),
                                 tensor<int64_t>({0, 1, 2, 3, -100, -100, -100, -100, -100, 4, 5, 6})};
  Tensor all = cat(targets), rows = cat({slice(x0, 0, 0, 4), slice(x0, 0, 2, 10), x0});
  Tensor one = weight(w0);
  linear_cross_entropy(rows, one, all).backward();
  std::vector<Tensor> parts = {slice(x0, 0, 0, 4), slice(x0, 0, 2, 10), x0};
  for (int ranks : {1, 2, 3})
    on_mesh({{"x", ranks}}, [&](dist::DeviceMesh mesh) {
      for (const std::vector<size_t>& order : {std::vector<size_t>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
        int64_t count = 0;
        std::vector<Tensor> t;
        for (const Tensor& target : targets) t.push_back(placed(target, mesh, "x"));
        for (const Tensor& target : t) {
          Tensor n = count_valid(target);
          CHECK(n.layout() == mesh.replicated(0));
          count += item<int64_t>(n);
        }
        CHECK(count == 12);
        Tensor w = weight(w0, mesh, "-, -"), v = weight(w0, mesh, "-, -");
        for (size_t k : order) {
          Tensor x = placed(parts[k], mesh, "x, -");
          (linear_cross_entropy(x, w, t[k], {.reduction = "sum"}) / static_cast<double>(count))
              .backward({.sync = false});
          (cross_entropy(linear(x, v), t[k], {.reduction = "sum"}) / static_cast<double>(count))
              .backward({.sync = false});
        }
        sync_gradients({w, v});
        CHECK(near(w.grad(), one.grad()));
        CHECK(near(v.grad(), one.grad()));
      }
      Tensor none = placed(full({4}, -100, {.dtype = DType::i64}), mesh, "x"), w = weight(w0, mesh, "-, -");
      int64_t count = item<int64_t>(count_valid(none));
      CHECK(count == 0);
      Tensor loss = linear_cross_entropy(placed(parts[0], mesh, "x, -"), w, none, {.reduction = "sum"}) /
                    static_cast<double>(std::max<int64_t>(1, count));
      loss.backward();
      CHECK(item<double>(loss) == 0);
      CHECK(item<double>(sum(abs(w.grad()))) == 0);
    });
  CHECK(item<int64_t>(count_valid(tensor<int64_t>({1, 2, 1}), 1)) == 1);
}
