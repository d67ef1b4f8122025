#include <cleave/dist/mpi/exchange.h>

#include <cleave/core/error.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

namespace cleave::dist::detail {
namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // bytes of one message: MPI counts in int

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

}  // namespace

void mpi_check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw CommError(fmt::format("[mpi] {} failed: {}", what, error_text(code)));
}

void Exchange::send(MPI_Comm comm, int rank, const void* data, int64_t bytes, int tag) {
  post(comm, rank, const_cast<void*>(data), bytes, tag, false);
}
void Exchange::receive(MPI_Comm comm, int rank, void* data, int64_t bytes, int tag) {
  post(comm, rank, data, bytes, tag, true);
}

// Messages of one tag keep their order, so the parts of a large one need no tags of their own.
void Exchange::post(MPI_Comm comm, int rank, void* data, int64_t bytes, int tag, bool receives) {
  auto* p = static_cast<std::byte*>(data);
  do {
    int n = static_cast<int>(std::min(bytes, kMost));
    MPI_Request request;
    if (receives)
      mpi_check(MPI_Irecv(p, n, MPI_BYTE, rank, tag, comm, &request), "MPI_Irecv");
    else
      mpi_check(MPI_Isend(p, n, MPI_BYTE, rank, tag, comm, &request), "MPI_Isend");
    requests_.push_back(request);
    parts_.push_back({rank, receives ? n : -1});
    bytes -= n;
    if (bytes) p += n;
  } while (bytes > 0);
}

bool Exchange::done() {
  if (requests_.empty()) return true;
  int flag = 0;
  statuses_.resize(requests_.size());
  int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, statuses_.data());
  if (code == MPI_ERR_IN_STATUS)
    for (size_t i = 0; i < statuses_.size(); ++i) {
      int error = statuses_[i].MPI_ERROR;
      if (error != MPI_SUCCESS && error != MPI_ERR_PENDING)
        throw CommError(fmt::format("[mpi] message with rank {} failed: {}", parts_[i].rank, error_text(error)));
    }
  mpi_check(code, "MPI_Testall");
  if (!flag) return false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    int n = 0;
    if (parts_[i].bytes < 0) continue;
    mpi_check(MPI_Get_count(&statuses_[i], MPI_BYTE, &n), "MPI_Get_count");
    if (n != parts_[i].bytes)
      throw CommError(
          fmt::format("[mpi] rank {} sent {} bytes where {} are expected", parts_[i].rank, n, parts_[i].bytes));
  }
  requests_.clear();
  parts_.clear();
  return true;
}

std::vector<int> Exchange::missing() {
  std::vector<int> ranks;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int flag = 0;
    if (MPI_Request_get_status(requests_[i], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag)
      ranks.push_back(parts_[i].rank);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// A receive that nobody answered is cancelled; one that has begun, and sends to ranks that still take them, complete
// while both sides are here.
void Exchange::abandon() {
  for (size_t i = 0; i < requests_.size(); ++i)
    if (parts_[i].bytes >= 0 && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  int flag = 0;
  while (!flag && !requests_.empty() && std::chrono::steady_clock::now() < end) {
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &flag, MPI_STATUSES_IGNORE);
    if (!flag) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (MPI_Request& r : requests_)
    if (r != MPI_REQUEST_NULL) MPI_Request_free(&r);
  requests_.clear();
  parts_.clear();
}

}  // namespace cleave::dist::detail
