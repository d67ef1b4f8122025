#include "gpt/utf8.h"

#include <algorithm>

namespace gpt {

size_t character_bytes(std::string_view text) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  auto follows = [&](size_t first, size_t last) {
    for (size_t i = first; i <= last; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    return true;
  };
  if (text.empty()) return 0;
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

size_t last_character_bytes(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(4, text.size()); ++n)
    if ((static_cast<uint8_t>(text[text.size() - n]) & 0xC0) != 0x80)
      return character_bytes(text.substr(text.size() - n)) == n ? n : 0;
  return 0;
}

size_t run_bytes(std::string_view text, bool valid) {
  size_t n = 0;
  while (n < text.size()) {
    size_t bytes = character_bytes(text.substr(n));
    if ((bytes > 0) != valid) break;
    n += valid ? bytes : 1;
  }
  return n;
}

uint32_t code_point(std::string_view c) {
  auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(c[i]) & 0x3Fu); };
  auto first = static_cast<uint8_t>(c[0]);
  switch (c.size()) {
    case 1:
      return first;
    case 2:
      return (first & 0x1Fu) << 6 | at(1);
    case 3:
      return (first & 0x0Fu) << 12 | at(1) << 6 | at(2);
    default:
      return (first & 0x07u) << 18 | at(1) << 12 | at(2) << 6 | at(3);
  }
}

bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace gpt
