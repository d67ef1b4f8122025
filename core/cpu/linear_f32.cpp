// oneDNN's inner product runs the kernels of its sgemm, which add a bias as they store: a pass over the output less
// than a product onto rows that hold the bias.
#include <cleave/core/cpu/linear_f32.h>

#if CLEAVE_WITH_ONEDNN
#include <cleave/core/cpu/primitive_cache.h>

namespace cleave::cpu {
namespace {

struct Prepared {
  dnnl::inner_product_forward run;
  dnnl::memory x, w, bias, out;
};

Prepared make(const dnnl::engine& engine, int64_t m, int64_t n, int64_t k) {
  using Tag = dnnl::memory::format_tag;
  auto describe = [](const dnnl::memory::dims& dims, Tag tag) {
    return dnnl::memory::desc(dims, dnnl::memory::data_type::f32, tag);
  };
  auto x = describe({m, k}, Tag::ab), w = describe({n, k}, Tag::ab), bias = describe({n}, Tag::a),
       out = describe({m, n}, Tag::ab);
  dnnl::inner_product_forward::desc desc(dnnl::prop_kind::forward_inference, x, w, bias, out);
  auto memory = [&](const dnnl::memory::desc& d) { return dnnl::memory(d, engine, nullptr); };
  return {dnnl::inner_product_forward(dnnl::inner_product_forward::primitive_desc(desc, engine)), memory(x), memory(w),
          memory(bias), memory(out)};
}

}  // namespace

bool linear_f32(int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, float* out) {
  thread_local PrimitiveCache<Prepared> cache;
  Prepared* p = cache.find({m, n, k}, [&](const dnnl::engine& engine) { return make(engine, m, n, k); });
  if (!p) return false;
  p->x.set_data_handle(const_cast<float*>(x));
  p->w.set_data_handle(const_cast<float*>(w));
  p->bias.set_data_handle(const_cast<float*>(bias));
  p->out.set_data_handle(out);
  p->run.execute(cache.stream,
                 {{DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->w}, {DNNL_ARG_BIAS, p->bias}, {DNNL_ARG_DST, p->out}});
  cache.stream.wait();
  return true;
}

}  // namespace cleave::cpu
#else
namespace cleave::cpu {
bool linear_f32(int64_t, int64_t, int64_t, const float*, const float*, const float*, float*) { return false; }
}  // namespace cleave::cpu
#endif
