// Regular expressions as tokenizer.json files hold them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace gpt {

/// A regular expression in the syntax of Oniguruma, which Hugging Face's tokenizers use, matched by PCRE2 with Unicode
/// classes. What the two read differently is translated: \s \w \h \v \b ^ $ and \uHHHH; what cannot be is refused:
/// classes within classes, {n,m}+, options but (?i) at the start or for a group, and rare escapes. PCRE2 10.42 knows
/// Unicode 14: characters that were assigned later have no class. A copy shares the compiled expression; threads may
/// use one together.
class Regex {
 public:
  /// Throws ValueError, naming the pattern and the fault.
  explicit Regex(const std::string& pattern);
  /// One that matches this text.
  static std::string escaped(std::string_view text);

  const std::string& pattern() const { return pattern_; }
  /// Calls f(piece, matched) for the matches that are not empty and for what lies between them, in order; together they
  /// are `text`, which must be UTF-8. Throws ValueError where matching needs more than PCRE2's limits.
  void cut(std::string_view text, const std::function<void(std::string_view, bool)>& f) const;

 private:
  struct Code;
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

}  // namespace gpt
