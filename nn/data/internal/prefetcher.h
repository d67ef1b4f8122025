// Prefetcher: a thread that makes values ahead of their use.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace cleave::nn::detail {

/// Calls `make` on a thread of its own until it gives nothing or throws, at most `depth` values ahead. The thread must
/// make no tensors: their memory belongs to the rank's thread.
template <class T>
class Prefetcher {
 public:
  Prefetcher(std::function<std::optional<T>()> make, int depth)
      : make_(std::move(make)), depth_(static_cast<size_t>(depth)), thread_([this] { run(); }) {}
  /// Waits for the value being made and drops all.
  ~Prefetcher() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next value; nothing, or the error that `make` threw, after the last one.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> value(std::move(ready_.front()));
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return value;
  }

 private:
  void run() {
    try {
      while (wait_for_room()) {
        std::optional<T> value = make_();
        if (!value) break;
        std::lock_guard lock(mutex_);
        ready_.push_back(std::move(*value));
        changed_.notify_all();
      }
    } catch (...) { error_ = std::current_exception(); }
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_.size() < depth_ || stopped_; });
    return !stopped_;
  }

  std::function<std::optional<T>()> make_;
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> ready_;
  std::exception_ptr error_;  // written before `ended_`
  bool ended_ = false, stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace cleave::nn::detail
