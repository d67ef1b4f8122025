#include <cleave/nn/internal/profile_work.h>

#include <cleave/core/error.h>
#include <cleave/core/parallel.h>
#include <cleave/ops/registry.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>

namespace cleave::nn::detail {
namespace {

constexpr int64_t kSmall = 256, kLarge = 768;  // rows of the products
constexpr int64_t kSlow = 5'000'000;           // ns of a small product, from which a large one takes too long
constexpr int64_t kStream = 4 << 20;           // f32 elements of each of three buffers: beyond most caches
constexpr size_t kPage = 4096;
constexpr int kTries = 3;

const OpDef& registered(std::string_view name) {
  auto all = registered_ops();
  return **std::find_if(all.begin(), all.end(), [&](const OpDef* op) { return op->name == name; });
}

int64_t best_ns(const Kernel& kernel, const KernelCall& call) {
  int64_t best = 0;
  for (int i = 0; i <= kTries; ++i) {
    int64_t begin = Observer::now_ns();
    kernel.cpu(call);
    int64_t took = std::max<int64_t>(1, Observer::now_ns() - begin);
    if (i == 1 || (i > 1 && took < best)) best = took;  // the first makes code and touches pages
  }
  return best;
}

View view_of(void* data, DType dtype, const Shape& shape) { return {data, dtype, shape, contiguous_strides(shape)}; }

double product_rate(DType dtype, int64_t n, char* room) {
  int64_t bytes = n * n * size_of(dtype);
  View a = view_of(room, dtype, {n, n}), b = view_of(room + bytes, dtype, {n, n}),
       c = view_of(room + 2 * bytes, dtype, {n, n});
  const View *in[] = {&a, &b}, *out[] = {&c};
  int64_t ns = best_ns(registered("matmul").kernel, {.in = in, .out = out});
  if (n == kSmall && ns < kSlow) return product_rate(dtype, kLarge, room);
  return 2.0 * static_cast<double>(n * n * n) / static_cast<double>(ns) * 1e9;
}

double stream_rate(char* room) {
  int64_t bytes = kStream * size_of(DType::f32);
  View a = view_of(room, DType::f32, {kStream}), b = view_of(room + bytes, DType::f32, {kStream}),
       c = view_of(room + 2 * bytes, DType::f32, {kStream});
  const View *in[] = {&a, &b}, *out[] = {&c};
  return 3.0 * static_cast<double>(bytes) /
         static_cast<double>(best_ns(registered("add").kernel, {.in = in, .out = out})) * 1e9;
}

ProfileBounds measure() {
  size_t bytes = 3 * std::max<size_t>(kStream * sizeof(float), kLarge * kLarge * sizeof(double));
  std::unique_ptr<char, decltype(&std::free)> room(static_cast<char*>(std::aligned_alloc(kPage, bytes)), std::free);
  if (!room) throw OutOfMemoryError("[profiler] no memory to measure bounds in; pass {.bounds = false}");
  std::memset(room.get(), 0, bytes);
  ProfileBounds b;
  b.f32 = product_rate(DType::f32, kSmall, room.get());
  b.f64 = product_rate(DType::f64, kSmall, room.get());
  b.bf16 = product_rate(DType::bf16, kSmall, room.get());
  b.f16 = product_rate(DType::f16, kSmall, room.get());
  b.memory = stream_rate(room.get());
  return b;
}

// Elements of expanded dims are there once.
double distinct_bytes(std::span<const View* const> views) {
  int64_t total = 0;
  for (const View* v : views) {
    if (!v) continue;
    int64_t n = size_of(v->dtype);
    for (int d = 0; d < v->rank(); ++d) n *= v->strides[d] == 0 && v->shape[d] > 0 ? 1 : v->shape[d];
    total += n;
  }
  return static_cast<double>(total);
}

}  // namespace

// On a thread of its own: kernels may take workspace from the rank's allocator, whose statistics stay as they are.
ProfileBounds measure_bounds() {
  ProfileBounds bounds;
  std::exception_ptr error;
  int threads = num_threads();
  std::thread([&] {
    try {
      set_num_threads(threads);
      bounds = measure();
    } catch (...) { error = std::current_exception(); }
  }).join();
  if (error) std::rethrow_exception(error);
  return bounds;
}

KernelWork::KernelWork() {
  for (const OpDef* op : registered_ops()) {
    learn(*op);
    if (op->backward_cost) of_backward_.emplace(op->name, op->backward_cost);
  }
}

void KernelWork::learn(const OpDef& op) {
  if (op.kernel.cpu && op.cost) by_function_.emplace(op.kernel.cpu, op.cost);
}

Cost KernelWork::of(const KernelSpan& kernel) const {
  const KernelCall& c = kernel.call;
  if (auto own = by_function_.find(kernel.function); own != by_function_.end())
    return own->second(c.in, c.out, c.attributes);
  if (auto op = of_backward_.find(kernel.name); op != of_backward_.end()) return op->second(c.in, c.out, c.attributes);
  return {0, distinct_bytes(c.in) + distinct_bytes(c.out)};
}

double flops_seconds(const ProfileBounds& b, double flops, DType dtype) {
  double rate = dtype == DType::f64 ? b.f64 : dtype == DType::bf16 ? b.bf16 : dtype == DType::f16 ? b.f16 : b.f32;
  return rate > 0 ? flops / rate : 0;
}

double bytes_seconds(const ProfileBounds& b, double bytes) { return b.memory > 0 ? bytes / b.memory : 0; }

}  // namespace cleave::nn::detail
