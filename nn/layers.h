// The layers that models are made of.
#pragma once
#include <optional>

#include <cleave/nn/module.h>
#include <cleave/nn/parameter.h>

namespace cleave::nn {

struct LinearOptions {
  bool bias = true;
};
/// x[..., in...] contracted with weight[out..., in...], plus bias[out...]. Sizes may be shapes: {C} -> {3, H, D} splits
/// a fused projection by heads as it is, {H, D} -> {C} contracts them. Starts as PyTorch's: weight and bias
/// U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
class Linear : public Module<Linear> {
 public:
  Linear(ModuleBase* parent, std::string name, int64_t in, int64_t out, const LinearOptions& options = {});
  Linear(ModuleBase* parent, std::string name, const Shape& in, const Shape& out, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) const;

  const Shape in, out;
  Parameter weight;
  std::optional<Parameter> bias;
};

struct EmbeddingOptions {
  double std = 1.0;  ///< of the normal initial rows
};
/// Rows of weight[count, dim] by ids: [...] -> [..., dim].
class Embedding : public Module<Embedding> {
 public:
  Embedding(ModuleBase* parent, std::string name, int64_t count, int64_t dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& ids) const;

  Parameter weight;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< has a weight of ones
  bool bias = true;    ///< and, if affine, a bias of zeros
};
/// Normalizes over the last dims, of the sizes `shape` (Ba et al. 2016).
class LayerNorm : public Module<LayerNorm> {
 public:
  LayerNorm(ModuleBase* parent, std::string name, int64_t size, const LayerNormOptions& options = {});
  LayerNorm(ModuleBase* parent, std::string name, const Shape& shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x) const;

  const Shape shape;
  const double eps;
  std::optional<Parameter> weight, bias;
};

struct RMSNormOptions {
  double eps = 1e-6;
  bool affine = true;  ///< has a weight of ones
};
/// x / rms(x) over the last dims (Zhang and Sennrich 2019).
class RMSNorm : public Module<RMSNorm> {
 public:
  RMSNorm(ModuleBase* parent, std::string name, int64_t size, const RMSNormOptions& options = {});
  RMSNorm(ModuleBase* parent, std::string name, const Shape& shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x) const;

  const Shape shape;
  const double eps;
  std::optional<Parameter> weight;
};

/// Zeroes elements with probability p while training, and scales the others by 1/(1-p).
class Dropout : public Module<Dropout> {
 public:
  /// Throws ValueError unless 0 <= p <= 1.
  explicit Dropout(ModuleBase* parent, std::string name, double p = 0.5);
  Tensor forward(const Tensor& x) const;

  const double p;
};

}  // namespace cleave::nn
