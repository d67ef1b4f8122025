#include <cleave/core/error.h>
#include <cleave/nn/layers.h>
#include <cleave/ops/dropout.h>
#include <cleave/ops/index.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/normalization.h>

#include <cmath>

namespace cleave::nn {

namespace {

Shape joined(Shape a, const Shape& b) {
  for (int64_t n : b) a.push_back(n);
  return a;
}

Init fan_in_uniform(const Shape& in) {
  double fan = static_cast<double>(numel(in)), bound = fan > 0 ? 1 / std::sqrt(fan) : 0.0;
  return init::uniform(-bound, bound);
}

void add_if(std::optional<Parameter>& parameter, bool wanted, ModuleBase* parent, const char* name, const Shape& shape,
            const Init& init) {
  if (wanted) parameter.emplace(parent, name, shape, init);
}

Tensor read(const std::optional<Parameter>& parameter) {
  return parameter ? static_cast<Tensor>(*parameter) : Tensor();
}

}  // namespace

Linear::Linear(ModuleBase* parent, std::string name, int64_t in_, int64_t out_, const LinearOptions& options)
    : Linear(parent, std::move(name), Shape{in_}, Shape{out_}, options) {}

Linear::Linear(ModuleBase* parent, std::string name, const Shape& in_, const Shape& out_, const LinearOptions& options)
    : Module(parent, std::move(name)),
      in(in_),
      out(out_),
      weight(this, "weight", joined(out_, in_), fan_in_uniform(in_)) {
  add_if(bias, options.bias, this, "bias", out, fan_in_uniform(in));
}

Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, read(bias), {.in_dims = in.rank()}); }

Embedding::Embedding(ModuleBase* parent, std::string name, int64_t count, int64_t dim, const EmbeddingOptions& options)
    : Module(parent, std::move(name)), weight(this, "weight", Shape{count, dim}, init::normal(0, options.std)) {}

Tensor Embedding::forward(const Tensor& ids) const { return embedding(ids, weight); }

LayerNorm::LayerNorm(ModuleBase* parent, std::string name, int64_t size, const LayerNormOptions& options)
    : LayerNorm(parent, std::move(name), Shape{size}, options) {}

LayerNorm::LayerNorm(ModuleBase* parent, std::string name, const Shape& shape_, const LayerNormOptions& options)
    : Module(parent, std::move(name)), shape(shape_), eps(options.eps) {
  add_if(weight, options.affine, this, "weight", shape, init::ones());
  add_if(bias, options.affine && options.bias, this, "bias", shape, init::zeros());
}

Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, shape, read(weight), read(bias), eps); }

RMSNorm::RMSNorm(ModuleBase* parent, std::string name, int64_t size, const RMSNormOptions& options)
    : RMSNorm(parent, std::move(name), Shape{size}, options) {}

RMSNorm::RMSNorm(ModuleBase* parent, std::string name, const Shape& shape_, const RMSNormOptions& options)
    : Module(parent, std::move(name)), shape(shape_), eps(options.eps) {
  add_if(weight, options.affine, this, "weight", shape, init::ones());
}

Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, shape, read(weight), eps); }

Dropout::Dropout(ModuleBase* parent, std::string name, double p_) : Module(parent, std::move(name)), p(p_) {
  if (!(p >= 0 && p <= 1))
    throw ValueError(path() + ": the dropout probability is " + std::to_string(p) + ", not in [0, 1]");
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p, training()); }

}  // namespace cleave::nn
