// List: modules of one kind by number.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <cleave/nn/module_base.h>

namespace cleave::nn {

/// n modules "0", "1", ..., each constructed as M(list, "0", args...). Iterates over M&.
///
///   nn::List<Block> blocks{this, "blocks", n, config};
template <class M>
class List : public ModuleBase {
  template <class Pointer, class Value>
  struct Iterator {
    Pointer at;
    Value& operator*() const { return **at; }
    Value* operator->() const { return at->get(); }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;
  };
  using Pointers = std::vector<std::unique_ptr<M>>;

 public:
  template <class... A>
  List(ModuleBase* parent, std::string name, int64_t n, const A&... args) : ModuleBase(parent, std::move(name)) {
    for (int64_t i = 0; i < n; ++i) emplace_back(args...);
  }
  /// Constructs the next one.
  template <class... A>
  M& emplace_back(A&&... args) {
    items_.push_back(
        std::make_unique<M>(static_cast<ModuleBase*>(this), std::to_string(items_.size()), std::forward<A>(args)...));
    return *items_.back();
  }

  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  const M& operator[](int64_t i) const { return *items_.at(static_cast<size_t>(i)); }
  M& operator[](int64_t i) { return *items_.at(static_cast<size_t>(i)); }
  auto begin() const { return Iterator<typename Pointers::const_iterator, const M>{items_.begin()}; }
  auto end() const { return Iterator<typename Pointers::const_iterator, const M>{items_.end()}; }
  auto begin() { return Iterator<typename Pointers::iterator, M>{items_.begin()}; }
  auto end() { return Iterator<typename Pointers::iterator, M>{items_.end()}; }

 private:
  Pointers items_;
};

}  // namespace cleave::nn
