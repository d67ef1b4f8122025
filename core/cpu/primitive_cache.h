// oneDNN primitives that a thread has made. Making one takes longer than a small product.
#pragma once
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>

namespace cleave::cpu {

/// By what they were made for; emptied when full.
template <class Prepared>
struct PrimitiveCache {
  using Key = std::array<int64_t, 9>;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Prepared> entries;

  /// Made by `make(engine)` if it is not there; null if oneDNN has no such primitive.
  template <class Make>
  Prepared* find(const Key& key, Make make) {
    constexpr size_t kMost = 256;
    auto found = entries.find(key);
    if (found != entries.end()) return &found->second;
    if (entries.size() >= kMost) entries.clear();
    try {
      return &entries.emplace(key, make(engine)).first->second;
    } catch (const dnnl::error&) { return nullptr; }
  }
};

}  // namespace cleave::cpu
