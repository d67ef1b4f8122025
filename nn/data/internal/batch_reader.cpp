#include <cleave/core/error.h>
#include <cleave/dist/mesh.h>
#include <cleave/nn/data/internal/batch_reader.h>
#include <cleave/nn/data/shuffle.h>

#include <algorithm>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

void require(bool ok, const char* option, int64_t value, const char* range) {
  if (!ok) throw ValueError(fmt::format("[TokenLoader] {} is {}; it must be {}", option, value, range));
}

LoaderOptions checked(LoaderOptions o) {
  require(o.batch >= 1, "batch", o.batch, "at least 1");
  require(o.seq >= 1, "seq", o.seq, "at least 1");
  require(o.epochs >= 0, "epochs", o.epochs, "at least 0");
  require(o.limit >= 0, "limit", o.limit, "at least 0");
  require(o.micro_batches >= 1 && o.micro_batches <= o.batch, "micro_batches", o.micro_batches,
          "from 1 to the batch size");
  require(o.prefetch >= 0, "prefetch", o.prefetch, "at least 0");
  if (!o.layout.defined()) return o;
  o.layout = o.layout.resolve(2);
  if (o.layout.data()->partial)
    throw LayoutError(fmt::format("[TokenLoader] the layout {} is partial; tokens are not", to_string(o.layout)));
  return o;
}

// A rank outside the mesh reads nothing.
dist::Box block_of(const Shape& shape, dist::Layout layout) {
  if (!layout.defined()) return {Shape(2, 0), shape};
  if (!layout.mesh().contains_self()) return {Shape(2, 0), Shape(2, 0)};
  return dist::local_box(shape, *layout.data());
}

}  // namespace

BatchReader::BatchReader(const TokenDataset& dataset, const LoaderOptions& wanted)
    : data(dataset), options(checked(wanted)) {
  const LoaderOptions& o = options;
  int64_t targets = std::max<int64_t>(data.size() - 1, 0);
  windows_ = targets / o.seq + (!o.drop_last && targets % o.seq > 0 ? 1 : 0);
  samples_ = o.limit > 0 ? std::min(o.limit, windows_) : windows_;
  if (samples_ < (o.drop_last ? o.batch : 1))
    throw ValueError(
        fmt::format("[TokenLoader] {} has {} tokens: {} windows of {} targets, fewer than a batch of {}; take smaller "
                    "ones, more data, or drop_last = false",
                    data.source(), data.size(), samples_, o.seq, o.batch));
  for (int64_t part = 0; part < o.micro_batches; ++part)
    boxes_.push_back(block_of({dist::balanced_block(o.batch, o.micro_batches, part).size, o.seq}, o.layout));
  fingerprint_ = data.fingerprint();
}

int64_t BatchReader::steps() const { return (samples_ + (options.drop_last ? 0 : options.batch - 1)) / options.batch; }

LoaderState BatchReader::start() const {
  return {.epoch_samples = samples_,
          .seq = options.seq,
          .seed = options.seed,
          .shuffle = options.shuffle,
          .drop_last = options.drop_last,
          .data = fingerprint_};
}

int64_t BatchReader::first_token(int64_t epoch, int64_t sample) const {
  if (options.shuffle) sample = Shuffle(samples_, options.seed, epoch)[sample];
  return dist::balanced_block(windows_, samples_, sample).offset * options.seq;
}

int64_t BatchReader::valid_targets(int64_t first_token) const {
  return first_token < 0 ? 0 : std::min(options.seq, data.size() - 1 - first_token);
}

std::optional<HostBatch> BatchReader::read(LoaderState at) const {
  int64_t left = samples_ - at.sample;
  if (left < (options.drop_last ? options.batch : 1)) {
    left = samples_;
    at.sample = 0;
    ++at.epoch;
  }
  if (options.epochs > 0 && at.epoch >= options.epochs) return std::nullopt;
  HostBatch batch;
  int64_t taken = std::min(options.batch, left);
  for (int64_t row = 0; row < options.batch; ++row)
    batch.windows.push_back(row < taken ? first_token(at.epoch, at.sample + row) : -1);
  for (int64_t p = 0; p < options.micro_batches; ++p)
    batch.parts.emplace_back().rows = dist::balanced_block(options.batch, options.micro_batches, p);
  for (size_t p = 0; p < batch.parts.size(); ++p) announce(batch.parts[p], batch.windows, boxes_[p]);
  for (size_t p = 0; p < batch.parts.size(); ++p) {
    read_part(batch.parts[p], batch.windows, boxes_[p]);
    batch.tokens += batch.parts[p].tokens;
  }
  batch.after = at;
  ++batch.after.step;
  batch.after.sample += taken;
  batch.after.samples += taken;
  return batch;
}

// So that the disk works on all of a batch at once.
void BatchReader::announce(const HostPart& part, const std::vector<int64_t>& windows, const dist::Box& box) const {
  for (int64_t row = 0; row < box.shape[0]; ++row)
    if (int64_t first = windows[static_cast<size_t>(part.rows.offset + box.offset[0] + row)]; first >= 0)
      data.will_read(first + box.offset[1], box.shape[1] + 1);
}

void BatchReader::read_part(HostPart& part, const std::vector<int64_t>& windows, const dist::Box& box) const {
  auto window = [&](int64_t row) { return windows[static_cast<size_t>(part.rows.offset + row)]; };
  for (int64_t row = 0; row < part.rows.size; ++row) part.tokens += valid_targets(window(row));
  int64_t rows = box.shape[0], columns = box.shape[1];
  part.ids.assign(static_cast<size_t>(rows * columns), 0);
  part.targets.assign(part.ids.size(), options.ignore_index);
  for (int64_t row = 0; row < rows; ++row)
    read_row(window(box.offset[0] + row), box.offset[1], columns, part.ids.data() + row * columns,
             part.targets.data() + row * columns);
}

void BatchReader::read_row(int64_t first_token, int64_t column, int64_t count, int64_t* ids, int64_t* targets) const {
  count = std::min(count, valid_targets(first_token) - column);
  if (count <= 0) return;
  data.read(first_token + column, count, ids);
  std::copy(ids + 1, ids + count, targets);
  data.read(first_token + column + count, 1, targets + count - 1);
}

}  // namespace cleave::nn::detail
