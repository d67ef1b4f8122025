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
#include <cleave/nn/internal/file_operations.h>
#include <cleave/nn/internal/manifest.h>
#include <cleave/nn/internal/save_plan.h>
#include <cleave/nn/internal/together.h>

namespace cleave::nn::detail {

/// Stages: every rank writes its boxes, every rank hashes a part of all, rank 0 completes and renames. Between them the
/// ranks agree. A stage's work is local; with `background` a thread does it, else the caller.
class SaveJob {
 public:
  enum class Target : uint8_t { folder, file };
  /// Collective: agrees on what is saved, copies or refers to the elements, and makes the files.
  SaveJob(std::string path, const CheckpointContent& content, const SaveOptions& options, Target target,
          bool background);
  ~SaveJob();

  /// Collective. True once all is done; with `wait` always.
  bool advance(bool wait);

 private:
  /// One box's bytes and where they go.
  struct Piece {
    size_t file;
    Shape global;
    dist::Box box;
    int64_t offset;  ///< of the tensor in the file
    Tensor dense;
  };
  /// A chunk of a tensor's bytes in a file.
  struct Chunk {
    size_t file, tensor;
    int64_t offset, bytes;
  };

  void plan(const CheckpointContent& content, const SaveOptions& options);
  void require_same() const;
  void take_pieces();
  void prepare();
  void write();
  void hash();
  void gather_hashes();
  void commit();
  void put_in_place();
  void write_manifest();
  void work();
  void start(void (SaveJob::*stage)());
  bool stage_over(bool wait);
  void finish();
  void clean();
  std::string temporary(const std::string& file = "") const;
  std::vector<Chunk> chunks() const;

  Together ranks_;
  FileOperations& files_;
  std::string path_, aside_;
  Target target_;
  bool background_;
  std::vector<PlannedFile> plan_;
  std::vector<std::string> group_of_;  // by file
  std::string state_;
  std::vector<Piece> pieces_;
  std::vector<OutputFile> open_;  // rank 0: by file, from prepare to commit
  std::vector<int64_t> hashes_;   // of this rank's chunks, then of all
  int64_t bytes_ = 0;             // that this rank writes
  int64_t began_ = 0;

  void (SaveJob::*stage_)() = nullptr;
  std::thread thread_;
  std::atomic<bool> over_{false};
  std::exception_ptr error_;  // of the stage's work on this rank
  bool done_ = false;
};

}  // namespace cleave::nn::detail
