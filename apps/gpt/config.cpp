#include "gpt/config.h"

#include <cleave/core/error.h>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gpt {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Config, vocab, layers, dim, heads, kv_heads, ffn, seq, dropout, tied, positions,
                                   norm)

namespace {

void require(bool ok, const std::string& message) {
  if (!ok) throw cleave::ValueError(message);
}

void at_least_one(const char* option, int64_t value) {
  require(value >= 1, fmt::format("{} is {}; it must be at least 1", option, value));
}

}  // namespace

Config completed(Config c) {
  at_least_one("--vocab", c.vocab);
  at_least_one("--layers", c.layers);
  at_least_one("--dim", c.dim);
  at_least_one("--heads", c.heads);
  at_least_one("--seq", c.seq);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.ffn == 0) c.ffn = 4 * c.dim;
  at_least_one("--ffn", c.ffn);
  at_least_one("--kv-heads", c.kv_heads);
  require(c.dim % c.heads == 0, fmt::format("--dim {} is no multiple of --heads {}", c.dim, c.heads));
  require(c.heads % c.kv_heads == 0, fmt::format("--heads {} is no multiple of --kv-heads {}", c.heads, c.kv_heads));
  require(c.dropout >= 0 && c.dropout < 1, fmt::format("--dropout is {}; it must be in [0, 1)", c.dropout));
  require(c.positions == "learned" || c.positions == "rope",
          fmt::format("--positions is '{}'; it must be learned or rope", c.positions));
  require(c.norm == "layer" || c.norm == "rms", fmt::format("--norm is '{}'; it must be layer or rms", c.norm));
  require(c.positions != "rope" || c.dim / c.heads % 2 == 0,
          fmt::format("--positions rope needs heads of even size, not {}", c.dim / c.heads));
  return c;
}

std::string to_json(const Config& config) {
  nlohmann::json json = config;
  if (!config.tokenizer.empty()) json["tokenizer"] = config.tokenizer;
  return json.dump();
}

Config parse_config(const std::string& json) {
  try {
    nlohmann::json parsed = nlohmann::json::parse(json);
    Config config = parsed.get<Config>();
    config.tokenizer = parsed.value("tokenizer", std::string());
    return completed(config);
  } catch (const nlohmann::json::exception& e) {
    throw cleave::FileError(fmt::format("the description of the model is malformed: {}", e.what()));
  } catch (const cleave::ValueError& e) {
    throw cleave::FileError(fmt::format("the description of the model does not fit: {}", e.what()));
  }
}

}  // namespace gpt
