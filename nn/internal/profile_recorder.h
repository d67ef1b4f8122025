// What a profiler keeps of one rank: sums by row, and single events.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <cleave/nn/internal/profile_text.h>
#include <cleave/nn/internal/profile_work.h>
#include <cleave/nn/profile.h>

namespace cleave::nn::detail {

struct Event {
  int64_t begin, end;  // now_ns
  const char* phase;
  uint32_t text;
  bool in_flight;  // beside the spans
};
struct MemoryLevel {
  int64_t at, active;
};
/// A row while it grows; seconds as whole nanoseconds, so that the rows add up to the whole.
struct RowSums {
  const char* phase;
  std::string name;
  int64_t calls = 0, nanoseconds = 0;
  double flops = 0, bytes = 0, bound_seconds = 0;
};

class ProfileRecorder : public Observer {
 public:
  explicit ProfileRecorder(const ProfilerOptions& options);

  void start(const std::string& name, bool events);
  void stop();
  bool running() const { return running_; }

  void begin(const Span& span) override;
  void end(const Span& span) override;
  void finished(const Span& span, int64_t began, int64_t ended) override;

  const ProfileBounds bounds;
  int64_t intervals = 0, nanoseconds = 0, dropped = 0;
  std::vector<RowSums> rows;
  std::vector<Event> events;
  std::vector<MemoryLevel> memory;
  EventTexts texts;
  int64_t first = 0;  // the time of the first start

 private:
  struct Frame {
    const Span* span;
    uint32_t row;
    bool owns_kernels;                     // their time and work are this row's
    int64_t event;                         // -1: none
    const std::string* subject = nullptr;  // what the innermost redistribution moves; null: unknown
  };
  uint32_t row_of(const Span& span);
  uint32_t named_row(const std::string& name);
  void add_work(RowSums& row, const Span& span);
  void charge(int64_t now);
  int64_t begin_event(int64_t now);
  void end_frame(int64_t now, uint32_t text);
  const std::string* subject_now(const Span& span);
  void sample_memory(int64_t now);

  const ProfilerOptions options_;
  KernelWork work_;
  std::unordered_map<uint64_t, uint32_t> known_rows_;
  std::vector<Frame> frames_;  // the interval itself first
  std::unordered_set<std::string> subjects_;
  std::unordered_map<const void*, const std::string*> under_way_;  // subjects of started collectives, by what they fill
  uint32_t interval_text_ = 0;
  bool running_ = false, keep_events_ = false;
  int64_t last_ = 0, began_ = 0;
};

}  // namespace cleave::nn::detail
