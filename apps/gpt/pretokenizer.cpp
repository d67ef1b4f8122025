#include "gpt/pretokenizer.h"

#include "gpt/utf8.h"

namespace gpt {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Pretokenizer::Pretokenizer(const std::vector<std::string>& patterns) : steps_(patterns.begin(), patterns.end()) {}

void Pretokenizer::cut(std::string_view text, const std::function<void(std::string_view)>& f) const {
  for_runs(text, [&](std::string_view run, bool valid) {
    if (valid)
      cut_from(0, run, f);
    else
      f(run);
  });
}

void Pretokenizer::cut_from(size_t step, std::string_view text, const std::function<void(std::string_view)>& f) const {
  if (step == steps_.size()) return f(text);
  steps_[step].cut(text, [&](std::string_view piece, bool) { cut_from(step + 1, piece, f); });
}

}  // namespace gpt
