#include <cleave/core/error.h>
#include <cleave/nn/attention.h>
#include <cleave/ops/attention.h>
#include <cleave/ops/view.h>

namespace cleave::nn {

namespace {

MultiHeadAttentionOptions completed(const std::string& name, int64_t dim, MultiHeadAttentionOptions o) {
  auto fail = [&](const std::string& what) { throw ValueError("attention " + name + ": " + what); };
  if (o.heads < 1) fail("heads is " + std::to_string(o.heads) + "; there must be at least one");
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.kv_heads < 0 || o.heads % o.kv_heads)
    fail(std::to_string(o.heads) + " heads cannot share " + std::to_string(o.kv_heads) + " key and value heads evenly");
  if (o.head_dim == 0) {
    if (dim % o.heads)
      fail("dim " + std::to_string(dim) + " does not divide into " + std::to_string(o.heads) + " heads; set head_dim");
    o.head_dim = dim / o.heads;
  }
  return o;
}

bool fused(const MultiHeadAttentionOptions& o) { return o.heads == o.kv_heads; }

std::optional<Linear> projection(ModuleBase* parent, const char* name, bool wanted, int64_t dim, const Shape& out,
                                 bool bias) {
  if (!wanted) return std::nullopt;
  return std::optional<Linear>(std::in_place, parent, name, Shape{dim}, out, LinearOptions{.bias = bias});
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(ModuleBase* parent, std::string name, int64_t dim,
                                       const MultiHeadAttentionOptions& given)
    : Module(parent, name),
      options(completed(path(), dim, given)),
      qkv(projection(this, "qkv", fused(options), dim, {3, options.heads, options.head_dim}, options.bias)),
      q(projection(this, "q", !fused(options), dim, {options.heads, options.head_dim}, options.bias)),
      kv(projection(this, "kv", !fused(options), dim, {2, options.kv_heads, options.head_dim}, options.bias)),
      out(this, "out", Shape{options.heads, options.head_dim}, Shape{dim}, {.bias = options.bias}) {}

Tensor MultiHeadAttention::forward(const Tensor& x, const Tensor& mask) const {
  std::vector<Tensor> heads;  // q, k, v as [B, T, H, D]
  if (qkv) {
    heads = unbind((*qkv)(x), 2);
  } else {
    heads = unbind((*kv)(x), 2);
    heads.insert(heads.begin(), (*q)(x));
  }
  for (Tensor& h : heads) h = transpose(h, 1, 2);
  if (options.rope)
    for (size_t i = 0; i < 2; ++i) heads[i] = rope(heads[i], *options.rope);
  Tensor a = scaled_dot_product_attention(
      heads[0], heads[1], heads[2],
      {.mask = mask, .dropout_p = training() ? options.dropout : 0.0, .is_causal = options.causal});
  return out(transpose(a, 1, 2));
}

}  // namespace cleave::nn
