// UTF-8: characters of text that may have other bytes in it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpt {

/// Bytes of the character that `text` begins with, 0 if it begins with none (Unicode, table 3-7).
size_t character_bytes(std::string_view text);
/// Bytes of the character that `text` ends with, 0 if it ends with none.
size_t last_character_bytes(std::string_view text);
/// Bytes of the longest start of `text` that is UTF-8 (`valid`), or in which no character begins.
size_t run_bytes(std::string_view text, bool valid);
/// The code point of one character of UTF-8.
uint32_t code_point(std::string_view character);
/// Unicode's White_Space.
bool is_white_space(uint32_t code_point);

/// Calls f(run, valid) for the runs of `text`, by turns UTF-8 and none; none is empty.
template <class F>
void for_runs(std::string_view text, F&& f) {
  for (bool valid = true; !text.empty(); valid = !valid) {
    size_t n = run_bytes(text, valid);
    if (n > 0) f(text.substr(0, n), valid);
    text.remove_prefix(n);
  }
}

}  // namespace gpt
