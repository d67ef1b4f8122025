#include "gpt/generate.h"

#include <cleave/autograd/grad_mode.h>
#include <cleave/core/error.h>
#include <cleave/core/random.h>
#include <cleave/dist/launch.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/host.h>
#include <cleave/ops/view.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "gpt/bpe_files.h"
#include "gpt/checkpoint.h"

namespace gpt {

namespace {

// Logits of the token after `tokens`, of which the model sees as many as its context holds. The context is always full,
// so that every call has the same shapes: what stands behind a token does not matter to it.
std::vector<double> next_logits(const Gpt& model, const std::vector<int64_t>& tokens) {
  auto seen = std::min<int64_t>(static_cast<int64_t>(tokens.size()), model.config.seq);
  std::vector<int64_t> context(tokens.end() - seen, tokens.end());
  context.resize(static_cast<size_t>(model.config.seq));
  Tensor logits = model(cleave::tensor(context, {1, model.config.seq}));
  return cleave::to_vector<double>(cleave::slice(logits, 1, seen - 1, seen));
}

double uniform(uint64_t seed, int64_t index) {
  auto random = cleave::detail::philox({seed, 0}, static_cast<uint64_t>(index));
  uint64_t bits = (uint64_t{random.v[0]} << 32) | random.v[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// Text as tokens: a tokenizer's, or bytes.
class Text {
 public:
  explicit Text(const std::string& tokenizer) {
    if (!tokenizer.empty()) bpe_.emplace(read_tokenizer(tokenizer));
  }
  int64_t size() const { return bpe_ ? bpe_->vocab_size() : 256; }
  std::vector<int64_t> encode(const std::string& text) const {
    std::vector<int64_t> out;
    if (bpe_)
      for (uint32_t token : bpe_->encode(text)) out.push_back(token);
    else
      for (char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }
  void print(int64_t token) const {
    std::string bytes = bpe_ ? bpe_->decode(static_cast<uint32_t>(token))
                             : std::string(1, static_cast<char>(static_cast<uint8_t>(token)));
    std::fwrite(bytes.data(), 1, bytes.size(), stdout);
    std::fflush(stdout);
  }

 private:
  std::optional<Bpe> bpe_;
};

}  // namespace

int64_t choose_token(const std::vector<double>& logits, double temperature, int64_t top_k, double number) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (temperature == 0) return static_cast<int64_t>(order[0]);
  if (top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(top_k)));
  std::vector<double> weights;
  for (size_t i : order) weights.push_back(std::exp((logits[i] - logits[order[0]]) / temperature));
  double left = number * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int64_t>(order[i]);
  }
  return static_cast<int64_t>(order.back());
}

void generate(const GenerateOptions& o) {
  if (auto* world = cleave::dist::World::current(); world && world->size() != 1)
    throw cleave::ValueError(fmt::format("gpt generate runs on one rank, not on {}", world->size()));
  std::unique_ptr<Gpt> model = load_model(o.model);
  model->eval();
  cleave::NoGrad off;
  Text text(o.tokenizer.empty() ? model->config.tokenizer : o.tokenizer);
  std::vector<int64_t> tokens = text.encode(o.prompt.empty() ? "\n" : o.prompt);
  for (int64_t token : tokens)
    if (token >= model->config.vocab)
      throw cleave::ValueError(fmt::format("--prompt has the token {}, which the model lacks", token));
  for (int64_t token : tokens) text.print(token);
  for (int64_t i = 0; i < o.tokens; ++i) {
    cleave::dist::check_interrupt();
    std::vector<double> logits = next_logits(*model, tokens);
    logits.resize(std::min(logits.size(), static_cast<size_t>(text.size())));  // those above stand for nothing
    tokens.push_back(choose_token(logits, o.temperature, o.top_k, uniform(o.seed, i)));
    text.print(tokens.back());
  }
  std::fputs("\n", stdout);
}

}  // namespace gpt
