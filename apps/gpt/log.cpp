#include "gpt/log.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace gpt {

namespace {

constexpr int kBar = 24;
constexpr std::chrono::milliseconds kBetweenBars{50};

std::string bar(int64_t step, int64_t steps) {
  auto full = static_cast<size_t>(kBar * step / std::max<int64_t>(1, steps));
  return fmt::format("[{:<{}}]", std::string(full, '='), kBar);
}

int64_t step_of(const nlohmann::json& line) {
  if (!line.is_object()) return 0;
  auto at = line.find("step");
  return at != line.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

// The lines of steps 1 to `last`, each once; what a run that died had written behind its last checkpoint, or half
// written, is not among them.
std::vector<std::string> lines_up_to(const std::string& path, int64_t last) {
  std::vector<std::string> out;
  std::ifstream in(path);
  int64_t before = 0;
  for (std::string line; std::getline(in, line);) {
    int64_t step = step_of(nlohmann::json::parse(line, nullptr, false));
    if (step <= before || step > last) continue;
    before = step;
    out.push_back(line);
  }
  return out;
}

// What is not finite is written as null.
double number_in(const nlohmann::json& line, const char* name) {
  auto at = line.find(name);
  return at != line.end() && at->is_number() ? at->get<double>() : std::nan("");
}

}  // namespace

std::string to_json(const StepRecord& r) {
  nlohmann::ordered_json line = {{"step", r.step}, {"loss", r.loss}, {"grad_norm", r.grad_norm},
                                 {"lr", r.lr},     {"ms", r.ms},     {"tokens_per_s", r.tokens_per_s}};
  line["peak_bytes"] = r.peak_bytes;
  auto& comm = line["comm"] = nlohmann::ordered_json::array();
  for (const auto& c : r.comm)
    comm.push_back({{"phase", c.phase},
                    {"axis", c.axis},
                    {"kind", cleave::dist::to_string(c.kind)},
                    {"bytes", c.bytes},
                    {"count", c.count}});
  if (r.held_out) line["held_out"] = *r.held_out;
  if (r.skipped) line["skipped"] = true;
  if (r.loss_scale) line["loss_scale"] = *r.loss_scale;
  if (r.loss_z) line["z"]["loss"] = *r.loss_z;
  if (r.grad_norm_z) line["z"]["grad_norm"] = *r.grad_norm_z;
  if (!r.outliers.empty()) line["outlier"] = r.outliers;
  return line.dump();
}

std::string to_text(const StepRecord& r, int64_t steps) {
  std::string text = fmt::format("step {}/{}  loss {:.4f}  grad norm {:.3g}  lr {:.3g}  {:.1f} ms  {:.0f} tokens/s",
                                 r.step, steps, r.loss, r.grad_norm, r.lr, r.ms, r.tokens_per_s);
  if (r.held_out) text += fmt::format("  held out {:.4f}", *r.held_out);
  return text;
}

void require_file(const char* option, const std::string& path) {
  std::error_code none;
  bool there = std::filesystem::exists(path, none);
  if (!std::ofstream(path, std::ios::app))
    throw cleave::FileError(fmt::format("{}: {} cannot be written", option, path));
  if (!there) std::filesystem::remove(path, none);
}

LogFile::LogFile(const std::string& path, int64_t done) : path_(path) {
  if (path.empty()) return;
  std::vector<std::string> kept = done > 0 ? lines_up_to(path, done) : std::vector<std::string>{};
  bool regular = std::filesystem::is_regular_file(path);  // else nothing is renamed over it
  std::string target = regular ? std::filesystem::canonical(path).string() : path;
  std::string fresh = kept.empty() || !regular ? target : target + ".tmp";
  file_.open(fresh);
  for (const std::string& line : kept) {
    auto parsed = nlohmann::json::parse(line);
    loss_.add(number_in(parsed, "loss"));
    grad_norm_.add(number_in(parsed, "grad_norm"));
    file_ << line << '\n';
  }
  file_.flush();
  if (fresh != target && file_ && std::rename(fresh.c_str(), target.c_str()) != 0) file_.setstate(std::ios::failbit);
  if (!file_) throw cleave::FileError(fmt::format("--log: {} cannot be written", path));
}

void LogFile::judge(StepRecord& r) {
  auto loss = loss_.add(r.loss), norm = grad_norm_.add(r.grad_norm);
  r.loss_z = loss.z;
  r.grad_norm_z = norm.z;
  r.outliers.clear();
  if (loss.outlier) r.outliers.emplace_back("loss");
  bool scale = r.skipped && r.loss_scale && !std::isfinite(r.grad_norm);  // it is looking for its height
  if (norm.outlier && !scale) r.outliers.emplace_back("grad_norm");
}

void LogFile::write(const StepRecord& given) {
  if (path_.empty()) return;
  StepRecord record = given;
  judge(record);
  file_ << to_json(record) << std::endl;
  if (!file_) throw cleave::FileError(fmt::format("--log: {} cannot be written; is the disk full?", path_));
}

Progress::Progress(int64_t steps)
    : steps_(steps), terminal_(isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {}

void Progress::show(const StepRecord& r) {
  if (terminal_) {
    auto now = std::chrono::steady_clock::now();
    if (now - shown_ < kBetweenBars && r.step != steps_ && !r.held_out) return;
    shown_ = now;
    std::fputs(fmt::format("\r{} {}\x1b[K", bar(r.step, steps_), to_text(r, steps_)).c_str(), stdout);
    open_ = true;
    if (r.held_out) finish();
  } else {
    int64_t every = (steps_ + 19) / 20;
    if (r.step != 1 && r.step % every && r.step != steps_ && !r.held_out) return;
    std::fputs((to_text(r, steps_) + "\n").c_str(), stdout);
  }
  std::fflush(stdout);
}

void Progress::finish() {
  if (open_) std::fputs("\n", stdout);
  open_ = false;
}

}  // namespace gpt
