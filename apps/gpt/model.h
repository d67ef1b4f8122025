// A pre-norm GPT (Radford et al. 2019), written as for one device.
#pragma once
#include <cleave/nn/attention.h>
#include <cleave/nn/layers.h>
#include <cleave/nn/list.h>

#include <optional>

#include "gpt/config.h"

namespace gpt {

namespace nn = cleave::nn;
using cleave::Tensor;

/// Layer norm with weight and bias, or RMS norm with a weight.
struct Norm : nn::Module<Norm> {
  nn::Parameter weight;
  std::optional<nn::Parameter> bias;
  Norm(nn::ModuleBase* parent, std::string name, const Config& config);
  Tensor forward(const Tensor& x) const;
};

struct Mlp : nn::Module<Mlp> {
  nn::Linear up, down;
  Mlp(nn::ModuleBase* parent, std::string name, const Config& config);
  Tensor forward(const Tensor& x) const;
};

struct Block : nn::Module<Block> {
  Norm norm1;
  nn::MultiHeadAttention attention;
  Norm norm2;
  Mlp mlp;
  nn::Dropout drop;
  Block(nn::ModuleBase* parent, std::string name, const Config& config);
  Tensor forward(const Tensor& x) const;
};

/// Logits by token: a weight of its own, or tied to the embedding's.
struct Head : nn::Module<Head> {
  nn::Parameter weight;
  int64_t loss_chunk = 0;  ///< tokens whose logits exist at a time in the loss; 0: all
  Head(nn::ModuleBase* parent, std::string name, const Config& config, const nn::Parameter& token);
  Tensor forward(const Tensor& x) const;
  /// The sum of the cross-entropies of the logits of x [B, T, C] and targets [B, T].
  Tensor forward(const Tensor& x, const Tensor& targets) const;
};

/// i64 ids [B, T], T <= seq -> logits [B, T, vocab]. Parameters start as GPT-2's: N(0, 0.02^2), those that write to the
/// residual stream smaller by sqrt(2 layers); biases 0, norms 1.
struct Gpt : nn::Module<Gpt> {
  Config config;
  nn::Embedding token;
  std::optional<nn::Embedding> position;
  nn::List<Block> blocks;
  Norm norm;
  Head head;
  /// `config` must be completed.
  explicit Gpt(const Config& config);
  Tensor forward(const Tensor& ids) const;
  /// The sum of the cross-entropies, in nats, of all targets [B, T] that count (not -100): a scalar. Divided by the
  /// number of those, over all micro-batches, it is the mean, however the batch was split.
  Tensor forward(const Tensor& ids, const Tensor& targets) const;

 private:
  Tensor hidden(const Tensor& ids) const;
};

/// Number of elements of all parameters.
int64_t parameter_count(const nn::ModuleBase& model);

}  // namespace gpt
