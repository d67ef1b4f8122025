#include "gpt/train.h"

#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpt/checkpoint.h"
#include "gpt/compare.h"
#include "gpt/log.h"
#include "gpt/session.h"

namespace gpt {

namespace dist = cleave::dist;

namespace {

// Ranks of one run read their own command lines and files: they must be the same.
void require_same(dist::World& world, const char* what, uint64_t hash) {
  std::vector<int64_t> all = gathered(world, static_cast<int64_t>(hash));
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r] != all[0])
      throw cleave::CommError(fmt::format("rank {} has {} than rank 0; start all ranks alike", r, what));
}

std::string text_of_first(dist::World& world, std::string text) {
  auto bytes = static_cast<int64_t>(text.size());
  world.communicator().broadcast(&bytes, 1, cleave::DType::i64, 0, cleave::Device::Cpu, "gpt");
  text.resize(static_cast<size_t>(bytes));
  world.communicator().broadcast(text.data(), bytes, cleave::DType::u8, 0, cleave::Device::Cpu, "gpt");
  return text;
}

uint64_t hash_of(const TrainOptions& o) {
  auto name = [](std::optional<cleave::DType> t) { return t ? to_string(*t) : std::string_view(); };
  std::string text = fmt::format(
      "{} | {} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} {} | {} {} {} {} {} {} {} | {} {} {} {} | {} {} {} {} {} {} "
      "{} {} {}",
      to_json(o.model), o.step.batch, o.step.accumulate, to_string(o.step.dtype), name(o.step.autocast),
      o.step.loss_scale, static_cast<int>(o.step.gradients), static_cast<int>(o.step.reduce),
      fmt::join(o.step.recompute, ","), o.step.loss_chunk, o.update.optimizer, o.update.lr,
      o.update.min_lr.value_or(-1), o.update.warmup.value_or(-1), o.update.weight_decay, o.update.clip, o.update.ema,
      o.safety.checkpoints, o.safety.every, o.safety.keep, o.safety.background, o.safety.resume, o.safety.not_finite,
      o.safety.max_skips, o.watch.eval_every, !o.watch.trace.empty(), o.watch.trace_first, o.watch.trace_last, o.steps,
      o.seed, o.mesh, o.plan, o.compare, !o.save.empty(), o.deferred, o.safety.stop_at, o.safety.max_file_bytes);
  return std::hash<std::string>{}(text);
}

}  // namespace

void train(dist::World& world, const TrainOptions& options) {
  require_same(world, "other options", hash_of(options));
  TrainOptions o = options;
  Corpus corpus = open_corpus(o);
  require_same(world, "other data", corpus.train.fingerprint());  // of all files, the part held out too
  o.model.tokenizer = text_of_first(world, o.model.tokenizer);    // ranks may have the data in other folders
  Placement placement = place(world, o.model, o.mesh, o.plan);
  if (!o.compare.empty()) return compare_with_single(world, o, placement, corpus);
  if (world.rank() == 0) {  // before anything is changed or computed
    if (!o.save.empty()) require_writable(o.save);
    if (!o.watch.log.empty()) require_file("--log", o.watch.log);
  }
  Session session(world, o, corpus, placement);
  session.steps();
  session.end();
}

}  // namespace gpt
