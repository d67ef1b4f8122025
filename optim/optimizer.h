// Optimizer: groups of parameters with options, and state that lies as the parameters do.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/nn/parameter.h>
#include <cleave/optim/schedule.h>

namespace cleave::optim {

namespace detail {
class Updated;
[[noreturn]] void refuse_group(size_t group, size_t groups);
[[noreturn]] void refuse_changed_groups();
/// Throws ValueError for a rate (lr times factor, of the next step) that is negative or not finite.
void check_rate(size_t group, double lr, double factor, int64_t step);
}  // namespace detail

/// Parameters that share options.
template <class Options>
struct Group {
  std::vector<nn::Parameter> parameters;
  Options options = {};
  std::optional<Schedule> schedule{};  ///< multiplies this group's lr, by `Optimizer::step_number()`
};

/// One tensor of an optimizer's state, e.g. {"up.weight.exp_avg", ...}; "up.weight.step" is a scalar i64, as is
/// "optimizer.step" (`step_number()`), which is there if a group has a schedule.
using NamedTensor = std::pair<std::string, Tensor>;

/// Common to all optimizers. Each rank updates the blocks it holds: state is split as the plan says
/// (Parameter::state_layout), else as the parameter is stored, or as its gradient is kept if that is split further.
/// bf16 and f16 parameters are updated through a master copy in f32, which is state too.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Syncs pending gradients and updates every parameter that has one, in place. Communicates for the sync, and where a
  /// gradient has another layout than its parameter. Counted under the phase "optimizer". Throws ValueError, before
  /// anything is changed, for groups with other parameters than at the start, options out of range, and a rate that is
  /// negative or not finite.
  void step();
  /// Forgets all gradients.
  void zero_grad();
  /// All groups' parameters, each once.
  const std::vector<nn::Parameter>& parameters() const { return parameters_; }

  /// The f32 copy that `parameters()[index]` of 16 bits is updated through, under the layout of its state: the
  /// optimizer's own, only read it. Where someone else has written another value to this rank's block since, a copy of
  /// that. Undefined if there is none: another dtype, or no step yet.
  Tensor master(size_t index) const;

  /// A number that every group's lr is multiplied with: `opt.set_lr_factor(schedule(step))`.
  void set_lr_factor(double factor) { lr_factor_ = factor; }
  double lr_factor() const { return lr_factor_; }

  /// Number of the next step, from 0: where the groups' schedules are. `step()` adds one, whether or not there were
  /// gradients.
  int64_t step_number() const { return step_number_; }
  /// Throws ValueError for a negative number.
  void set_step(int64_t number);

  /// All state by name, for checkpoints; empty before the first step. Tensors are the optimizer's own.
  std::vector<NamedTensor> state() const;
  /// Takes such state in any order, also from another layout or mesh, also before the first step; it moves at the next
  /// step. Plain tensors are values that all ranks hold. Throws ValueError for a name that no parameter has, one given
  /// twice, a negative step, state of a parameter without its step, or, if a group has a schedule, without
  /// "optimizer.step", ShapeError for another shape, DTypeError for a
  /// step that is no integer or other state that is not floating; then nothing has changed.
  void load_state(const std::vector<NamedTensor>& state);

 protected:
  /// Throws ValueError if there is none, one stands twice, or two have one name.
  explicit Optimizer(std::vector<nn::Parameter> parameters);

  /// What an update sees: this rank's dense blocks, f32 or f64 alike.
  struct Update {
    size_t index;  ///< in parameters()
    Tensor value, gradient;
    int64_t step;                    ///< from 1, by parameter
    const dist::LayoutData* layout;  ///< of which the blocks are; null: they are the whole
    Tensor rounded = {};             ///< see `rounds`
  };
  /// Changes update.value in place.
  virtual void update(const Update& update) = 0;
  /// Whether `update` also writes update.rounded where that is defined: the block of a parameter of 16 bits that
  /// update.value is the master of, while both are in the cache. Else it is copied afterwards.
  virtual bool rounds() const { return false; }
  /// Whether `update_all` is to see the updates of a step together, to share collectives among them; `update` is then
  /// never called. All values that are about to change are kept until it returns.
  virtual bool together() const { return false; }
  virtual void update_all(std::span<const Update> updates);
  /// Names of the state tensors that `update` keeps.
  virtual std::vector<std::string> state_names() const = 0;
  /// The dims of a parameter (bit mask) that this state has as size 1, being a sum over them.
  virtual uint32_t summed_dims(const std::string& name, const Shape& parameter) const;
  /// This rank's block of a state tensor, split as the blocks of the update except in summed dims; filled with
  /// `initial` at first.
  Tensor state_block(const Update& update, const char* name, double initial = 0);
  /// Whether it was asked for before, or loaded.
  bool has_state(const Update& update, const char* name) const;
  /// Whether a schedule uses `step_number()`, which makes it state.
  virtual bool scheduled() const { return false; }
  /// Throws what `step` does for groups.
  virtual void check_groups() const {}

