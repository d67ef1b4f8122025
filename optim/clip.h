// Gradient clipping, right for every layout.
#pragma once
#include <ranges>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/nn/parameter.h>

namespace cleave::optim {

namespace detail {
inline const Tensor& leaf(const Tensor& x) { return x; }
inline const Tensor& leaf(const nn::Parameter& p) { return p.tensor(); }
/// Each element of a range of parameters or tensors once; the range is read once.
template <class Range>
std::vector<Tensor> leaves(Range&& range) {
  std::vector<Tensor> out;
  for (auto&& p : range) out.push_back(leaf(p));
  return out;
}
double clip_grad_norm(const std::vector<Tensor>& leaves, double max_norm, double p, double eps);
void clip_grads_with_norm(const std::vector<Tensor>& leaves, double max_norm, double norm, double eps);
double grad_norm(const std::vector<Tensor>& leaves, double p);
void clip_grad_value(const std::vector<Tensor>& leaves, double bound);
}  // namespace detail

/// The p-norm (1 <= p, or infinity) of all gradients as one vector, in f64: each element of the global gradients counts
/// once, whatever the layouts, and every rank gets the same bits. Syncs pending gradients; leaves without a gradient
/// are skipped. Communicates: one number.
template <class Range>
double grad_norm(Range&& parameters, double p = 2.0) {
  return detail::grad_norm(detail::leaves(std::forward<Range>(parameters)), p);
}

/// Multiplies all gradients in place by max_norm / (norm + eps) if that is below 1; returns the norm before. A norm
/// that is not finite reaches the gradients as in PyTorch; look at the result. Communicates as grad_norm.
template <class Range>
double clip_grad_norm(Range&& parameters, double max_norm, double p = 2.0, double eps = 1e-6) {
  return detail::clip_grad_norm(detail::leaves(std::forward<Range>(parameters)), max_norm, p, eps);
}

/// What `clip_grad_norm` does to the gradients, for a norm that is known already, from `grad_norm`.
template <class Range>
void clip_grads_with_norm(Range&& parameters, double max_norm, double norm, double eps = 1e-6) {
  detail::clip_grads_with_norm(detail::leaves(std::forward<Range>(parameters)), max_norm, norm, eps);
}

/// Clamps every element of the gradients into [-bound, bound], in place. Syncs pending gradients, which communicates.
template <class Range>
void clip_grad_value(Range&& parameters, double bound) {
  detail::clip_grad_value(detail::leaves(std::forward<Range>(parameters)), bound);
}

}  // namespace cleave::optim
