// One save, from the copy of the elements to the rename.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <cleave/nn/checkpoint.h>
#include <cleave/nn/internal/file_lock.h>
#include <cleave/nn/internal/file_operations.h>
#include <cleave/nn/internal/manifest.h>
#include <cleave/nn/internal/save_plan.h>
#include <cleave/nn/internal/together.h>

namespace cleave::nn::detail {

/// Stages: every rank writes its boxes and hashes what of them are whole chunks, then (if need be) the other chunks,
/// each of parts that several ranks wrote, from the files; then rank 0 completes and renames. Between them the ranks
/// agree. A stage's work is local; with `background` a thread does it, else the caller.
class SaveJob {
 public:
  enum class Target : uint8_t { folder, file };
  /// Collective: agrees on what is saved, copies or refers to the elements, and makes the files.
  SaveJob(const std::string& path, const CheckpointContent& content, const SaveOptions& options, Target target,
          bool background);
  ~SaveJob();

  /// Collective. True once all is done; with `wait` always.
  bool advance(bool wait);

 private:
  using Stage = void (SaveJob::*)();
  /// One box's bytes and where they go.
  struct Piece {
    size_t file;
    Shape global;
    dist::Box box;
    int64_t offset;      ///< of the tensor in the file
    size_t first_chunk;  ///< of the tensor
    Tensor dense;
  };
  /// A stage as its worker has timed it.
  struct Work {
    const char* name;
    int64_t bytes, began, ended;
  };

  void plan(const CheckpointContent& content, const SaveOptions& options);
  void require_same() const;
  void take_pieces();
  void take(const Tensor& x, const OwnedBox& owned, Piece piece, bool fresh);
  void list_chunks(size_t file, size_t tensor, const TensorType& type, const std::vector<OwnedBox>& boxes);
  void prepare();
  void write();
  void write_run(OutputFile& file, const Piece& piece, const std::byte* data, int64_t at, int64_t bytes);
  void hash();
  void gather_hashes();
  void commit();
  void put_in_place();
  void write_manifest();
  void start(Stage stage, bool busy);
  int64_t torn_bytes() const;
  void next();
  void work(const char* name, int64_t bytes);
  bool stage_over(bool wait);
  void require_wanted() const;
  void give_up();
  void clean();
  std::string temporary(const std::string& file = "") const;

  Together ranks_;
  FileOperations& files_;
  std::string path_, aside_;
  Target target_;
  bool background_;
  std::vector<PlannedFile> plan_;
  std::vector<std::string> group_of_;  // by file
  std::string state_;
  std::vector<Piece> pieces_;
  std::vector<Chunk> chunks_;     // of all tensors in order; none for a single file
  std::vector<int64_t> hashes_;   // by chunk: those of this rank, then all
  std::vector<OutputFile> open_;  // rank 0: by file, until they are written
  FileLock lock_;                 // rank 0: on what is under its temporary name
  bool made_ = false;             // rank 0: that is this job's
  int64_t bytes_ = 0;             // that this rank writes

  Stage stage_ = nullptr;
  std::thread thread_;
  std::atomic<bool> over_{false}, unwanted_{false};
  std::exception_ptr error_;  // of the stage's work on this rank
  std::vector<Work> worked_;  // that no observer was told of
  bool done_ = false;
};

}  // namespace cleave::nn::detail
