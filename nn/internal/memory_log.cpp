#include <cleave/nn/internal/memory_log.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace cleave::nn::detail {

int32_t MemoryLog::text_of(std::string_view text) {
  auto [at, fresh] = known_texts_.emplace(text, static_cast<int32_t>(texts_.size()));
  if (fresh) texts_.emplace_back(text);
  return at->second;
}

void MemoryLog::begin(const Span& span) {
  Frame frame = frames_.empty() ? Frame{nullptr, -1, -1, false, false} : frames_.back();
  frame.span = &span;
  auto now = static_cast<int64_t>(moments_.size());
  if (span.kind == SpanKind::phase) {
    if (phases_.empty()) phase_ends_.push_back(-1);
    phases_.push_back(&span);
  } else if (span.kind == SpanKind::module) {
    frame.module = text_of(span.name);
  } else {
    if (span.kind == SpanKind::node) node_begins_.push_back(now);
    frame.what = text_of(span.name);
  }
  frame.gathered |= span.kind == SpanKind::redistribution && std::strcmp(span.name, "parameter") == 0;
  frame.copied |= span.kind == SpanKind::file;
  frames_.push_back(frame);
}

void MemoryLog::end(const Span& span) {
  if (frames_.empty() || frames_.back().span != &span) return;  // began before the recording
  frames_.pop_back();
  if (span.kind != SpanKind::phase) return;
  phases_.pop_back();
  if (phases_.empty()) phase_ends_.back() = static_cast<int64_t>(moments_.size());
}

void MemoryLog::allocated(uint64_t number, int64_t bytes, Device device, MemoryUse use) {
  if (device != device_) return;
  Frame frame = frames_.empty() ? Frame{nullptr, -1, -1, false, false} : frames_.back();
  auto index = static_cast<int32_t>(blocks_.size());
  Block block{.bytes = bytes,
              .born = static_cast<int64_t>(moments_.size()),
              .phase = phases_.empty() ? -1 : static_cast<int32_t>(phase_ends_.size()) - 1,
              .phase_name = phases_.empty() ? -1 : text_of(phases_.front()->name),
              .module = frame.module,
              .what = frame.what,
              .use = use,
              .gathered = frame.gathered,
              .copied = frame.copied};
  blocks_.push_back(block);
  moments_.emplace_back(index, true);
  there_.emplace(number, index);
}

void MemoryLog::released(uint64_t number) {
  auto found = there_.find(number);
  if (found == there_.end()) return;
  blocks_[static_cast<size_t>(found->second)].died = static_cast<int64_t>(moments_.size());
  moments_.emplace_back(found->second, false);
  there_.erase(found);
}

void MemoryLog::step() {
  if (first_step_ < 0) first_step_ = static_cast<int64_t>(moments_.size());
}

// Whether a step of backward begins while it is there.
bool MemoryLog::reaches_backward(const Block& b) const {
  auto next = std::lower_bound(node_begins_.begin(), node_begins_.end(), b.born + 1);
  return next != node_begins_.end() && (b.died < 0 || b.died >= *next);
}

MemoryKind MemoryLog::kind_of(const Block& b) const {
  if (first_step_ < 0 || b.born < first_step_)
    return b.died < 0 || b.died >= first_step_ ? MemoryKind::parameters : MemoryKind::working;
  if (b.use == MemoryUse::workspace) return MemoryKind::working;
  if (b.copied) return MemoryKind::checkpoint;
  if (b.phase >= 0) {
    int64_t end = phase_ends_[static_cast<size_t>(b.phase)];
    if (end >= 0 && (b.died < 0 || b.died >= end)) {  // left behind
      bool kept = b.died < 0 && texts_[static_cast<size_t>(b.phase_name)] == "optimizer";
      return kept ? MemoryKind::optimizer : MemoryKind::gradients;
    }
  }
  if (b.use == MemoryUse::communication || b.gathered) return MemoryKind::communication;
  bool forward = b.phase < 0 || b.module >= 0;
  return forward && reaches_backward(b) ? MemoryKind::saved : MemoryKind::working;
}

std::string MemoryLog::name_of(const Block& b, MemoryKind kind) const {
  auto text = [&](int32_t at, const char* none) {
    return at < 0 ? std::string(none) : texts_[static_cast<size_t>(at)];
  };
  switch (kind) {
    case MemoryKind::saved:
      return b.module < 0                                  ? "(outside modules)"
             : b.module >= 0 && text(b.module, "").empty() ? "(the model itself)"
                                                           : text(b.module, "");
    case MemoryKind::communication:
      return b.gathered ? "gathered parameters" : b.phase < 0 ? "forward" : text(b.phase_name, "");
    case MemoryKind::working:
      if (b.use == MemoryUse::workspace) return "scratch of " + text(b.what, "kernels");
      return b.born < first_step_ ? "before the first step" : text(b.phase_name, "forward");
    default:
      return {};
  }
}

std::string MemoryLog::place_of(const Block& b) const {
  if (b.copied && b.what >= 0) return texts_[static_cast<size_t>(b.what)];
  std::string out = b.born < first_step_ || first_step_ < 0 ? "before the first step"
                    : b.phase_name < 0                      ? "forward"
                                                            : texts_[static_cast<size_t>(b.phase_name)];
  if (b.module >= 0 && !texts_[static_cast<size_t>(b.module)].empty())
    out += std::string(", ") + texts_[static_cast<size_t>(b.module)];
  if (b.what >= 0) out += std::string(", ") + texts_[static_cast<size_t>(b.what)];
  return out;
}

MemoryPlan MemoryLog::plan() const {
  MemoryPlan out;
  for (size_t k = 0; k < out.kinds.size(); ++k) out.kinds[k].kind = static_cast<MemoryKind>(k);
  std::map<std::pair<MemoryKind, std::string>, size_t> known;
  std::vector<size_t> row_of;  // by block
  for (const Block& b : blocks_) {
    MemoryKind kind = kind_of(b);
    auto [at, fresh] = known.try_emplace({kind, name_of(b, kind)}, out.rows.size());
    if (fresh) out.rows.push_back({.kind = kind, .name = at->first.second});
    row_of.push_back(at->second);
  }
  std::vector<int64_t> now(out.rows.size());
  std::array<int64_t, kMemoryKinds> now_of{};
  int64_t active = 0;
  for (auto [index, taken] : moments_) {
    const Block& b = blocks_[static_cast<size_t>(index)];
    size_t row = row_of[static_cast<size_t>(index)], kind = static_cast<size_t>(out.rows[row].kind);
    int64_t change = taken ? b.bytes : -b.bytes;
    active += change;
    out.rows[row].largest = std::max(out.rows[row].largest, now[row] += change);
    out.kinds[kind].largest = std::max(out.kinds[kind].largest, now_of[kind] += change);
    if (active <= out.peak) continue;
    out.peak = active;
    out.where = place_of(b);
    for (size_t r = 0; r < now.size(); ++r) out.rows[r].at_peak = now[r];
    for (size_t k = 0; k < now_of.size(); ++k) out.kinds[k].at_peak = now_of[k];
  }
  std::erase_if(out.rows, [](const MemoryRow& r) { return r.name.empty(); });
  std::stable_sort(out.rows.begin(), out.rows.end(), [](const MemoryRow& a, const MemoryRow& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.largest > b.largest;
  });
  return out;
}

}  // namespace cleave::nn::detail
