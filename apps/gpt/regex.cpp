#include "gpt/regex.h"

#include <cleave/core/error.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace gpt {

namespace {

// What stands in a class for Oniguruma's \s, \w and \h. PCRE2's \s also has U+180E, its \w lacks marks; of numbers that
// are no digits Oniguruma's \w has those of Latin-1.
constexpr const char* kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE)";
constexpr const char* kHex = "0-9A-Fa-f";

/// From Oniguruma's syntax (with its defaults, of Ruby) to PCRE2's.
class Translator {
 public:
  explicit Translator(const std::string& pattern) : in_(pattern) {}

  std::string translated() {
    while (at_ < in_.size()) {
      char c = in_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        in_class(c);
      else
        outside(c);
    }
    return out_;
  }

 private:
  bool next_is(std::string_view text) const { return std::string_view(in_).substr(at_).starts_with(text); }
  void copy(size_t n) {
    out_ += in_.substr(at_, n);
    at_ += n;
  }
  void put(const std::string& text, size_t n) {
    out_ += text;
    at_ += n;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw cleave::ValueError(fmt::format("the pattern {} cannot be used: it has {} at {}", in_, what, at_));
  }

  void escape() {
    if (at_ + 1 == in_.size()) refuse("a \\ at its end");
    char c = in_[at_ + 1];
    switch (c) {
      case 's':
        return set(kSpace, false);
      case 'w':
        return set(kWord, false);
      case 'h':
        return set(kHex, false);
      case 'S':
        return in_class_ ? put(R"(\S\x{180E})", 2) : set(kSpace, true);
      case 'W':
        return set(kWord, true);
      case 'H':
        return set(kHex, true);
      case 'v':
        return put(R"(\x{0B})", 2);
      case 'b':
      case 'B':
        return boundary(c == 'b');
      case 'p':
      case 'P':
        return property();
      case 'u':
        return unicode();
      default:
        break;
    }
    // Of the letters, those that mean the same in both; \x only with a brace or of ASCII, else it is a byte to one.
    bool ascii = c == 'x' && (next_is("\\x{") || (at_ + 2 < in_.size() && in_[at_ + 2] < '8'));
    if (std::isalnum(static_cast<unsigned char>(c)) && !std::strchr("dDntrfaeAzZR", c) && !ascii)
      refuse(fmt::format("\\{}", c));
    copy(2);
  }
  void set(const std::string& members, bool negated) {
    if (in_class_ && negated) refuse(fmt::format("{} in a class", in_.substr(at_, 2)));
    put(in_class_ ? members : fmt::format("[{}{}]", negated ? "^" : "", members), 2);
  }
  void boundary(bool is) {
    if (in_class_) refuse("\\b in a class");
    // A word on one side only; for \B on both or none.
    put(fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", kWord, is ? '!' : '=', is ? '=' : '!'), 2);
  }
  void property() {
    size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string::npos)
      refuse(fmt::format("{} without a {{name}}", in_.substr(at_, 2)));
    copy(end + 1 - at_);
  }
  void unicode() {
    std::string digits = in_.substr(at_ + 2, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse("\\u without four digits");
    put(fmt::format("\\x{{{}}}", digits), 6);
  }

  void in_class(char c) {
    if (c == '[') refuse("a class in a class");
    if (next_is("&&")) refuse("&& in a class");
    in_class_ = c != ']';
    copy(1);
  }
  void outside(char c) {
    if (c == '^' || c == '$') return put(fmt::format("(?m:{})", c), 1);
    if (c == '[') {
      in_class_ = true;
      copy(next_is("[^") ? 2 : 1);
      if (next_is("]")) refuse("an empty class");
    } else if (c == '(') {
      group();
    } else if (c == '{') {
      interval();
    } else {
      copy(1);
    }
  }
  void group() {
    if (!next_is("(?")) return copy(1);
    for (const char* known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"})
      if (next_is(known)) return copy(std::strlen(known));
    if (at_ == 0 && next_is("(?i)")) return copy(4);
    refuse(in_.substr(at_, 3));
  }
  // {n}, {n,} and {n,m}, not followed by + (which repeats them for Oniguruma) nor, for {n}, by ?.
  void interval() {
    size_t end = in_.find('}', at_);
    std::string inside = end == std::string::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    bool digits = !inside.empty() && inside[0] != ',' && inside.find_first_not_of("0123456789,") == std::string::npos;
    if (!digits) refuse("{ that begins no {n,m}");
    char after = end + 1 < in_.size() ? in_[end + 1] : ' ';
    if (after == '+' || (after == '?' && inside.find(',') == std::string::npos))
      refuse(fmt::format("{{{}}}{}", inside, after));
    copy(end + 1 - at_);
  }

  const std::string& in_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <class T>
using Freed = std::unique_ptr<T, void (*)(T*)>;

}  // namespace

struct Regex::Code {
  explicit Code(const std::string& pattern) : compiled(nullptr, pcre2_code_free) {
    int error = 0;
    size_t at = 0;
    std::string text = Translator(pattern).translated();
    Freed<pcre2_compile_context> context(pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get()));
    if (!compiled)
      throw cleave::ValueError(fmt::format("the pattern {} cannot be used: {}", pattern, message_of(error)));
    jit = pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE) == 0;  // matching works without, slower
  }

  Freed<pcre2_code> compiled;
  bool jit = false;
};

Regex::Regex(const std::string& pattern) : pattern_(pattern), code_(std::make_shared<Code>(pattern)) {}

std::string Regex::escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c))) out += '\\';
    out += c;
  }
  return out;
}

void Regex::cut(std::string_view text, const std::function<void(std::string_view, bool)>& f) const {
  const pcre2_code* code = code_->compiled.get();
  Freed<pcre2_match_data> match(pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  size_t done = 0;
  while (done < text.size()) {
    int found = code_->jit ? pcre2_jit_match(code, subject, text.size(), done, options, match.get(), nullptr)
                           : pcre2_match(code, subject, text.size(), done, options, match.get(), nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter's stack is on the heap
      found = pcre2_match(code, subject, text.size(), done, options | PCRE2_NO_JIT, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw cleave::ValueError(fmt::format("text cannot be cut by the pattern {}: {}", pattern_, message_of(found)));
    const size_t* range = pcre2_get_ovector_pointer(match.get());
    if (range[0] > done) f(text.substr(done, range[0] - done), false);
    f(text.substr(range[0], range[1] - range[0]), true);
    done = range[1];
  }
  if (done < text.size()) f(text.substr(done), false);
}

}  // namespace gpt
