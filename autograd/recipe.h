// Recipes: tensors that backward gathers again instead of the tape keeping them.
#pragma once
#include <memory>
#include <vector>

#include <cleave/autograd/node.h>

namespace cleave::autograd {

/// What the tape keeps as (source, layout), to be redistributed again in backward, instead of the copy.
enum class Regather : uint8_t {
  nothing,
  parameters,  ///< what nn::Parameter gathers to its use layout: ZeRO-3 (the default)
  activations  ///< also of activations: the gathers of sequence parallelism run once more in backward, as Megatron does
               ///< (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models"), which
               ///< costs one all-gather per gathered tensor and saves its memory from forward to backward
};

/// Chooses for what this rank records while it lives; every rank alike. The source must not be written in place until
/// backward has run: GradError there.
class RegatherScope {
 public:
  explicit RegatherScope(Regather what);
  ~RegatherScope();
  RegatherScope(const RegatherScope&) = delete;
  RegatherScope& operator=(const RegatherScope&) = delete;

 private:
  Regather before_;
};

/// How to get a saved tensor again: a view of `source` under `to`.
struct Recipe {
  Tensor source;
  uint32_t version;
  const LayoutData* to;
  View view;           ///< its `data` is unused
  int64_t offset = 0;  ///< of its first element, in bytes from that of the gathered block
  Shape shape;         ///< global
  const LayoutData* layout;
  NodeRef gather;  ///< of the redistribution on the tape; none if it was not recorded
  bool written() const { return source.version() != version; }
  /// Two recipes with one key are of one gathered copy.
  const void* key() const { return gather ? static_cast<const void*>(gather.get()) : this; }
};

/// The recipe for `x`, if it is (a view of) the remembered result of a redistribution that is to be run again.
std::unique_ptr<const Recipe> recipe_of(const Tensor& x);
/// The tensor that it is of, off the tape. Communicates unless the copy is there. Throws GradError naming `op` if the
/// source was written in place since.
Tensor follow(const Recipe& recipe, const char* op);

/// The copies that a backward run has gathered: each lives until the redistribution that first made it runs backward,
/// as all that needs it has run then; without one, it goes with the node that asked.
class Regathered {
 public:
  Regathered();
  ~Regathered();
  Regathered(const Regathered&) = delete;
  Regathered& operator=(const Regathered&) = delete;
  /// The run that this rank is in, or null.
  static Regathered* current();

  Tensor find(const void* key) const;
  void keep(const void* key, const Tensor& whole) { copies_.emplace_back(key, whole); }
  void drop(const void* key);
  /// Begins to gather what `recipe` needs, unless it is there.
  void start(const Recipe& recipe);

 private:
  Regathered* outer_;
  std::vector<std::pair<const void*, Tensor>> copies_;
};

}  // namespace cleave::autograd
