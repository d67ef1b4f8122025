// Muon: steps of matrices with all singular values near one.
#pragma once
#include <cleave/optim/adam.h>

namespace cleave::optim {

/// By what lr is multiplied for a matrix m x n.
enum class MuonScale : uint8_t {
  original,    ///< sqrt(max(1, m / n)) (Jordan)
  match_adamw  ///< 0.2 sqrt(max(m, n)), so that rates of AdamW fit (Liu et al. 2025)
};

struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;  ///< decoupled
  int steps = 5;              ///< of Newton-Schulz
  double a = 3.4445, b = -4.7750, c = 2.0315;
  double eps = 1e-7;  ///< the least norm that a step is divided by
  MuonScale scale = MuonScale::original;
  /// For parameters that are no matrices (and all of a group with `orthogonal` off: embeddings, heads); without it such
  /// a parameter is a ShapeError. Its lr is under the same schedule.
  std::optional<AdamWOptions> rest = {};
  bool orthogonal = true;  ///< off: the whole group is updated by `rest`
};

/// B = momentum B + g; U = nesterov ? g + momentum B : B; X = U / |U|, then `steps` times X = a X + (b A + c A A) X
/// with A = X X^T; w = (1 - lr * weight_decay) w - lr * scale * X (Jordan et al. 2024, "Muon: An optimizer for hidden
/// layers in neural networks"). For parameters of two dims. The momentum lies as the state does; for the iteration, in
/// f32 (f64 for f64), matrices are brought whole to one rank each: those of one shape and layout are dealt out evenly
/// over the ranks that split them (so ZeRO-1 shares the work among the data ranks), in two exchanges a step. The bits
/// are one device's under every layout. State: momentum_buffer, or AdamW's, and `master` for halves.
class Muon : public GroupedOptimizer<MuonOptions> {
 public:
  explicit Muon(const std::vector<nn::Parameter>& parameters, const MuonOptions& options = {});
  explicit Muon(const std::vector<Tensor>& tensors, const MuonOptions& options = {});
  /// All throw ValueError for an option out of its range, ShapeError for a parameter of other than two dims without
  /// `rest`.
  explicit Muon(std::vector<Group<MuonOptions>> groups);

 private:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  bool together() const override { return true; }
  Tensor momentum_step(const Update& update);
  void apply(const Update& update, const Tensor& step);
  void update_rest(const Update& update);
  std::vector<std::string> state_names() const override;
};

}  // namespace cleave::optim
