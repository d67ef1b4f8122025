// Activation functions, element by element. bf16 and f16 compute in f32.
#pragma once
#include <string_view>

#include <cleave/core/tensor.h>

namespace cleave {

Tensor relu(const Tensor& x);  ///< max(x, 0); gradient 0 at 0
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);   ///< 1 / (1 + exp(-x))
Tensor silu(const Tensor& x);      ///< x * sigmoid(x)
Tensor softplus(const Tensor& x);  ///< log(1 + exp(x))

struct GeluOptions {
  std::string_view approximate = "none";  ///< or "tanh"
};
/// x * Phi(x) (Hendrycks and Gimpel 2016): Phi by erf, or 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Throws
/// ValueError for another word.
Tensor gelu(const Tensor& x, const GeluOptions& options = {});

}  // namespace cleave
