#include "gpt/bpe_train.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_set>

#include <fmt/format.h>

#include "gpt/bpe_files.h"

namespace gpt {

namespace {

using Pair = std::pair<uint32_t, uint32_t>;
struct PairHash {
  size_t operator()(const Pair& p) const { return (uint64_t{p.first} << 32 | p.second) * 0x9E3779B97F4A7C15u >> 7; }
};

struct Word {
  std::vector<uint32_t> tokens;
  int64_t count = 0;
};
struct PairInfo {
  int64_t queued = 0;         // the count of its valid entry in the heap
  int64_t count = 0;          // places in all words, each as often as its word was seen
  std::vector<size_t> words;  // those that hold it, and some that held it
};
struct Candidate {
  int64_t count;
  Pair pair;
  // Above in the heap: seen more often; of equals smaller ids.
  bool operator<(const Candidate& other) const { return std::tie(count, other.pair) < std::tie(other.count, pair); }
};

class Trainer {
 public:
  Trainer(BpeModel& model, const PieceCounts& counts) : model_(model) {
    std::vector<uint32_t> byte_tokens(256);
    for (uint32_t id = 0; id < model.tokens.size(); ++id)
      if (model.tokens[id].size() == 1) byte_tokens[static_cast<uint8_t>(model.tokens[id][0])] = id;
    for (uint32_t id = 0; id < model.tokens.size(); ++id) ids_.emplace(model.tokens[id], id);
    for (const auto& [piece, count] : counts) {
      Word& word = words_.emplace_back();
      word.count = count;
      for (char c : piece) word.tokens.push_back(byte_tokens[static_cast<uint8_t>(c)]);
      add_pairs(words_.size() - 1, 1);
    }
    for (auto& [pair, info] : pairs_) queue(pair, info);
  }

  void run(int64_t vocab_size, int64_t min_frequency) {
    while (static_cast<int64_t>(model_.tokens.size()) < vocab_size && !candidates_.empty()) {
      Candidate best = candidates_.top();
      candidates_.pop();
      PairInfo& info = pairs_[best.pair];
      if (best.count != info.queued) continue;  // queued again since
      info.queued = 0;
      if (info.count != best.count)
        queue(best.pair, info);
      else if (info.count < min_frequency)
        return;
      else
        merge(best.pair);
    }
  }

 private:
  // Adds (sign 1) or takes away (-1) the pairs of a word.
  void add_pairs(size_t index, int64_t sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      Pair pair{word.tokens[i], word.tokens[i + 1]};
      PairInfo& info = pairs_[pair];
      info.count += sign * word.count;
      if (sign < 0) continue;
      if (info.words.empty() || info.words.back() != index) info.words.push_back(index);
      touched_.insert(pair);
    }
  }

  // Every pair that is there has an entry in the heap that is at least its count.
  void queue(Pair pair, PairInfo& info) {
    if (info.count <= info.queued) return;
    info.queued = info.count;
    candidates_.push({info.count, pair});
  }

  void merge(Pair pair) {
    std::string bytes = model_.tokens[pair.first] + model_.tokens[pair.second];
    auto [entry, fresh] = ids_.emplace(bytes, static_cast<uint32_t>(model_.tokens.size()));
    if (fresh) model_.tokens.push_back(bytes);
    // A pair may come back when other tokens make the same bytes; its rule is there already.
    if (merged_.insert(pair).second) model_.merges.push_back(pair);
    touched_.clear();
    std::vector<size_t> words = std::move(pairs_[pair].words);
    pairs_[pair].words.clear();
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (size_t index : words) merge_in(index, pair, entry->second);
    for (const Pair& p : touched_) queue(p, pairs_[p]);
  }

  void merge_in(size_t index, Pair pair, uint32_t token) {
    std::vector<uint32_t>& tokens = words_[index].tokens;
    add_pairs(index, -1);
    size_t kept = 0;
    for (size_t i = 0; i < tokens.size(); ++i, ++kept) {
      bool found = i + 1 < tokens.size() && tokens[i] == pair.first && tokens[i + 1] == pair.second;
      tokens[kept] = found ? token : tokens[i];
      i += found;
    }
    tokens.resize(kept);
    add_pairs(index, 1);
  }

  BpeModel& model_;
  std::vector<Word> words_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<Pair, PairInfo, PairHash> pairs_;
  std::unordered_set<Pair, PairHash> touched_, merged_;
  std::priority_queue<Candidate> candidates_;
};

}  // namespace

void count_pieces(const Pretokenizer& pretokenizer, std::string_view text, PieceCounts& counts) {
  pretokenizer.cut(text, [&](std::string_view piece) {
    auto known = counts.find(piece);
    if (known == counts.end()) known = counts.emplace(piece, 0).first;
    ++known->second;
  });
}

BpeModel train_bpe(const PieceCounts& counts, const BpeTrainOptions& options) {
  BpeModel model;
  model.patterns = options.patterns;
  for (const std::string& text : options.special) {
    model.added.push_back({text, static_cast<uint32_t>(model.tokens.size())});
    model.tokens.push_back(text);
  }
  for (uint8_t byte : byte_alphabet()) model.tokens.emplace_back(1, static_cast<char>(byte));
  if (options.vocab_size < static_cast<int64_t>(model.tokens.size()))
    throw cleave::ValueError(fmt::format("a vocabulary of {} has no room for 256 bytes and {} special tokens",
                                         options.vocab_size, options.special.size()));
  Trainer(model, counts).run(options.vocab_size, options.min_frequency);
  return model;
}

}  // namespace gpt
