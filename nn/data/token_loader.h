// TokenLoader: batches of token windows, split over a mesh as a layout says.
//
//   nn::TokenDataset data("tokens.bin");
//   nn::TokenLoader loader(data, {.batch = 32, .seq = 256, .seed = 1, .layout = mesh.layout("dp, -")});
//   while (auto batch = loader.next()) {
//     for (const nn::MicroBatch& part : batch->parts)
//       (sum_of_losses(model(part.ids), part.targets) / batch->tokens).backward({.sync = false});
//     optimizer.step();
//   }
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cleave/core/tensor.h>
#include <cleave/dist/layout.h>
#include <cleave/nn/data/loader_state.h>
#include <cleave/nn/data/token_dataset.h>

namespace cleave::nn {

/// The same on all ranks.
struct LoaderOptions {
  int64_t batch = 1;  ///< windows of a step, over all ranks
  int64_t seq = 1;    ///< targets of a window
  uint64_t seed = 0;
  bool shuffle = true;          ///< a new order each epoch (see Shuffle); else the order of the data
  bool drop_last = true;        ///< leave out an epoch's last short window and short batch; else they are padded
  int64_t epochs = 0;           ///< 0: without end
  int64_t limit = 0;            ///< at most so many windows an epoch, spread evenly over the data; 0: all
  int64_t micro_batches = 1;    ///< parts of each batch
  int64_t ignore_index = -100;  ///< target of padding
  int prefetch = 2;             ///< batches that a thread of this loader reads ahead; 0: none, no thread
  dist::Layout layout = {};     ///< of ids and targets, e.g. mesh.layout("dp, -") or "dp, cp"; none: plain tensors
};

/// A contiguous range of rows of a global batch.
struct MicroBatch {
  Tensor ids;             ///< i64 [rows, seq] in the loader's layout; padding is token 0
  Tensor targets;         ///< i64 [rows, seq]: the token after each of ids; padding is ignore_index
  int64_t first_row = 0;  ///< in the global batch
  int64_t tokens = 0;     ///< targets that are no padding, over all ranks
};

/// One global batch. All but the tensors' blocks is the same on every rank.
struct TokenBatch {
  std::vector<MicroBatch> parts;  ///< micro_batches of them: balanced ranges of rows, in order
  int64_t tokens = 0;             ///< targets that are no padding, over all parts and ranks
  int64_t step = 0;               ///< counted from 1 over the whole run
  int64_t epoch = 0;
  std::vector<int64_t> windows;  ///< by global row the dataset's position of its first token; -1: padding
};

/// Gives the windows of a dataset in a seeded order. Window i of a dataset of N tokens has the tokens i seq, ...,
/// (i+1) seq: neighbours share one token, so every token but the first is a target once. An epoch has
/// floor((N-1) / seq) windows, and without drop_last one more, padded, if targets are left. Windows do not stop at the
/// ends of documents or files: a model sees the end of one and the start of the next, with the token between
/// them (of `gpt tokenize`: <|endoftext|>). A loader needs no memory that grows with the data.
///
/// The global batches depend on data, batch, seq, seed, shuffle and drop_last alone, never on ranks or layout; a rank
/// reads no rows or columns but its own. Every rank makes the same number of steps, known beforehand from the sizes: no
/// rank waits for another, also one whose block is empty. One loader belongs to one rank's thread.
class TokenLoader {
 public:
  /// Throws ValueError for options out of range and for data with less than one window (with drop_last: one batch),
  /// LayoutError for a layout that is not of two dims or is partial. Takes the data's fingerprint, which reads text
  /// whole.
  TokenLoader(const TokenDataset& data, const LoaderOptions& options);
  ~TokenLoader();
  TokenLoader(TokenLoader&&) noexcept;
  TokenLoader& operator=(TokenLoader&&) noexcept;

  /// The next batch, or nothing after the last epoch. Does not communicate. Throws, also if the thread that reads ahead
  /// met it, FileError naming file and position for a token out of range, on the ranks that read it; then state() is
  /// the one before that batch, and so is every later call's answer.
  std::optional<TokenBatch> next();

  /// The position after the last batch that `next` gave, whatever was read ahead.
  LoaderState state() const;
  /// Goes on from there: the next batches are those that the loader which gave the state would have given, also under
  /// another layout or on another number of ranks. With another batch size they go on from the same window. Throws
  /// ValueError, changing nothing, if data, seq, seed, shuffle, drop_last or the number of windows are others.
  void restore(const LoaderState& state);

  int64_t epoch_samples() const;  ///< windows of an epoch
  int64_t epoch_steps() const;    ///< batches of an epoch that is begun at its first window
  const LoaderOptions& options() const;
  const TokenDataset& data() const;
  /// "epoch 0, step 12, row 3: corpus/b.bin, token 81920": where a row of a batch came from.
  std::string origin(const TokenBatch& batch, int64_t row) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cleave::nn
