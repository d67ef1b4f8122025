// Optimizer: groups of parameters with options, and state that lies as the parameters do.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/together.h>
#include <cleave/nn/parameter.h>

namespace cleave::optim {

/// Parameters that share options.
template <class Options>
struct Group {
  std::vector<nn::Parameter> parameters;
  Options options = {};
};

/// One tensor of an optimizer's state, e.g. {"up.weight.exp_avg", ...}; "up.weight.step" is a scalar i64.
using NamedTensor = std::pair<std::string, Tensor>;

/// Common to all optimizers. Each rank updates the blocks it holds: state lies in the parameters' `state_layout()`
/// (split as the parameter is stored, or further: ZeRO); where that is split further, the updated parameters are
/// gathered, in buckets. bf16 and f16 parameters are updated through a master copy
/// in f32, which is state too.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Syncs pending gradients and updates every parameter that has one, in place. Communicates for the sync, and where a
  /// gradient has another layout than its parameter. Counted under the phase "optimizer".
  void step();
  /// Forgets all gradients.
  void zero_grad();
  /// All groups' parameters, each once.
  const std::vector<nn::Parameter>& parameters() const { return parameters_; }

  /// A number that every group's lr is multiplied with: `opt.set_lr_factor(schedule(step))`.
  void set_lr_factor(double factor) { lr_factor_ = factor; }
  double lr_factor() const { return lr_factor_; }

  /// All state by name, for checkpoints; empty before the first step. Tensors are the optimizer's own.
  std::vector<NamedTensor> state() const;
  /// Takes such state in any order, also from another layout or mesh; it moves at the next step. Plain tensors are
  /// values that all ranks hold. Throws ValueError for a name that no parameter has, ShapeError for another shape.
  void load_state(const std::vector<NamedTensor>& state);

 protected:
  /// Throws ValueError if there is none, or one stands twice.
  explicit Optimizer(std::vector<nn::Parameter> parameters);

  /// What an update sees: this rank's dense blocks, f32 or f64 alike.
  struct Update {
    size_t index;  ///< in parameters()
    Tensor value, gradient;
    int64_t step;  ///< from 1, by parameter
  };
  /// Changes update.value in place.
  virtual void update(const Update& update) = 0;
  /// Names of the state tensors that `update` keeps.
  virtual std::vector<std::string> state_names() const = 0;
  /// This rank's block of a state tensor; zeros at first.
  Tensor state_block(const Update& update, const char* name);

 private:
  struct Slot {
    int64_t step = 0;
    std::map<std::string, Tensor> tensors = {};
    // The parameter as the last step left it, to see whether someone else wrote to it.
    const Storage* storage = nullptr;
    uint32_t version = 0;
    bool loaded = false;  // state came from load_state since
  };
  void update_one(size_t index, dist::GatherBuckets& gathers);
  Tensor master(Slot& slot, const Tensor& stored, const Tensor& owned);

  std::vector<nn::Parameter> parameters_;
  std::vector<std::string> names_;
  std::vector<Slot> slots_;
  double lr_factor_ = 1.0;
  const dist::LayoutData* layout_ = nullptr;  // of the blocks of the update under way
};

/// Handles for an optimizer of tensors that belong to no module; they get the names "0", "1", ... and require grad.
std::vector<nn::Parameter> parameters_of(const std::vector<Tensor>& tensors);

/// The parameters for which `predicate` holds, and the others: for groups.
std::pair<std::vector<nn::Parameter>, std::vector<nn::Parameter>> partition(
    const std::vector<nn::Parameter>& parameters, const std::function<bool(const nn::Parameter&)>& predicate);
/// Whether weight decay is usual for it: at least two dims, and not named "bias".
bool decays(const nn::Parameter& parameter);

/// An optimizer with options of one kind. Construct it as `AdamW opt(model.parameters(), {.lr = 1e-3})`, from tensors,
/// or from groups: `AdamW opt({{.parameters = a}, {.parameters = b, .options = {.weight_decay = 0}}})`.
template <class Options>
class GroupedOptimizer : public Optimizer {
 public:
  /// Options may be changed between steps.
  std::vector<Group<Options>>& groups() { return groups_; }
  const std::vector<Group<Options>>& groups() const { return groups_; }
  /// The first group's lr under the factor: what logs show.
  double lr() const { return groups_.front().options.lr * lr_factor(); }

 protected:
  explicit GroupedOptimizer(std::vector<Group<Options>> groups) : Optimizer(all(groups)), groups_(std::move(groups)) {
    for (size_t g = 0; g < groups_.size(); ++g) group_of_.insert(group_of_.end(), groups_[g].parameters.size(), g);
  }
  const Options& options(size_t parameter) const { return groups_[group_of_[parameter]].options; }

 private:
  static std::vector<nn::Parameter> all(const std::vector<Group<Options>>& groups) {
    std::vector<nn::Parameter> out;
    for (const auto& g : groups) out.insert(out.end(), g.parameters.begin(), g.parameters.end());
    return out;
  }
  std::vector<Group<Options>> groups_;
  std::vector<size_t> group_of_;
};

}  // namespace cleave::optim
