// What the tests of nn/data share.
#pragma once
#include <numeric>
#include <string>
#include <vector>

#include "apps/temporary_folder.h"
#include "nn/support.h"

namespace cleave::test {

using gpt::test::TemporaryFolder;

/// A token file with the tokens first, first + 1, ..., so that a token tells where it stood.
inline std::string write_tokens(const TemporaryFolder& folder, const std::string& name, int64_t count,
                                uint32_t first = 0, int64_t vocab = 70000) {
  std::vector<uint32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  nn::TokenFileWriter writer(folder.path(name), vocab);
  writer.append(tokens);
  writer.commit();
  return folder.path(name);
}

inline std::vector<int64_t> read_all(const nn::TokenDataset& data) {
  std::vector<int64_t> out(static_cast<size_t>(data.size()));
  data.read(0, data.size(), out.data());
  return out;
}

/// The global values of a batch, and what every rank should agree on besides.
struct Seen {
  std::vector<int64_t> ids, targets, windows;
  int64_t tokens = 0, step = 0, epoch = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};
inline Seen seen(const nn::TokenBatch& batch) {
  Seen s{.ids = {},
         .targets = {},
         .windows = batch.windows,
         .tokens = batch.tokens,
         .step = batch.step,
         .epoch = batch.epoch};
  for (const nn::MicroBatch& part : batch.parts) {
    std::vector<int64_t> ids = to_vector<int64_t>(part.ids), targets = to_vector<int64_t>(part.targets);
    s.ids.insert(s.ids.end(), ids.begin(), ids.end());
    s.targets.insert(s.targets.end(), targets.begin(), targets.end());
  }
  return s;
}
/// Up to `count` batches. Communicates.
inline std::vector<Seen> next_batches(nn::TokenLoader& loader, int count) {
  std::vector<Seen> out;
  for (int i = 0; i < count; ++i) {
    auto batch = loader.next();
    if (!batch) break;
    out.push_back(seen(*batch));
  }
  return out;
}

}  // namespace cleave::test
