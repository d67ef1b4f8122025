#include <cleave/core/error.h>
#include <cleave/nn/checkpoint_series.h>
#include <cleave/nn/internal/checkpoint_files.h>
#include <cleave/nn/internal/file_lock.h>
#include <cleave/nn/internal/file_operations.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace cleave::nn {

using detail::FileOperations;
using detail::Together;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr const char* kLatest = "latest";

// The step of "step-00000100"; -1 for any other name.
int64_t step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  int64_t step = -1;
  const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
  auto [read, error] = std::from_chars(begin, end, step);
  return error == std::errc{} && read == end && step >= 0 && name == step_folder(step) ? step : -1;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(folder, error); !error && at != std::filesystem::end(at);
       at.increment(error))
    out.push_back(at->path().filename().string());
  if (error) throw FileError(fmt::format("{} cannot be read: {}", folder, error.message()));
  std::sort(out.begin(), out.end());
  return out;
}

// Newest first.
std::map<int64_t, std::string, std::greater<>> steps_in(const std::string& root) {
  std::map<int64_t, std::string, std::greater<>> out;
  for (const auto& name : names_in(root))
    if (int64_t step = step_of(name); step >= 0) out.emplace(step, name);
  return out;
}

// What saves that died have left: ".step-00000100.tmp", ... One moved aside for another that never came is put back.
void remove_leftovers(FileOperations& files, const std::string& root) {
  for (const auto& name : names_in(root)) {
    size_t dot = name.rfind('.');
    if (name.front() != '.' || dot == 0 || dot == std::string::npos) continue;
    std::string whole = name.substr(1, dot - 1), suffix = name.substr(dot), path = root + "/" + name;
    if (step_of(whole) < 0 && whole != kLatest) continue;
    if (suffix == ".old" && !detail::exists(root + "/" + whole))
      files.rename(path, root + "/" + whole);
    else if (suffix == ".old" || suffix == ".tmp" || suffix == ".removed")
      files.remove(path);
  }
}

void point_to(FileOperations& files, const std::string& root, const std::string& name) {
  std::string temporary = fmt::format("{}/.{}.tmp", root, kLatest);
  detail::write_text(files, temporary, name + "\n");
  files.rename(temporary, root + "/" + kLatest);
  files.sync_folder(root);
}

// Under another name first: a folder that is removed in part must not be taken for a checkpoint.
void remove_older(FileOperations& files, const std::string& root, int64_t step, int keep) {
  int kept = 1;
  for (const auto& [other, name] : steps_in(root)) {
    if (keep == 0 || other >= step || ++kept <= keep) continue;
    std::string removed = fmt::format("{}/.{}.removed", root, name);
    files.remove(removed);
    files.rename(root + "/" + name, removed);
    files.remove(removed);
  }
}

std::string pointer_of(const std::string& root, std::vector<std::string>& skipped) {
  try {
    std::string name = detail::read_text(root + "/" + kLatest, 4096);
    while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
    if (step_of(name) >= 0) return name;
    skipped.push_back("latest: it names no checkpoint");
  } catch (const FileError& e) { skipped.push_back(fmt::format("latest: {}", e.what())); }
  return "";
}

// Names to try in order, then what is to be told, one a line each.
std::string candidates(const std::string& root) {
  std::vector<std::string> names, skipped;
  if (!detail::exists(root)) return "";
  auto steps = steps_in(root);
  if (steps.empty() && !detail::exists(root + "/" + kLatest)) return "";
  if (std::string named = pointer_of(root, skipped); !named.empty()) names.push_back(named);
  for (const auto& [step, name] : steps)
    if (names.empty() || name != names.front()) names.push_back(name);
  std::string out;
  for (const auto& name : names) out += name + "\n";
  for (const auto& text : skipped) out += "!" + text + "\n";
  return out;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    out.push_back(text.substr(at, end - at));
  return out;
}

// Why it cannot be loaded; "" if it can.
std::string fault_of(const Together& ranks, const std::string& folder, bool verify) {
  std::string fault;
  if (ranks.rank() == 0) try {
      detail::require_complete(folder);
    } catch (const FileError& e) { fault = e.what(); }
  fault = ranks.text_of_first(fault);
  if (!fault.empty() || !verify) return fault;
  try {
    Checkpoint(folder).verify();
  } catch (const FileError& e) { return e.what(); }
  return "";
}

