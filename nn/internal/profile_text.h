// What the events of a trace say, each thing once: a training step repeats itself.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include <cleave/core/observer.h>
#include <cleave/core/type.h>

namespace cleave::nn::detail {

/// A running hash of numbers and texts, for keys of which 64 bits are enough.
class Hash {
 public:
  Hash& add(uint64_t n) {
    h_ = (h_ ^ n) * 0x9E3779B97F4A7C15u;
    h_ ^= h_ >> 32;
    return *this;
  }
  Hash& add(std::string_view text) { return add(std::hash<std::string_view>{}(text)); }
  uint64_t value() const { return h_; }

 private:
  uint64_t h_ = 0;
};

/// Name, category and members of "args" of an event, as JSON.
struct EventText {
  std::string name, category, arguments;
};

/// The texts of spans, by what is in them.
class EventTexts {
 public:
  /// Of a span that ends now: types of outputs are known. `subject`: what communication moves, if known. Beyond
  /// 65,536 texts: one of the name alone.
  uint32_t of(const Span& span, const std::string* subject = nullptr);
  /// Of something that is no span.
  uint32_t of(const std::string& name, const char* category);
  const EventText& operator[](uint32_t i) const { return texts_[i]; }

 private:
  struct TypeRef {
    DType dtype;
    const Shape* shape;
    const dist::LayoutData* layout;
  };
  void collect(const Span& span);
  std::vector<TypeRef> in_, out_;  // of the span at hand
  std::vector<EventText> texts_;
  std::unordered_map<uint64_t, uint32_t> known_;
};

/// What a span is called: "linear", "backward of linear", "all_reduce over tp", "blocks.0.attention".
std::string name_of(const Span& span);
/// What a redistribution moves: "blocks.0.mlp.up.weight", "head.weight and 11 more"; "" if no parameter is known for
/// it.
std::string subject_of(const Span& span);
/// "text" with quotes and escapes.
std::string quoted(std::string_view text);

}  // namespace cleave::nn::detail
