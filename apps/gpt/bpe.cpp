#include "gpt/bpe.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include <fmt/format.h>

namespace gpt {

using cleave::ValueError;

namespace {

uint64_t key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

}  // namespace

Bpe::Bpe(BpeModel model) : model_(std::move(model)), pretokenizer_(model_.pattern), byte_tokens_(256, -1) {
  longest_first_ = model_.added;
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  std::vector<bool> is_added(model_.tokens.size());
  for (const AddedToken& t : model_.added) {
    if (t.text.empty() || t.id >= model_.tokens.size() || model_.tokens[t.id] != t.text)
      throw ValueError(fmt::format("the added token \"{}\" is not token {} of the vocabulary", t.text, t.id));
    is_added[t.id] = true;
  }
  for (uint32_t id = 0; id < model_.tokens.size(); ++id)
    if (!model_.tokens[id].empty() && !is_added[id]) by_bytes_.emplace(model_.tokens[id], id);
  for (const auto& [bytes, id] : by_bytes_)
    if (bytes.size() == 1) byte_tokens_[static_cast<uint8_t>(bytes[0])] = id;
  for (uint32_t rank = 0; rank < model_.merges.size(); ++rank) {
    auto [left, right] = model_.merges[rank];
    bool known = left < model_.tokens.size() && right < model_.tokens.size();
    auto whole = known ? by_bytes_.find(model_.tokens[left] + model_.tokens[right]) : by_bytes_.end();
    if (whole == by_bytes_.end())
      throw ValueError(fmt::format("merge {} is of tokens {} and {}, which make no token", rank, left, right));
    merges_.emplace(key(left, right), Merge{rank, whole->second});
  }
}

const AddedToken* Bpe::added_at(std::string_view text) const {
  for (const AddedToken& t : longest_first_)
    if (text.starts_with(t.text)) return &t;
  return nullptr;
}

int64_t Bpe::added_token(std::string_view text) const {
  for (const AddedToken& t : model_.added)
    if (t.text == text) return t.id;
  return -1;
}

std::vector<uint32_t> Bpe::encode(std::string_view text, bool added) const {
  std::vector<uint32_t> out;
  Cache cache;
  std::string starts;
  for (const AddedToken& t : longest_first_) starts += t.text[0];
  while (added && !starts.empty()) {
    const AddedToken* token = nullptr;
    size_t at = text.find_first_of(starts);
    while (at != std::string_view::npos && !(token = added_at(text.substr(at))))
      at = text.find_first_of(starts, at + 1);
    if (!token) break;
    encode_text(text.substr(0, at), cache, out);
    out.push_back(token->id);
    text.remove_prefix(at + token->text.size());
  }
  encode_text(text, cache, out);
  return out;
}

void Bpe::encode_text(std::string_view text, Cache& cache, std::vector<uint32_t>& out) const {
  for (std::string_view piece : pretokenizer_.pieces(text)) {
    auto [entry, fresh] = cache.try_emplace(piece);
    if (fresh) entry->second = merged(piece);
    out.insert(out.end(), entry->second.begin(), entry->second.end());
  }
}

// Merges the pair of lowest rank, the leftmost of equals, until none is left: symbols in a linked list, pairs in a heap
// in which those of symbols that were merged away stay until they come up.
std::vector<uint32_t> Bpe::merged(std::string_view piece) const {
  if (auto whole = by_bytes_.find(piece); model_.ignore_merges && whole != by_bytes_.end()) return {whole->second};
  struct Symbol {
    uint32_t token;
    int32_t before, after;
  };
  std::vector<Symbol> symbols;
  for (char c : piece) {
    auto n = static_cast<int32_t>(symbols.size());
    int64_t token = byte_tokens_[static_cast<uint8_t>(c)];
    if (token < 0) throw ValueError(fmt::format("the vocabulary lacks the byte {}", static_cast<uint8_t>(c)));
    symbols.push_back({static_cast<uint32_t>(token), n - 1, n + 1});
  }
  symbols.back().after = -1;
  struct Candidate {
    uint32_t rank;
    int32_t left;
    uint64_t pair;
    bool operator>(const Candidate& other) const { return std::tie(rank, left) > std::tie(other.rank, other.left); }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  constexpr uint32_t kGone = UINT32_MAX;
  auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  auto pair_at = [&](int32_t i) { return key(at(i).token, at(at(i).after).token); };
  auto consider = [&](int32_t i) {
    if (i < 0 || at(i).after < 0) return;
    if (auto m = merges_.find(pair_at(i)); m != merges_.end()) candidates.push({m->second.rank, i, m->first});
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) consider(i);
  for (; !candidates.empty();) {
    Candidate c = candidates.top();
    candidates.pop();
    Symbol& left = at(c.left);
    if (left.token == kGone || left.after < 0 || pair_at(c.left) != c.pair) continue;
    Symbol& right = at(left.after);
    left.token = merges_.at(c.pair).token;
    left.after = right.after;
    right.token = kGone;
    if (left.after >= 0) at(left.after).before = c.left;
    consider(left.before);
    consider(c.left);
  }
  std::vector<uint32_t> out;
  for (const Symbol& s : symbols)
    if (s.token != kGone) out.push_back(s.token);
  return out;
}

std::string Bpe::decode(std::span<const uint32_t> ids) const {
  std::string out;
  for (uint32_t id : ids) {
    if (id >= model_.tokens.size() || model_.tokens[id].empty())
      throw ValueError(fmt::format("no token has the id {}; the vocabulary has {}", id, vocab_size()));
    out += model_.tokens[id];
  }
  return out;
}

}  // namespace gpt
