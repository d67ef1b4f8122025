// gpt generate: a trained model writes.
#pragma once
#include <cstdint>
#include <vector>

#include "gpt/options.h"

namespace gpt {

/// One of the tokens 0, 1, ..., drawn with probability softmax(logits / temperature) among the `top_k` likeliest (0:
/// all); temperature 0: the likeliest, the first of equals. `number` is uniform in [0, 1).
int64_t choose_token(const std::vector<double>& logits, double temperature, int64_t top_k, double number);

/// Prints the prompt and what the model writes after it. On one rank (ValueError on more).
void generate(const GenerateOptions& options);

}  // namespace gpt
