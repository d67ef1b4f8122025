#include <cleave/core/cpu/blocks.h>
#include <cleave/core/cpu/isa.h>
#include <cleave/core/cpu/loops/random.h>
#include <cleave/core/cpu/random.h>
#include <cleave/core/error.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace cleave::cpu {
namespace {

using detail::BlockOrigin;
using detail::RandomKey;

// The global indices of a block's elements, in the order in which the block is walked.
class GlobalIndex {
 public:
  GlobalIndex(const View& out, const BlockOrigin& origin) {
    View global{nullptr, out.dtype, out.shape, contiguous_strides(origin.global)};
    dims_ = Space(out).of(global);
    dims_.coalesce();
    for (int d = 0; d < out.rank(); ++d) first_ += origin.offset[d] * global.strides[d];
  }
  // Calls f(i, global index of element i, n) for runs of neighbouring indices that cover [begin, end).
  template <class F>
  void runs(int64_t begin, int64_t end, const F& f) const {
    bool dense = dims_.rank > 0 && dims_.stride[dims_.rank - 1] == 1;
    int64_t row = dense ? dims_.size[dims_.rank - 1] : 1;
    for (int64_t i = begin, n; i < end; i += n) {
      n = std::min({end - i, row - i % row, kBlock});
      f(i, static_cast<uint64_t>(first_ + dims_.offset(i)), n);
    }
  }

 private:
  Dimensions dims_;
  int64_t first_ = 0;
};

// The words of n elements that need `per` each, from global index `index` on, rounded down so that the words of a
// normal pair are complete. `elements` counts what is there, `skip` what comes before `index`.
struct Drawn {
  Drawn(RandomKey key, uint64_t index, int64_t n, uint64_t per) {
    uint64_t word = index * per, first = word / 4;
    skip = static_cast<int64_t>(word % 4 / per);
    int64_t counters = (skip + n) * static_cast<int64_t>(per) / 4 + 1;
    CLEAVE_PICK(random_loops).words(key.seed, key.call, first, counters, words);
    elements = (skip + n + 1) / 2 * 2;
  }
  int64_t skip, elements;
  alignas(64) uint32_t words[kBlock * 2 + 8];
};

// The largest number of the dtype below `high`.
double just_below(double high, DType t) {
  auto largest = [high](auto narrow, auto next) {
    auto v = narrow(high);
    return static_cast<double>(static_cast<double>(v) < high ? v : next(v));
  };
  auto half = [&](auto zero) {
    using H = decltype(zero);
    H h{static_cast<float>(high)};
    if (static_cast<double>(static_cast<float>(h)) >= high) {
      if ((h.bits & 0x7fffu) == 0)
        h.bits = 0x8001u;
      else
        h.bits = static_cast<uint16_t>(h.bits & 0x8000u ? h.bits + 1 : h.bits - 1);
    }
    return static_cast<double>(static_cast<float>(h));
  };
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  if (t == DType::bf16) return half(BFloat16{});
  if (t == DType::f16) return half(Half{});
  if (t == DType::f64) return std::nextafter(high, static_cast<double>(kLeast));
  return largest([](double v) { return static_cast<float>(v); }, [](float v) { return std::nextafter(v, kLeast); });
}

// Fills `out` through f32(words, n, to) or f64(...), which make n elements from the words of an even index on.
template <class F32, class F64>
void generate(const View& out, const BlockOrigin& origin, RandomKey key, const F32& f32, const F64& f64) {
  Compute type = out.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  GlobalIndex index(out, origin);
  Blocks blocks(out, type);
  blocks.out(out);
  blocks.run([&](int64_t first, int64_t n, const void* const*, void* const* to) {
    index.runs(first, first + n, [&](int64_t i, uint64_t global, int64_t count) {
      alignas(64) std::byte made[(kBlock + 8) * 8];
      Drawn drawn(key, global, count, type == Compute::f64 ? 2 : 1);
      if (type == Compute::f64)
        f64(drawn.words, drawn.elements, reinterpret_cast<double*>(made));
      else
        f32(drawn.words, drawn.elements, reinterpret_cast<float*>(made));
      int64_t width = width_of(type);
      std::memcpy(static_cast<char*>(to[0]) + (i - first) * width, made + drawn.skip * width,
                  static_cast<size_t>(count * width));
    });
  });
}

}  // namespace

void uniform(const View& out, const BlockOrigin& origin, RandomKey key, double low, double high) {
  if (out.numel() == 0) return;
  const RandomLoops& loops = CLEAVE_PICK(random_loops);
  RandomScale scale{low, high - low, std::max(low, just_below(high, out.dtype))};
  generate(
      out, origin, key, [&](const uint32_t* words, int64_t n, float* to) { loops.uniform_f32(words, n, scale, to); },
      [&](const uint32_t* words, int64_t n, double* to) { loops.uniform_f64(words, n, scale, to); });
}

void normal(const View& out, const BlockOrigin& origin, RandomKey key, double mean, double std) {
  if (out.numel() == 0) return;
  const RandomLoops& loops = CLEAVE_PICK(random_loops);
  RandomScale scale{mean, std, 0};
  generate(
      out, origin, key, [&](const uint32_t* words, int64_t n, float* to) { loops.normal_f32(words, n, scale, to); },
      [&](const uint32_t* words, int64_t n, double* to) { loops.normal_f64(words, n, scale, to); });
}

void random_integers(const View& out, const BlockOrigin& origin, RandomKey key, int64_t low, int64_t high) {
  if (out.numel() == 0) return;
  if (high <= low)
    throw ValueError("[random_integers] the range [" + std::to_string(low) + ", " + std::to_string(high) +
                     ") is empty; make high larger than low");
  auto make = CLEAVE_PICK(random_loops).integers;
  uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  GlobalIndex index(out, origin);
  Blocks blocks(out, Compute::i64);
  blocks.out(out);
  blocks.run([&](int64_t first, int64_t n, const void* const*, void* const* to) {
    index.runs(first, first + n, [&](int64_t i, uint64_t global, int64_t count) {
      Drawn drawn(key, global, count, 2);
      make(drawn.words + 2 * drawn.skip, count, low, range, static_cast<int64_t*>(to[0]) + (i - first));
    });
  });
}

void dropout(const View& x, const BlockOrigin& origin, RandomKey key, double p, const View& out) {
  if (out.numel() == 0) return;
  const RandomLoops& loops = CLEAVE_PICK(random_loops);
  auto threshold = static_cast<uint32_t>(std::ceil(p * 0x1p24));
  double scale = p < 1 ? 1 / (1 - p) : 0;
  Compute type = out.dtype == DType::f64 ? Compute::f64 : Compute::f32;
  GlobalIndex index(out, origin);
  Blocks blocks(out, type);
  blocks.in(x);
  blocks.out(out);
  blocks.run([&](int64_t first, int64_t n, const void* const* from, void* const* to) {
    index.runs(first, first + n, [&](int64_t i, uint64_t global, int64_t count) {
      Drawn drawn(key, global, count, 1);
      const uint32_t* words = drawn.words + drawn.skip;
      int64_t at = i - first;
      if (type == Compute::f64)
        loops.dropout_f64(words, count, threshold, scale, static_cast<const double*>(from[0]) + at,
                          static_cast<double*>(to[0]) + at);
      else
        loops.dropout_f32(words, count, threshold, scale, static_cast<const float*>(from[0]) + at,
                          static_cast<float*>(to[0]) + at);
    });
  });
}

}  // namespace cleave::cpu
