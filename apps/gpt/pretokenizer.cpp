#include "gpt/pretokenizer.h"

#include <cleave/core/error.h>

#include <array>
#include <cstdint>

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace gpt {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// PCRE2's \s also has U+180E, which left White_Space in Unicode 6.3.
constexpr const char* kGpt2Compiled = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\t-\r\x{85}\p{Z}\p{L}\p{N}]+)"
                                      R"(|[\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}])|[\t-\r\x{85}\p{Z}]+)";

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Bytes of the UTF-8 character that `text` begins with, 0 if it begins with none (Unicode, table 3-7).
size_t character_bytes(std::string_view text) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  auto follows = [&](size_t first, size_t last) {
    for (size_t i = first; i <= last; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    return true;
  };
  uint8_t a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return follows(1, 1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    bool overlong = a == 0xE0 && b < 0xA0, surrogate = a == 0xED && b >= 0xA0;
    return follows(1, 2) && !overlong && !surrogate ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    bool overlong = a == 0xF0 && b < 0x90, beyond = a == 0xF4 && b >= 0x90;
    return follows(1, 3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

// The longest start of `text` that is UTF-8 (`valid`), or that has none.
size_t run_bytes(std::string_view text, bool valid) {
  size_t n = 0;
  while (n < text.size()) {
    size_t bytes = character_bytes(text.substr(n));
    if ((bytes > 0) != valid) break;
    n += valid ? bytes : 1;
  }
  return n;
}

}  // namespace

struct Pretokenizer::Code {
  explicit Code(const std::string& pattern) {
    int error = 0;
    size_t at = 0;
    compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
    if (!compiled)
      throw cleave::ValueError(fmt::format("the pattern {} cannot be used: {} at {}", pattern, message_of(error), at));
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // matching works without, slower
  }
  ~Code() { pcre2_code_free(compiled); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  // Adds the pieces of text that is UTF-8.
  void cut(std::string_view text, std::vector<std::string_view>& out) const {
    std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
        pcre2_match_data_create_from_pattern(compiled, nullptr), pcre2_match_data_free);
    size_t done = 0, from = 0;
    while (from < text.size()) {
      int found = pcre2_match(compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                              PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) throw cleave::ValueError(fmt::format("text cannot be cut into pieces: {}", message_of(found)));
      const size_t* range = pcre2_get_ovector_pointer(match.get());
      if (range[0] > done) out.push_back(text.substr(done, range[0] - done));
      out.push_back(text.substr(range[0], range[1] - range[0]));
      done = from = range[1];
    }
    if (done < text.size()) out.push_back(text.substr(done));
  }

  pcre2_code* compiled;
};

Pretokenizer::Pretokenizer(const std::string& pattern)
    : pattern_(pattern), code_(std::make_shared<Code>(pattern == kGpt2Pattern ? kGpt2Compiled : pattern)) {}

std::vector<std::string_view> Pretokenizer::pieces(std::string_view text) const {
  std::vector<std::string_view> out;
  for (bool valid = true; !text.empty(); valid = !valid) {
    size_t n = run_bytes(text, valid);
    if (valid)
      code_->cut(text.substr(0, n), out);
    else if (n > 0)
      out.push_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return out;
}

}  // namespace gpt
