#include "gpt/bpe.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include <fmt/format.h>

namespace gpt {

using cleave::ValueError;

namespace {

uint64_t key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

// Whether a vocabulary, in which letters stand for bytes, writes this text as it is.
bool is_its_own_letters(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

Bpe::Bpe(BpeModel model)
    : model_(std::move(model)),
      normalizer_(model_.normalizer),
      pretokenizer_(model_.patterns),
      special_(model_.tokens.size()),
      byte_tokens_(256, -1) {
  std::vector<bool> only_added(model_.tokens.size());
  for (const AddedToken& t : model_.added) {
    if (t.text.empty() || t.id >= model_.tokens.size() || model_.tokens[t.id] != t.text)
      throw ValueError(fmt::format("the added token \"{}\" is not token {} of the vocabulary", t.text, t.id));
    only_added[t.id] = !t.in_vocabulary || !is_its_own_letters(t.text);
    special_[t.id] = t.special;
    std::string text = t.normalized ? normalizer_(t.text) : t.text;
    if (!text.empty()) (t.normalized ? behind_normalizer_ : first_).add(text, t);
  }
  for (uint32_t id = 0; id < model_.tokens.size(); ++id)
    if (!model_.tokens[id].empty() && !only_added[id]) by_bytes_.emplace(model_.tokens[id], id);
  for (const auto& [bytes, id] : by_bytes_)
    if (bytes.size() == 1) byte_tokens_[static_cast<uint8_t>(bytes[0])] = id;
  for (uint32_t rank = 0; rank < model_.merges.size(); ++rank) {
    auto [left, right] = model_.merges[rank];
    bool known = left < model_.tokens.size() && right < model_.tokens.size();
    auto whole = known ? by_bytes_.find(model_.tokens[left] + model_.tokens[right]) : by_bytes_.end();
    if (whole == by_bytes_.end())
      throw ValueError(fmt::format("merge {} is of tokens {} and {}, which make no token", rank, left, right));
    merges_.insert_or_assign(key(left, right), Merge{rank, whole->second});
  }
}

int64_t Bpe::added_token(std::string_view text) const {
  for (const AddedToken& t : model_.added)
    if (t.text == text) return t.id;
  return -1;
}

std::vector<uint32_t> Bpe::encode(std::string_view text, bool added) const {
  std::vector<uint32_t> out;
  Cache cache;
  auto take = [&](const AddedToken& token) { out.push_back(token.id); };
  auto plain = [&](std::string_view part) { encode_text(part, cache, out); };
  auto normal = [&](std::string_view part) {
    if (added && !behind_normalizer_.empty())
      behind_normalizer_.cut(part, plain, take);
    else
      plain(part);
  };
  auto raw = [&](std::string_view part) { normalizer_.empty() ? normal(part) : normal(normalizer_(part)); };
  if (added && !first_.empty())
    first_.cut(text, raw, take);
  else
    raw(text);
  return out;
}

void Bpe::encode_text(std::string_view text, Cache& cache, std::vector<uint32_t>& out) const {
  constexpr size_t kMost = 1 << 17;
  pretokenizer_.cut(text, [&](std::string_view piece) {
    auto known = cache.find(piece);
    if (known != cache.end()) {
      out.insert(out.end(), known->second.begin(), known->second.end());
      return;
    }
    std::vector<uint32_t> ids = merged(piece);
    out.insert(out.end(), ids.begin(), ids.end());
    if (cache.size() < kMost) cache.emplace(piece, std::move(ids));
  });
}

// Merges the pair of lowest rank, the leftmost of equals, until none is left: symbols in a linked list, pairs in a heap
// in which those of symbols that were merged away stay until they come up.
std::vector<uint32_t> Bpe::merged(std::string_view piece) const {
  if (model_.ignore_merges)
    if (auto whole = by_bytes_.find(piece); whole != by_bytes_.end() && !special_[whole->second])
      return {whole->second};
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
