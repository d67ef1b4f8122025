// Pieces of text that byte pairs are merged within.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// The pattern of GPT-2, as Hugging Face's "ByteLevel" has it: contractions, words, numbers and runs of other signs,
/// each with the space before it, and white space.
extern const char* const kGpt2Pattern;

/// Cuts text into pieces by a regular expression with Unicode classes (PCRE2's syntax, white space as in Unicode's
/// White_Space for kGpt2Pattern). Matches are pieces, and so is what lies between them; together they are the text.
/// Bytes that are no UTF-8 end what is matched around them. Threads may use one together.
class Pretokenizer {
 public:
  /// Throws ValueError with the place of the fault for a pattern that PCRE2 does not take.
  explicit Pretokenizer(const std::string& pattern);
  const std::string& pattern() const { return pattern_; }
  /// The pieces in order, as views of `text`; none is empty. Throws ValueError where matching needs more than PCRE2's
  /// limits.
  std::vector<std::string_view> pieces(std::string_view text) const;

 private:
  struct Code;
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

}  // namespace gpt
