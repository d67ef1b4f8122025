// What is done to text before it is cut into pieces, as the "normalizer" of a tokenizer.json says.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/regex.h"

namespace gpt {

/// One step, by Hugging Face's name.
struct NormalizerStep {
  std::string type;          ///< NFC, NFD, NFKC, NFKD, Lowercase, Prepend or Replace
  std::string pattern = {};  ///< of Replace: the text that is replaced, or a regular expression
  bool regex = false;        ///< of Replace: whether it is one
  std::string content = {};  ///< of Prepend and Replace: the new text

  friend bool operator==(const NormalizerStep&, const NormalizerStep&) = default;
};

/// The steps one after the other; none: text stays as it is. Bytes that are no UTF-8 stay as they are. The forms are
/// those of Unicode 15 (utf8proc), lower case is each character's own, as in Rust. Hugging
/// Face knows the forms of Unicode 9, and leaves the few characters as they are that got one later. Threads may use one
/// together.
class Normalizer {
 public:
  /// Throws ValueError for a type that is not known and a pattern that cannot be used.
  explicit Normalizer(std::vector<NormalizerStep> steps);
  bool empty() const { return steps_.empty(); }
  std::string operator()(std::string_view text) const;

 private:
  struct Step {
    NormalizerStep step;
    std::optional<Regex> regex;
  };
  std::vector<Step> steps_;
};

}  // namespace gpt
