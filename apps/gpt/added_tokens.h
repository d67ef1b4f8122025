// Tokens that are found in text before anything else is done to it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

/// The members are those of Hugging Face's AddedToken.
struct AddedToken {
  std::string text;
  uint32_t id = 0;
  bool special = true;        ///< a mark, not a part of the text
  bool normalized = false;    ///< looked for behind the normalizer, in what the others left
  bool single_word = false;   ///< not between letters, digits or marks
  bool lstrip = false;        ///< takes the white space before it
  bool rstrip = false;        ///< takes the white space behind it
  bool in_vocabulary = true;  ///< also listed with the tokens that merges make

  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// Finds tokens in text: the leftmost, of several at one place the longest, then on from its end.
class AddedTokens {
 public:
  void add(std::string_view text, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  /// Calls between(text) for what no token takes and found(token) for the tokens, in order.
  template <class Between, class Found>
  void cut(std::string_view text, Between&& between, Found&& found) const {
    size_t done = 0;
    for (Match m; next(text, m);) {
      size_t first = std::max(m.first, done);
      if (first > done) between(text.substr(done, first - done));
      found(*m.token);
      done = m.last;
    }
    if (done < text.size()) between(text.substr(done));
  }

 private:
  struct Match {
    size_t first = 0, last = 0;  // with the white space that is taken
    size_t searched = 0;         // up to here
    const AddedToken* token = nullptr;
  };
  // The next match from m.searched on.
  bool next(std::string_view text, Match& m) const;
  const std::pair<const std::string, AddedToken>* at(std::string_view text) const;

  std::map<std::string, AddedToken, std::less<>> tokens_;  // by the text that is looked for
  std::string starts_;                                     // first bytes
  std::vector<size_t> lengths_;                            // longest first
};

}  // namespace gpt