void make_writable(const std::string& root) {
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) throw FileError(fmt::format("{} cannot be made: {}", root, error.message()));
  if (access(root.c_str(), R_OK | W_OK | X_OK) != 0)
    throw FileError(fmt::format("{} cannot be written: {}", root, std::strerror(errno)));
}

}  // namespace

std::string step_folder(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

CheckpointSeries::CheckpointSeries(std::string root, const SeriesOptions& options)
    : root_(std::move(root)), options_(options) {
  if (options.keep < 0)
    throw ValueError(fmt::format("[checkpoint] keep is {}; it must be 0 (all) or more", options.keep));
  Together ranks;
  ranks.run([&] {
    if (ranks.rank() != 0) return;
    make_writable(root_);
    lock_ = std::make_unique<detail::FileLock>(root_, options.lock_seconds);
    if (lock_->refused()) throw FileError(fmt::format("{} cannot be written: another run is writing to it", root_));
    remove_leftovers(files(), root_);
  });
}
CheckpointSeries::~CheckpointSeries() = default;

void CheckpointSeries::save(int64_t step, const CheckpointContent& content) { begin(step, content, false); }

void CheckpointSeries::save_async(int64_t step, const CheckpointContent& content) { begin(step, content, true); }

void CheckpointSeries::begin(int64_t step, const CheckpointContent& content, bool background) {
  wait();
  if (step < 0) throw ValueError(fmt::format("[checkpoint] the step is {}; it counts from 0", step));
  Together ranks;
  ranks.run([&] {
    if (ranks.rank() == 0) remove_leftovers(files(), root_);
  });
  pending_step_ = step;
  std::string folder = root_ + "/" + step_folder(step);
  if (background) {
    pending_ = save_checkpoint_async(folder, content, options_.save);
  } else {
    save_checkpoint(folder, content, options_.save);
    finish();
  }
}

std::vector<std::string> CheckpointSeries::abandon_after(int64_t step) {
  wait();
  Together ranks;
  std::string text;
  ranks.run([&] {
    if (ranks.rank() != 0) return;
    auto steps = steps_in(root_);
    std::erase_if(steps, [&](const auto& item) { return item.first <= step; });
    if (steps.empty()) return;
    if (detail::exists(root_ + "/" + step_folder(step)))
      point_to(files(), root_, step_folder(step));
    else
      files().remove(root_ + "/" + kLatest);
    for (const auto& [other, name] : steps) {
      std::string path = root_ + "/" + name;
      files().remove(path + ".abandoned");
      files().rename(path, path + ".abandoned");
      text += name + "\n";
    }
    files().sync_folder(root_);
  });
  return lines(ranks.text_of_first(text));
}

bool CheckpointSeries::poll() {
  if (!pending_) return true;
  return complete([&] { return pending_->poll(); });
}

void CheckpointSeries::wait() {
  if (pending_)
    complete([&] {
      pending_->wait();
      return true;
    });
}

bool CheckpointSeries::complete(const std::function<bool()>& go_on) {
  try {
    if (!go_on()) return false;
  } catch (...) {
    pending_.reset();
    throw;
  }
  pending_.reset();
  finish();
  return true;
}

FileOperations& CheckpointSeries::files() const {
  return options_.save.files ? *options_.save.files : FileOperations::system();
}

void CheckpointSeries::finish() {
  Together ranks;
  ranks.run([&] {
    if (ranks.rank() != 0) return;
    point_to(files(), root_, step_folder(pending_step_));
    remove_older(files(), root_, pending_step_, options_.keep);
  });
  saved_ = pending_step_;
}

FoundCheckpoint find_latest(const std::string& root, bool verify) {
  Together ranks;
  std::string text;
  ranks.run([&] {
    if (ranks.rank() == 0) text = candidates(root);
  });
  FoundCheckpoint found;
  std::vector<std::string> names;
  for (const auto& line : lines(ranks.text_of_first(text)))
    (line.front() == '!' ? found.skipped : names).push_back(line.front() == '!' ? line.substr(1) : line);
  for (const auto& name : names) {
    std::string folder = root + "/" + name;
    std::string fault = fault_of(ranks, folder, verify);
    if (fault.empty()) {
      found.folder = folder;
      found.step = step_of(name);
      return found;
    }
    found.skipped.push_back(name + ": " + fault);
  }
  return found;
}

}  // namespace cleave::nn
