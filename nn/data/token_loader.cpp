#include <cleave/core/error.h>
#include <cleave/dist/mesh.h>
#include <cleave/nn/data/internal/batch_reader.h>
#include <cleave/nn/data/internal/prefetcher.h>
#include <cleave/nn/data/token_loader.h>
#include <cleave/ops/creation.h>

#include <algorithm>

#include <fmt/format.h>

namespace cleave::nn {

using detail::BatchReader;
using detail::HostBatch;
using detail::Prefetcher;

struct TokenLoader::State {
  State(const TokenDataset& data, const LoaderOptions& options) : reader(data, options), given(reader.start()) {}

  std::optional<HostBatch> next() {
    if (reader.options.prefetch == 0) return reader.read(given);
    if (!ahead)
      ahead = std::make_unique<Prefetcher<HostBatch>>(
          [this, at = given]() mutable {
            std::optional<HostBatch> batch = reader.read(at);
            if (batch) at = batch->after;
            return batch;
          },
          reader.options.prefetch);
    return ahead->next();
  }

  const BatchReader reader;
  LoaderState given;  // after the last batch that was given
  std::unique_ptr<Prefetcher<HostBatch>> ahead;
};

namespace {

Tensor tensor_of(const std::vector<int64_t>& block, const Shape& shape, dist::Layout layout) {
  Tensor x = empty(shape, {.dtype = DType::i64, .layout = layout});
  if (!block.empty()) std::copy(block.begin(), block.end(), x.data<int64_t>());
  return x;
}

void require_equal(const char* name, auto saved, auto own) {
  if (saved != own)
    throw ValueError(
        fmt::format("[TokenLoader] the state is of a loader with {} {}, but this one has {}: its batches would be "
                    "others; start a new run, or give this loader what the other one had",
                    name, saved, own));
}

}  // namespace

TokenLoader::TokenLoader(const TokenDataset& data, const LoaderOptions& options)
    : state_(std::make_unique<State>(data, options)) {}
TokenLoader::~TokenLoader() = default;
TokenLoader::TokenLoader(TokenLoader&&) noexcept = default;
TokenLoader& TokenLoader::operator=(TokenLoader&&) noexcept = default;

std::optional<TokenBatch> TokenLoader::next() {
  std::optional<HostBatch> host = state_->next();
  if (!host) return std::nullopt;
  const LoaderOptions& o = options();
  TokenBatch batch{.parts = {},
                   .tokens = host->tokens,
                   .step = host->after.step,
                   .epoch = host->after.epoch,
                   .windows = std::move(host->windows)};
  for (const detail::HostPart& part : host->parts) {
    Shape shape{part.rows.size, o.seq};
    batch.parts.push_back({.ids = tensor_of(part.ids, shape, o.layout),
                           .targets = tensor_of(part.targets, shape, o.layout),
                           .first_row = part.rows.offset,
                           .tokens = part.tokens});
  }
  state_->given = host->after;
  return batch;
}

LoaderState TokenLoader::state() const { return state_->given; }

void TokenLoader::restore(const LoaderState& state) {
  LoaderState own = state_->reader.start();
  if (state.data != own.data)
    throw ValueError(
        fmt::format("[TokenLoader] the state is of other data than {}: its files, their order or what is in "
                    "them changed; start a new run, or give this loader what the other one had",
                    data().source()));
  require_equal("seq", state.seq, own.seq);
  require_equal("the seed", state.seed, own.seed);
  require_equal("shuffle", state.shuffle, own.shuffle);
  require_equal("drop_last", state.drop_last, own.drop_last);
  require_equal("windows of an epoch:", state.epoch_samples, own.epoch_samples);
  if (state.step < 0 || state.epoch < 0 || state.sample < 0 || state.sample > own.epoch_samples)
    throw ValueError(fmt::format("[TokenLoader] no loader can be at {}", to_string(state)));
  state_->ahead.reset();
  state_->given = state;
}

int64_t TokenLoader::epoch_samples() const { return state_->reader.samples(); }
int64_t TokenLoader::epoch_steps() const { return state_->reader.steps(); }
const LoaderOptions& TokenLoader::options() const { return state_->reader.options; }
const TokenDataset& TokenLoader::data() const { return state_->reader.data; }

std::string TokenLoader::origin(const TokenBatch& batch, int64_t row) const {
  std::string at = fmt::format("epoch {}, step {}, row {}", batch.epoch, batch.step, row);
  if (row < 0 || row >= static_cast<int64_t>(batch.windows.size()))
    throw ValueError(fmt::format("{}: the batch has {} rows", at, batch.windows.size()));
  int64_t first = batch.windows[static_cast<size_t>(row)];
  return first < 0 ? at + ": padding" : fmt::format("{}: {}", at, to_string(data().locate(first)));
}

}  // namespace cleave::nn
