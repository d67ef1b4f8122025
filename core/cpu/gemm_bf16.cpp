// oneDNN's matmul primitive.
#include <cleave/core/cpu/gemm_bf16.h>

#if CLEAVE_WITH_ONEDNN
#include <cleave/core/cpu/primitive_cache.h>

namespace cleave::cpu {
namespace {

struct Prepared {
  dnnl::matmul run;
  dnnl::memory a, b, c, bias;
};

dnnl::memory::desc describe(int64_t rows, int64_t cols, const Matrix& x) {
  dnnl::memory::dims strides = x.transposed ? dnnl::memory::dims{1, x.ld} : dnnl::memory::dims{x.ld, 1};
  return {{rows, cols}, dnnl::memory::data_type::bf16, strides};
}

Prepared make(const dnnl::engine& engine, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, bool bias,
              bool out_bf16) {
  auto type = out_bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  dnnl::memory::desc ad = describe(m, k, a), bd = describe(k, n, b);
  dnnl::memory::desc cd({m, n}, type, dnnl::memory::dims{n, 1}), biasd({1, n}, type, dnnl::memory::dims{n, 1});
  dnnl::matmul::desc desc = bias ? dnnl::matmul::desc(ad, bd, biasd, cd) : dnnl::matmul::desc(ad, bd, cd);
  Prepared out;
  out.run = dnnl::matmul(dnnl::matmul::primitive_desc(desc, engine));
  out.a = dnnl::memory(ad, engine, nullptr);
  out.b = dnnl::memory(bd, engine, nullptr);
  out.c = dnnl::memory(cd, engine, nullptr);
  if (bias) out.bias = dnnl::memory(biasd, engine, nullptr);
  return out;
}

}  // namespace

bool has_fast_bf16() {
  static const bool fast = [] {
    auto has = [](dnnl::cpu_isa wanted) {
      auto bits = static_cast<unsigned>(wanted);
      return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
    };
    bool intel = false;
#if defined(__x86_64__)
    intel = __builtin_cpu_is("intel");
#endif
    return has(dnnl::cpu_isa::avx512_core_amx) || (!intel && has(dnnl::cpu_isa::avx512_core_bf16));
  }();
  return fast;
}

bool gemm_bf16(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const void* bias, bool out_bf16,
               void* c) {
  thread_local PrimitiveCache<Prepared> cache;
  Prepared* found =
      cache.find({m, n, k, a.ld, a.transposed, b.ld, b.transposed, bias != nullptr, out_bf16},
                 [&](const dnnl::engine& e) { return make(e, m, n, k, a, b, bias != nullptr, out_bf16); });
  if (!found) return false;
  Prepared& p = *found;
  p.a.set_data_handle(const_cast<void*>(a.data));
  p.b.set_data_handle(const_cast<void*>(b.data));
  p.c.set_data_handle(c);
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}};
  if (bias) {
    p.bias.set_data_handle(const_cast<void*>(bias));
    arguments.emplace(DNNL_ARG_BIAS, p.bias);
  }
  p.run.execute(cache.stream, arguments);
  cache.stream.wait();
  return true;
}

}  // namespace cleave::cpu
#else
namespace cleave::cpu {
bool has_fast_bf16() { return false; }
bool gemm_bf16(int64_t, int64_t, int64_t, const Matrix&, const Matrix&, const void*, bool, void*) { return false; }
}  // namespace cleave::cpu
#endif
