#include <cleave/nn/internal/file_lock.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace cleave::nn::detail {

FileLock::FileLock(const std::string& path, double seconds) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  using Clock = std::chrono::steady_clock;
  auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;  // there are none here
    if (Clock::now() >= end) {
      refused_ = true;
      release();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void FileLock::release() {
  if (int file = std::exchange(file_, -1); file >= 0) ::close(file);
}

}  // namespace cleave::nn::detail
