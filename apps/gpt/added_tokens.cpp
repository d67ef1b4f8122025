#include "gpt/added_tokens.h"

#include <algorithm>

#include "gpt/regex.h"
#include "gpt/utf8.h"

namespace gpt {

namespace {

// What single_word means by a word: Unicode's, as in Rust's regular expressions.
bool is_word(std::string_view character) {
  static const Regex word(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d])");
  bool is = false;
  if (!character.empty()) word.cut(character, [&](std::string_view, bool matched) { is = matched; });
  return is;
}

std::string_view first_of(std::string_view text) { return text.substr(0, character_bytes(text)); }
std::string_view last_of(std::string_view text) { return text.substr(text.size() - last_character_bytes(text)); }
bool is_space(std::string_view character) { return !character.empty() && is_white_space(code_point(character)); }

}  // namespace

void AddedTokens::add(std::string_view text, const AddedToken& token) {
  tokens_[std::string(text)] = token;
  if (starts_.find(text[0]) == std::string::npos) starts_ += text[0];
  lengths_.push_back(text.size());
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

const std::pair<const std::string, AddedToken>* AddedTokens::at(std::string_view text) const {
  for (size_t n : lengths_)
    if (n <= text.size())
      if (auto found = tokens_.find(text.substr(0, n)); found != tokens_.end()) return &*found;
  return nullptr;
}

bool AddedTokens::next(std::string_view text, Match& m) const {
  size_t place = m.searched;
  while ((place = text.find_first_of(starts_, place)) != std::string_view::npos) {
    const auto* found = at(text.substr(place));
    if (!found) {
      ++place;
      continue;
    }
    const auto& [looked_for, token] = *found;
    size_t end = place + looked_for.size();
    std::string_view before = text.substr(0, place), behind = text.substr(end);
    if (token.single_word && (is_word(last_of(before)) || is_word(first_of(behind)))) {
      place = end;
      continue;
    }
    while (token.lstrip && is_space(last_of(before))) before.remove_suffix(last_of(before).size());
    while (token.rstrip && is_space(first_of(behind))) behind.remove_prefix(first_of(behind).size());
    m = {before.size(), text.size() - behind.size(), end, &token};
    return true;
  }
  return false;
}

}  // namespace gpt
