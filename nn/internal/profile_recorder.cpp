#include <cleave/nn/internal/profile_recorder.h>

#include <cleave/autograd/observer.h>
#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/dist/observer.h>
#include <cleave/nn/internal/parameter_names.h>
#include <cleave/ops/observer.h>

namespace cleave::nn::detail {
namespace {

using dist::CollectiveSpan;

// Rows of their own have ops, steps of backward, collectives, redistributions; other spans enclose the host's time.
bool has_row(SpanKind kind) {
  return kind == SpanKind::op || kind == SpanKind::node || kind == SpanKind::collective ||
         kind == SpanKind::redistribution;
}

bool is_redistribution(const Span& span) {
  return span.kind == SpanKind::redistribution ||
         (span.kind == SpanKind::node &&
          static_cast<const autograd::NodeSpan&>(span).node.kind() == autograd::Producer::redistribution);
}

// Neither the wait for a collective nor the step of backward around a redistribution is one more.
bool is_call(const Span& span) {
  if (span.kind == SpanKind::collective)
    return static_cast<const CollectiveSpan&>(span).part != CollectiveSpan::Part::wait;
  return span.kind != SpanKind::node || !is_redistribution(span);
}

// A wait belongs to the row of its collective, a redistribution's step of backward to the redistributions.
std::string row_name(const Span& span) {
  if (is_redistribution(span)) return "redistribution";
  if (span.kind != SpanKind::collective) return name_of(span);
  const auto& s = static_cast<const CollectiveSpan&>(span);
  return std::string(to_string(s.call.kind)).append(" over ").append(s.axis);
}

}  // namespace

ProfileRecorder::ProfileRecorder(const ProfilerOptions& options)
    : bounds(options.bounds ? measure_bounds() : ProfileBounds{}), options_(options) {
  frames_.reserve(64);
}

void ProfileRecorder::start(const std::string& name, bool keep_events) {
  if (Observer::current())
    throw ValueError("[profiler] this rank is being observed already; stop() what runs before start()");
  running_ = true;
  keep_events_ = keep_events;
  interval_text_ = texts.of(name, "interval");
  began_ = last_ = now_ns();
  if (intervals++ == 0) {
    first = began_;
    forget_storage_names();
  }
  frames_.push_back({nullptr, named_row("other"), false, begin_event(began_)});
  sample_memory(began_);
  Observer::set(this);
}

void ProfileRecorder::stop() {
  if (!running_) return;
  Observer::set(nullptr);
  running_ = false;
  int64_t now = now_ns();
  charge(now);
  sample_memory(now);
  while (!frames_.empty()) {
    const Frame& f = frames_.back();
    end_frame(now, f.span ? texts.of(f.span->name, "unfinished") : interval_text_);
  }
  nanoseconds += now - began_;
}

void ProfileRecorder::begin(const Span& span) {
  int64_t now = now_ns();
  charge(now);
  const Frame around = frames_.back();
  Frame frame{&span, around.row, around.owns_kernels, -1};
  if (span.kind == SpanKind::op) work_.learn(static_cast<const OpSpan&>(span).op);
  if (has_row(span.kind) || (span.kind == SpanKind::kernel && !around.owns_kernels)) {
    frame.row = row_of(span);
    frame.owns_kernels = true;
    rows[frame.row].calls += is_call(span);
  } else if (span.kind != SpanKind::kernel) {
    frame.row = named_row("other");
    frame.owns_kernels = false;
  }
  bool nested = around.span && around.span->kind == SpanKind::kernel;  // is part of that kernel's work
  if (!nested) add_work(rows[frame.row], span);
  frame.event = begin_event(now);
  frame.subject = around.subject;
  if (frame.event >= 0)
    if (std::string subject = subject_of(span); !subject.empty())
      frame.subject = &*subjects_.insert(std::move(subject)).first;
  frames_.push_back(frame);
  sample_memory(now);
}

void ProfileRecorder::end(const Span& span) {
  if (frames_.back().span != &span) return;  // began before the interval
  int64_t now = now_ns();
  charge(now);
  sample_memory(now);
  end_frame(now, frames_.back().event >= 0 ? texts.of(span, subject_now(span)) : 0);
}

// A wait belongs to what was started, wherever it is waited for.
const std::string* ProfileRecorder::subject_now(const Span& span) {
  const std::string* subject = frames_.back().subject;
  if (span.kind == SpanKind::redistribution) return subject;
  if (span.kind != SpanKind::collective) return nullptr;
  const auto& s = static_cast<const CollectiveSpan&>(span);
  if (s.part != CollectiveSpan::Part::call) {
    auto started = under_way_.find(s.call.recv);
    return started == under_way_.end() ? nullptr : started->second;
  }
  under_way_.insert_or_assign(s.call.recv, subject);
  return subject;
}

void ProfileRecorder::finished(const Span& span, int64_t began, int64_t ended) {
  if (!keep_events_ || ended < first) return;
  began = std::max(began, first);
  if (int64_t at = begin_event(began); at >= 0)
    events[static_cast<size_t>(at)] = {began, ended, dist::current_phase(), texts.of(span, subject_now(span)), true};
}

void ProfileRecorder::charge(int64_t now) {
  rows[frames_.back().row].nanoseconds += now - last_;
  last_ = now;
}

void ProfileRecorder::end_frame(int64_t now, uint32_t text) {
  if (int64_t at = frames_.back().event; at >= 0) {
    events[static_cast<size_t>(at)].end = now;
    events[static_cast<size_t>(at)].text = text;
  }
  frames_.pop_back();
}

// Events stand in the order of their beginnings, so that the first ones kept have those around them.
int64_t ProfileRecorder::begin_event(int64_t now) {
  if (!keep_events_) return -1;
  if (static_cast<int64_t>(events.size()) >= options_.max_events) return ++dropped, -1;
  events.push_back({now, now, dist::current_phase(), 0, false});
  return static_cast<int64_t>(events.size()) - 1;
}

void ProfileRecorder::sample_memory(int64_t now) {
  if (!keep_events_ || static_cast<int64_t>(memory.size()) >= options_.max_events) return;
  int64_t active = memory_stats().active;
  if (memory.empty() || memory.back().active != active) memory.push_back({now, active});
}

void ProfileRecorder::add_work(RowSums& row, const Span& span) {
  Cost cost;
  DType dtype = DType::f32;
  if (span.kind == SpanKind::kernel) {
    const auto& s = static_cast<const KernelSpan&>(span);
    cost = work_.of(s);
    if (!s.call.in.empty() && s.call.in[0]) dtype = s.call.in[0]->dtype;  // a product of halves may be summed in f32
  } else if (span.kind == SpanKind::collective) {
    cost.bytes = static_cast<double>(static_cast<const CollectiveSpan&>(span).bytes);
  }
  row.flops += cost.flops;
  row.bytes += cost.bytes;
  row.bound_seconds += std::max(flops_seconds(bounds, cost.flops, dtype), bytes_seconds(bounds, cost.bytes));
}

uint32_t ProfileRecorder::row_of(const Span& span) {
  Hash key;
  key.add(std::string_view(dist::current_phase())).add(static_cast<uint64_t>(span.kind));
  if (span.kind == SpanKind::collective) {
    const auto& s = static_cast<const CollectiveSpan&>(span);
    key.add(static_cast<uint64_t>(s.call.kind)).add(std::string_view(s.axis));
  } else if (is_redistribution(span)) {
    key.add(1);
  } else {
    key.add(std::string_view(span.name));
  }
  if (auto found = known_rows_.find(key.value()); found != known_rows_.end()) return found->second;
  return known_rows_[key.value()] = named_row(row_name(span));
}

uint32_t ProfileRecorder::named_row(const std::string& name) {
  std::string_view phase = dist::current_phase();
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == name && rows[i].phase == phase) return static_cast<uint32_t>(i);
  rows.push_back({dist::current_phase(), name});
  return static_cast<uint32_t>(rows.size() - 1);
}

}  // namespace cleave::nn::detail
