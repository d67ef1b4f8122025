// Pieces of text that byte pairs are merged within.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/regex.h"

namespace gpt {

/// The pattern of GPT-2, as Hugging Face's "ByteLevel" has it: contractions, words, numbers and runs of other signs,
/// each with the space before it, and white space.
extern const char* const kGpt2Pattern;

/// Cuts text into pieces by regular expressions, each by the next one: matches are pieces, and so is what lies between
/// them; together they are the text. Bytes that are no UTF-8 are pieces of their own, and end what is matched around
/// them. Threads may use one together.
class Pretokenizer {
 public:
  /// Throws ValueError for a pattern that cannot be used (see Regex).
  explicit Pretokenizer(const std::vector<std::string>& patterns);
  /// Calls f for the pieces in order; none is empty. Throws ValueError where matching needs more than PCRE2's limits.
  void cut(std::string_view text, const std::function<void(std::string_view)>& f) const;

 private:
  void cut_from(size_t step, std::string_view text, const std::function<void(std::string_view)>& f) const;
  std::vector<Regex> steps_;
};

}  // namespace gpt
