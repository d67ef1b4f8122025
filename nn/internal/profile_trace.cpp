#include <cleave/nn/internal/profile_trace.h>

#include <cleave/core/error.h>
#include <cleave/dist/communicator.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace cleave::nn::detail {
namespace {

constexpr size_t kPiece = 1 << 20;  // bytes of text that a rank holds and sends at once
constexpr int kPings = 16;

using Sink = std::function<void(const std::string&)>;

/// The lines of one rank, handed out in pieces. Its times plus `shift` are nanoseconds of the trace.
class RankText {
 public:
  RankText(const ProfileRecorder& recorder, int rank, int64_t shift, Sink sink)
      : r_(recorder), rank_(rank), shift_(shift), sink_(std::move(sink)) {}

  void write() {
    label("process_name", fmt::format("\"name\":\"rank {}\"", rank_));
    label("process_sort_index", fmt::format("\"sort_index\":{}", rank_));
    label("thread_name", "\"name\":\"spans\"");
    if (r_.dropped)
      line("{{\"name\":\"dropped\",\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{\"events\":{}}}}}", rank_, r_.dropped);
    for (size_t i = 0; i < r_.events.size(); ++i) {
      if (r_.events[i].in_flight)
        flight(r_.events[i], i);
      else
        span(r_.events[i]);
    }
    for (const MemoryLevel& m : r_.memory)
      line("{{\"name\":\"memory\",\"ph\":\"C\",\"pid\":{},\"tid\":0,\"ts\":{},\"args\":{{\"active bytes\":{}}}}}",
           rank_, at(m.at), m.active);
    if (!text_.empty()) sink_(text_);
  }

 private:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... arguments) {
    text_ += ",\n";
    fmt::format_to(std::back_inserter(text_), format, std::forward<A>(arguments)...);
    if (text_.size() < kPiece) return;
    sink_(text_);
    text_.clear();
  }
  void label(const char* what, const std::string& value) {
    line("{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{{}}}}}", what, rank_, value);
  }
  // Microseconds with every nanosecond, so that what nests still does.
  static std::string microseconds(int64_t ns) {
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
  }
  std::string at(int64_t ns) const { return microseconds(ns + shift_); }
  static std::string arguments(const Event& e, const EventText& text) {
    return fmt::format("\"phase\":{}{}{}", detail::quoted(e.phase), text.arguments.empty() ? "" : ",", text.arguments);
  }
  void span(const Event& e) {
    const EventText& text = r_.texts[e.text];
    line("{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":0,\"ts\":{},\"dur\":{},\"args\":{{{}}}}}",
         detail::quoted(text.name), text.category, rank_, at(e.begin), microseconds(e.end - e.begin),
         arguments(e, text));
  }
  // Flights, and what threads do for a save, overlap: each is a track of its own below the rank's spans.
  void flight(const Event& e, size_t number) {
    const EventText& text = r_.texts[e.text];
    const char* category = std::string_view(text.category) == "file" ? "file in the background" : "in flight";
    for (auto [phase, time] : {std::pair('b', e.begin), std::pair('e', e.end)})
      line(
          "{{\"name\":{},\"cat\":\"{}\",\"ph\":\"{}\",\"id2\":{{\"local\":\"{}\"}},\"pid\":{},\"tid\":0,\"ts\":{},"
          "\"args\":{{{}}}}}",
          detail::quoted(text.name), category, phase, number, rank_, at(time), arguments(e, text));
  }

  const ProfileRecorder& r_;
  int rank_;
  int64_t shift_;
  Sink sink_;
  std::string text_;
};

// Rank 0's clock less this rank's, by the quickest of some answers; rank 0 answers the others in turn.
int64_t clock_offset(dist::Communicator& all) {
  int64_t offset = 0, quickest = 0, question = 0;
  all.barrier();
  if (all.rank() == 0) {
    for (int i = 0; i < kPings * (all.size() - 1); ++i) {
      int rank = 1 + i / kPings;
      all.recv(&question, 1, DType::i64, rank);
      int64_t answer = Observer::now_ns();
      all.send(&answer, 1, DType::i64, rank);
    }
    return 0;
  }
  for (int i = 0; i < kPings; ++i) {
    int64_t sent = Observer::now_ns(), answer = 0;
    all.send(&question, 1, DType::i64, 0);
    all.recv(&answer, 1, DType::i64, 0);
    int64_t took = Observer::now_ns() - sent;
    if (i && took >= quickest) continue;
    quickest = took;
    offset = answer - (sent + took / 2);
  }
  // Ranks of one host have one clock: what may be the way's error is none of the clock's.
  return std::abs(offset) <= (quickest + 1) / 2 ? 0 : offset;
}

void send_text(dist::Communicator& all, const std::string& text) {
  auto size = static_cast<int64_t>(text.size());
  all.send(&size, 1, DType::i64, 0);
  if (size) all.send(text.data(), size, DType::u8, 0);
}

// False at a rank's end.
bool receive_text(dist::Communicator& all, int rank, std::string& text) {
  int64_t size = 0;
  all.recv(&size, 1, DType::i64, rank);
  text.resize(static_cast<size_t>(size));
  if (size) all.recv(text.data(), size, DType::u8, rank);
  return size > 0;
}

/// Removes a file that was not completed.
struct Unfinished {
  std::string path;
  ~Unfinished() {
    std::error_code none;
    if (!path.empty()) std::filesystem::remove(path, none);
  }
};

}  // namespace

void write_chrome_trace(const ProfileRecorder& recorder, dist::World* world, const std::string& path) {
  bool alone = !world || world->size() == 1 || world->backend() == std::string_view("simulated");
  int64_t origin = recorder.first;
  int own = dist::World::current() ? dist::World::current()->rank() : 0;
  if (!alone && world->rank() > 0) {
    dist::Communicator& all = world->communicator();
    int64_t offset = clock_offset(all);
    all.broadcast(&origin, 1, DType::i64, 0);
    RankText(recorder, world->rank(), offset - origin, [&](const std::string& text) { send_text(all, text); }).write();
    return send_text(all, "");
  }
  bool device = std::filesystem::exists(path) && !std::filesystem::is_regular_file(path);
  std::string unfinished = device ? path : path + ".tmp";  // a file of the name asked for is whole, or not there
  std::ofstream file(unfinished);
  Unfinished removed{device ? "" : unfinished};
  auto write = [&](const std::string& text) {
    if (!(file << text)) throw FileError(fmt::format("[profiler] the trace {} cannot be written", path));
  };
  write(
      "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"cleave\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{}"
      "}");
  if (!alone) {
    clock_offset(world->communicator());
    world->communicator().broadcast(&origin, 1, DType::i64, 0);
  }
  RankText(recorder, own, -origin, write).write();
  std::string text;
  for (int rank = 1; !alone && rank < world->size(); ++rank)
    while (receive_text(world->communicator(), rank, text)) write(text);
  write("\n]}\n");
  file.close();
  if (!file || (!device && std::rename(unfinished.c_str(), path.c_str()) != 0))
    throw FileError(fmt::format("[profiler] the trace {} cannot be written; is the disk full?", path));
  removed.path.clear();
}

}  // namespace cleave::nn::detail
