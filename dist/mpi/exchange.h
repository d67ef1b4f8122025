// Messages between this process and others, posted together and polled.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cleave::dist::detail {

/// Throws CommError with MPI's text unless `code` is MPI_SUCCESS.
void mpi_check(int code, const char* what);

/// Sends and receives of raw bytes, of any size. Buffers must stay until `done` or `abandon`.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void send(MPI_Comm comm, int rank, const void* data, int64_t bytes, int tag);
  void receive(MPI_Comm comm, int rank, void* data, int64_t bytes, int tag);
  /// Whether all have completed. Throws CommError if MPI failed or a message had another size than expected.
  bool done();
  /// The ranks whose part is missing: those that did not send, or did not take what was sent.
  std::vector<int> missing();
  /// Takes back what can be taken back and gives the rest a moment to complete.
  void abandon();

 private:
  struct Part {
    int rank;
    int bytes;  ///< expected; -1: a send
  };
  void post(MPI_Comm comm, int rank, void* data, int64_t bytes, int tag, bool receives);
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace cleave::dist::detail
