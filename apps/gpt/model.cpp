#include "gpt/model.h"

#include <cleave/nn/init.h>
#include <cleave/ops/activation.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/cross_entropy.h>
#include <cleave/ops/linear_cross_entropy.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/normalization.h>
#include <cleave/ops/view.h>

#include <cmath>

namespace gpt {

namespace {

constexpr double kStd = 0.02;

nn::MultiHeadAttentionOptions attention_options(const Config& c) {
  nn::MultiHeadAttentionOptions options{.heads = c.heads, .kv_heads = c.kv_heads, .causal = true, .dropout = c.dropout};
  if (c.positions == "rope") options.rope = cleave::RopeOptions{};
  return options;
}

void start_as_gpt2(const nn::ModuleBase& model, int64_t layers) {
  double residual = kStd / std::sqrt(2.0 * static_cast<double>(layers));
  for (auto& [name, parameter] : model.named_parameters()) {
    if (parameter.shape().rank() >= 2 && name.ends_with("weight")) {
      bool writes = name.ends_with("attention.out.weight") || name.ends_with("mlp.down.weight");
      parameter.reset(nn::init::normal(0, writes ? residual : kStd));
    } else if (name.ends_with("bias")) {
      parameter.reset(nn::init::zeros());
    }
  }
}

}  // namespace

Norm::Norm(nn::ModuleBase* parent, std::string name, const Config& c)
    : Module(parent, std::move(name)), weight(this, "weight", cleave::Shape{c.dim}, nn::init::ones()) {
  if (c.norm == "layer") bias.emplace(this, "bias", cleave::Shape{c.dim});
}

Tensor Norm::forward(const Tensor& x) const {
  return bias ? cleave::layer_norm(x, weight.shape(), weight, *bias) : cleave::rms_norm(x, weight.shape(), weight);
}

Mlp::Mlp(nn::ModuleBase* parent, std::string name, const Config& c)
    : Module(parent, std::move(name)), up(this, "up", c.dim, c.ffn), down(this, "down", c.ffn, c.dim) {}

Tensor Mlp::forward(const Tensor& x) const { return down(cleave::gelu(up(x), {.approximate = "tanh"})); }

Block::Block(nn::ModuleBase* parent, std::string name, const Config& c)
    : Module(parent, std::move(name)),
      norm1(this, "norm1", c),
      attention(this, "attention", c.dim, attention_options(c)),
      norm2(this, "norm2", c),
      mlp(this, "mlp", c),
      drop(this, "drop", c.dropout) {}

Tensor Block::forward(const Tensor& x) const {
  Tensor y = x + drop(attention(norm1(x)));
  return y + drop(mlp(norm2(y)));
}

Head::Head(nn::ModuleBase* parent, std::string name, const Config& c, const nn::Parameter& token)
    : Module(parent, std::move(name)),
      weight(c.tied ? nn::Parameter(this, "weight", token) : nn::Parameter(this, "weight", {c.vocab, c.dim})) {}

Tensor Head::forward(const Tensor& x) const { return cleave::linear(x, weight); }

Tensor Head::forward(const Tensor& x, const Tensor& targets) const {
  if (loss_chunk > 0)
    return cleave::linear_cross_entropy(x, weight, targets, {.reduction = "sum", .chunk = loss_chunk});
  return cleave::cross_entropy(cleave::transpose(cleave::linear(x, weight), 1, 2), targets, {.reduction = "sum"});
}

Gpt::Gpt(const Config& c)
    : config(c),
      token(this, "token", c.vocab, c.dim),
      blocks(this, "blocks", c.layers, c),
      norm(this, "norm", c),
      head(this, "head", c, token.weight) {
  if (c.positions == "learned") position.emplace(this, "position", c.seq, c.dim);
  start_as_gpt2(*this, c.layers);
}

Tensor Gpt::hidden(const Tensor& ids) const {
  Tensor x = token(ids);
  if (position) x = x + (*position)(cleave::arange(ids.size(1), {.device = ids.device()}));
  for (const Block& block : blocks) x = block(x);
  return norm(x);
}

Tensor Gpt::forward(const Tensor& ids) const { return head(hidden(ids)); }

Tensor Gpt::forward(const Tensor& ids, const Tensor& targets) const { return head(hidden(ids), targets); }

int64_t parameter_count(const nn::ModuleBase& model) {
  int64_t total = 0;
  for (const auto& p : model.parameters()) total += numel(p.shape());
  return total;
}

}  // namespace gpt