 private:
  struct Slot {
    int64_t step = 0;
    std::map<std::string, Tensor> tensors = {};
    // The parameter as the last step left it, to see whether someone else wrote to it.
    const Storage* storage = nullptr;
    uint32_t version = 0;
    bool loaded = false;  // state came from load_state since
  };
  struct Work {
    Update update;
    Tensor stored, target;  ///< target: what the update writes, under update.layout
    bool direct;            ///< the layouts of the two are one
  };
  struct Loaded;
  Work begin_update(size_t index);
  void end_update(Work& work);
  void note_update(size_t index);
  Tensor updated_master(Slot& slot, const Tensor& stored, const Tensor& owned);
  static bool untouched(const Slot& slot, const Tensor& stored);
  Loaded checked_state(const std::vector<NamedTensor>& state) const;
  size_t owner_of(const std::string& full, const std::string& name) const;

  std::vector<nn::Parameter> parameters_;
  std::vector<std::string> names_;
  std::vector<Slot> slots_;
  double lr_factor_ = 1.0;
  std::unique_ptr<detail::Updated> updated_;  // during a step
  std::vector<size_t> stepped_;               // during a step
  int64_t step_number_ = 0;
};

/// Handles for an optimizer of tensors that belong to no module; they get the names "0", "1", ... and require grad.
std::vector<nn::Parameter> parameters_of(const std::vector<Tensor>& tensors);

/// The parameters for which `predicate` holds, and the others: for groups.
std::pair<std::vector<nn::Parameter>, std::vector<nn::Parameter>> partition(
    const std::vector<nn::Parameter>& parameters, const std::function<bool(const nn::Parameter&)>& predicate);
/// Whether weight decay is usual for it: at least two dims, and not named "bias".
bool decays(const nn::Parameter& parameter);

/// Where a rank keeps the state of these parameters, by name ("up.weight.exp_avg") and type: for
/// `nn::Checkpoint::read`, so that it reads its own blocks alone. State of a parameter's shape lies as
/// `Parameter::state_layout` says; all else is small, and plain:
///
///   opt.load_state(file.read("optimizer", optim::state_layouts(opt.parameters())));
std::function<dist::Layout(const std::string&, const TensorType&)> state_layouts(
    const std::vector<nn::Parameter>& parameters);

/// An optimizer with options of one kind. Construct it as `AdamW opt(model.parameters(), {.lr = 1e-3})`, from tensors,
/// or from groups: `AdamW opt({{.parameters = a}, {.parameters = b, .options = {.weight_decay = 0}}})`.
template <class Options>
class GroupedOptimizer : public Optimizer {
 public:
  /// Options and schedules may be changed between steps, parameters may not.
  std::vector<Group<Options>>& groups() { return groups_; }
  const std::vector<Group<Options>>& groups() const { return groups_; }
  /// A group's lr at the next step, under its schedule and the factor: of the first one, what logs show. Throws
  /// ValueError for a group that there is not.
  double lr(size_t group = 0) const {
    if (group >= groups_.size()) detail::refuse_group(group, groups_.size());
    return groups_[group].options.lr * factor(group);
  }

 protected:
  /// Throws for options out of range.
  using Check = void (*)(const Group<Options>&);
  GroupedOptimizer(std::vector<Group<Options>> groups, Check check)
      : Optimizer(all(groups)), groups_(std::move(groups)), check_(check) {
    for (size_t g = 0; g < groups_.size(); ++g) group_of_.insert(group_of_.end(), groups_[g].parameters.size(), g);
    for (const Group<Options>& group : groups_) check_(group);
  }
  const Options& options(size_t parameter) const { return groups_[group_of_[parameter]].options; }
  double lr_of(size_t parameter) const { return lr(group_of_[parameter]); }
  /// By which rates of its group are multiplied now.
  double factor_of(size_t parameter) const { return factor(group_of_[parameter]); }

 private:
  double factor(size_t group) const {
    const Group<Options>& g = groups_[group];
    return lr_factor() * (g.schedule ? (*g.schedule)(step_number()) : 1.0);
  }
  bool scheduled() const override {
    for (const Group<Options>& g : groups_)
      if (g.schedule) return true;
    return false;
  }
  void check_groups() const override {
    size_t i = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const nn::Parameter& p : groups_[g].parameters) {
        if (i == group_of_.size() || group_of_[i] != g || !(parameters()[i] == p)) detail::refuse_changed_groups();
        ++i;
      }
      check_(groups_[g]);
      detail::check_rate(g, groups_[g].options.lr, factor(g), step_number());
    }
    if (i != group_of_.size()) detail::refuse_changed_groups();
  }
  static std::vector<nn::Parameter> all(const std::vector<Group<Options>>& groups) {
    std::vector<nn::Parameter> out;
    for (const auto& g : groups) out.insert(out.end(), g.parameters.begin(), g.parameters.end());
    return out;
  }
  std::vector<Group<Options>> groups_;
  std::vector<size_t> group_of_;
  Check check_;
};

}  // namespace cleave::optim
