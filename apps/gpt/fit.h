// gpt plan --memory --limit: what would make a model fit.
#pragma once
#include <cstdint>
#include <string>

#include "gpt/memory.h"

namespace gpt {

/// Whether a peak fits in `limit` bytes. If not, changes of the options that lower it are added up, those that cost the
/// least first, each planned: the lines say what it leads to, the last one which options together fit.
std::string fit_text(const TrainOptions& options, int ranks, const MemoryCase& c, int64_t peak, int64_t limit);

/// Bytes of "80GB", "64 GiB", "512MiB", "1.5TB" (GB: 1000^3) or a plain number. Throws ValueError for other text.
int64_t parse_bytes(const std::string& text);

}  // namespace gpt
