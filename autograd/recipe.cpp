#include <cleave/autograd/memo.h>
#include <cleave/autograd/recipe.h>
#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/dist/redistribution.h>

#include <algorithm>

namespace cleave::autograd {
namespace {

thread_local Regather regather = Regather::parameters;
thread_local Regathered* running = nullptr;

// Keeping the source must be cheaper than keeping the copy, and getting the copy must not reduce.
bool pays(const Remembered& made) {
  const LayoutData *from = made.source.impl()->layout, *to = made.to;
  if (from->mesh != to->mesh || from->partial || to->partial) return false;
  if (from->mesh->size_of(from->split()) <= to->mesh->size_of(to->split())) return false;
  return made.again || regather == Regather::activations;
}

void require_unwritten(const Recipe& recipe, const char* op) {
  if (recipe.written())
    throw GradError("[" + std::string(op) + "] its backward needs " + to_string(recipe.source.type()) +
                    ", which was written in place since (version " + std::to_string(recipe.source.version()) +
                    ", saved at " + std::to_string(recipe.version) + "); write to a clone instead");
}

}  // namespace

RegatherScope::RegatherScope(Regather what) : before_(std::exchange(regather, what)) {}
RegatherScope::~RegatherScope() { regather = before_; }

std::unique_ptr<const Recipe> recipe_of(const Tensor& x) {
  const detail::TensorImpl& impl = *x.impl();
  // A plain view is of a function on local shards, which may not do the same on every rank.
  if (regather == Regather::nothing || !impl.layout || impl.absent) return nullptr;
  Remembered made = remembered(x);
  if (!made.source.defined() || !pays(made)) return nullptr;
  auto recipe = std::make_unique<Recipe>();
  recipe->source = made.source;
  recipe->version = made.source.version();
  recipe->to = made.to;
  recipe->view = impl.view;
  if (impl.view.data)
    recipe->offset = static_cast<char*>(impl.view.data) - static_cast<char*>(made.result.impl()->view.data);
  recipe->shape = impl.global;
  recipe->layout = impl.layout;
  recipe->gather = edge_of(made.result).node;
  return recipe;
}

Tensor follow(const Recipe& recipe, const char* op) {
  require_unwritten(recipe, op);
  Regathered* run = Regathered::current();
  Tensor whole = run ? run->find(recipe.key()) : Tensor();
  if (!whole.defined()) {
    whole = recall_value(recipe.source, recipe.to);
    if (!whole.defined()) whole = dist::redistribute_data(recipe.source.detach(), recipe.to, "gather again");
    if (run && recipe.gather) run->keep(recipe.key(), whole);
  } else if (!recipe.gather) {
    run->drop(recipe.key());
  }
  View view = recipe.view;
  view.data = whole.impl()->view.data;
  if (view.data) view.data = static_cast<char*>(view.data) + recipe.offset;
  return detail::make_view(whole, view, recipe.shape, recipe.layout);
}

Regathered::Regathered() : outer_(std::exchange(running, this)) {}
Regathered::~Regathered() { running = outer_; }
Regathered* Regathered::current() { return running; }

Tensor Regathered::find(const void* key) const {
  auto it = std::find_if(copies_.begin(), copies_.end(), [&](const auto& c) { return c.first == key; });
  return it == copies_.end() ? Tensor() : it->second;
}

void Regathered::drop(const void* key) {
  std::erase_if(copies_, [&](const auto& c) { return c.first == key; });
}

void Regathered::start(const Recipe& recipe) {
  if (recipe.written() || find(recipe.key()).defined() || recall_value(recipe.source, recipe.to).defined()) return;
  keep(recipe.key(), dist::start_redistribution(recipe.source.detach(), recipe.to, "gather again"));
}

}  // namespace cleave::autograd
