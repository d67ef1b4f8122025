// ModuleBase: the untyped tree of modules, with their parameters and buffers by dotted name.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/mesh.h>

namespace cleave::nn {

class Parameter;
class Buffer;
class ModuleBase;

namespace detail {
struct ParameterState;
/// One parameter or buffer under the name a module gives it; a tie is a further name.
struct Member {
  std::string name;
  std::weak_ptr<ParameterState> state;
  bool tie = false;
};
}  // namespace detail

/// Layouts that a plan gives to inputs or outputs, named by position ("0", "1") or by name; patterns where written so.
using PortLayouts = std::vector<std::pair<std::string, dist::Layout>>;

namespace detail {
/// Makes `module` (not those below) run on `mesh` between these layouts.
void place_module(ModuleBase& module, const dist::MeshState* mesh, PortLayouts inputs, PortLayouts outputs);
/// Sets a mode of `module`, not of those below.
void set_training(ModuleBase& module, bool on);
void set_recomputes(ModuleBase& module, bool on);
}  // namespace detail

/// The parent of all modules: a name, a parent, children, parameters and buffers. Members register themselves with the
/// module that they are constructed in; neither copied nor moved.
class ModuleBase {
 public:
  ModuleBase(const ModuleBase&) = delete;
  ModuleBase& operator=(const ModuleBase&) = delete;
  virtual ~ModuleBase();

  /// Its name in its parent; "" for a root.
  const std::string& name() const { return name_; }
  /// Names from the root, dotted: "blocks.0.norm1"; "" for the root.
  const std::string& path() const { return path_; }
  ModuleBase* parent() const { return parent_; }
  /// In the order constructed.
  const std::vector<ModuleBase*>& children() const { return children_; }
  /// The module at a path relative to this one ("" is this). Throws ValueError naming the nearest.
  ModuleBase& module(std::string_view path) const;
  /// This module ("") and all below it, parents first, with paths relative to this one.
  std::vector<std::pair<std::string, ModuleBase*>> named_modules() const;

  /// Own parameters first, then the children's, with names relative to this module; tied ones once, under their first
  /// name. The handles stay valid when the model is sharded.
  std::vector<std::pair<std::string, Parameter>> named_parameters() const;
  std::vector<Parameter> parameters() const;
  /// Every name, ties too.
  std::vector<std::pair<std::string, Parameter>> named_parameters_with_ties() const;
  /// Throws ValueError naming the nearest.
  Parameter parameter(std::string_view name) const;
  std::vector<std::pair<std::string, Buffer>> named_buffers() const;
  std::vector<Buffer> buffers() const;

  /// Sets the mode of this module and all below: dropout is active in training, which is how modules start.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  void zero_grad() const;
  /// Whether backward computes it again instead of keeping its intermediate tensors: see set_recompute.
  bool recomputes() const { return recomputes_; }

  bool is_sharded() const { return mesh_ != nullptr; }
  /// Throws LayoutError unless sharded.
  dist::DeviceMesh mesh() const;
  /// What the plan gives its inputs and outputs; empty where it gives nothing.
  const PortLayouts& input_layouts() const { return inputs_; }
  const PortLayouts& output_layouts() const { return outputs_; }
  /// The names of its inputs, if it has declared `inputs`.
  virtual std::span<const char* const> input_names() const { return {}; }
  /// Whether it has an `operator()`; a list has none.
  virtual bool callable() const { return false; }

 protected:
  /// A root.
  ModuleBase() = default;
  /// A child of `parent` (a root if that is null). Throws ValueError for a name that is taken, empty, or has a dot.
  ModuleBase(ModuleBase* parent, std::string name);

 private:
  friend class Parameter;
  friend class Buffer;
  friend void detail::place_module(ModuleBase&, const dist::MeshState*, PortLayouts, PortLayouts);
  friend void detail::set_training(ModuleBase&, bool);
  friend void detail::set_recomputes(ModuleBase&, bool);
  void require_free(const std::string& name) const;
  void add(detail::Member member, bool buffer);
  void collect(const std::string& prefix, bool buffers, std::vector<detail::Member>& out) const;

  ModuleBase* parent_ = nullptr;
  std::string name_, path_;
  std::vector<ModuleBase*> children_;
  std::vector<detail::Member> parameters_, buffers_;
  bool training_ = true, recomputes_ = false;
  const dist::MeshState* mesh_ = nullptr;
  PortLayouts inputs_, outputs_;
};

/// Makes the elements of deferred parameters and buffers, whole and plain: for a model that is not sharded.
void materialize(ModuleBase& model);

}  // namespace cleave::nn
