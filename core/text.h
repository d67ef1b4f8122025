// Text for people: sizes, and words that were meant.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave {

/// "512 B", "1.5 KiB", "12.0 MiB", "1.21 GiB", ...: of 1024 each; from GiB on with two decimals.
std::string bytes_text(int64_t bytes);

/// Letters to insert, delete or replace from one word to the other (Levenshtein 1966).
int edit_distance(std::string_view a, std::string_view b);

}  // namespace cleave
