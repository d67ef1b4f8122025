#include <cleave/core/error.h>
#include <cleave/core/observer.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/internal/boxes.h>
#include <cleave/nn/internal/save_job.h>
#include <cleave/nn/observer.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

bool good_group(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
}

// What the path names, through symbolic links: there the bytes belong, and the links stay.
std::string without_links(std::string path) {
  constexpr int kMostLinks = 40;
  auto strip = [](std::string& text) {
    while (text.size() > 1 && text.back() == '/') text.pop_back();
  };
  strip(path);
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    std::string to = std::filesystem::read_symlink(path, error).string();
    path = to.starts_with('/') ? to : parent_folder(path) + "/" + to;
    strip(path);
  }
  if (std::filesystem::is_symlink(path, error))
    throw FileError(fmt::format("{} cannot be written: too many symbolic links lead on from it", path));
  return path;
}

std::string beside(const std::string& path, const char* suffix) {
  return fmt::format("{}/.{}.{}", parent_folder(path), last_name(path), suffix);
}

// A folder that may be replaced: one of ours, or an empty one.
void require_replaceable(const std::string& path, SaveJob::Target target) {
  if (!exists(path)) return;
  std::error_code error;
  bool folder = std::filesystem::is_directory(path, error);
  if (target == SaveJob::Target::file && folder)
    throw FileError(fmt::format("{} cannot be written: it is a folder", path));
  if (target == SaveJob::Target::file) return;
  if (!folder) throw FileError(fmt::format("{} cannot be written: it is a file, and a checkpoint is a folder", path));
  if (!std::filesystem::is_empty(path, error) && !exists(path + "/" + kManifest))
    throw FileError(fmt::format("{} cannot be written: it is a folder of other things, without a {}", path, kManifest));
}

// Plain tensors are values that all ranks hold.
std::string plain_digests(const std::vector<PlannedFile>& plan) {
  std::string out;
  for (const auto& file : plan)
    for (const auto& [entry, tensor] : file.tensors) {
      if (tensor.is_distributed() || tensor.device() != Device::Cpu) continue;
      Tensor dense = cleave::detail::dense(tensor);
      out += std::to_string(xxh3(cleave::detail::elements(dense).data, entry.bytes)) + ' ';
    }
  return out;
}

}  // namespace

SaveJob::SaveJob(const std::string& path, const CheckpointContent& content, const SaveOptions& options, Target target,
                 bool background)
    : files_(options.files ? *options.files : FileOperations::system()), target_(target), background_(background) {
  FileSpan span("save", 0);
  ranks_.run([&] {
    path_ = without_links(path);
    aside_ = beside(path_, "old");
    plan(content, options);
  });
  require_same();
  take_pieces();
  try {
    ranks_.run([&] {
      if (ranks_.rank() == 0) prepare();
    });
  } catch (...) {
    open_.clear();
    clean();
    throw;
  }
  start(&SaveJob::write, true);
}

SaveJob::~SaveJob() {
  if (!done_) give_up();
}

std::string SaveJob::temporary(const std::string& file) const {
  std::string path = beside(path_, "tmp");
  return target_ == Target::file || file.empty() ? path : path + "/" + file;
}

void SaveJob::plan(const CheckpointContent& content, const SaveOptions& options) {
  if (last_name(path_).empty() || last_name(path_) == "/" || last_name(path_) == "." || last_name(path_) == "..")
    throw FileError(fmt::format("'{}' names no file or folder that can be written", path_));
  for (const auto& group : content.groups) {
    if (!good_group(group.name))
      throw ValueError(
          fmt::format("[checkpoint] '{}' is no name of a group; use letters, digits, - and _", group.name));
    if (std::find(group_of_.begin(), group_of_.end(), group.name) != group_of_.end())
      throw ValueError(fmt::format("[checkpoint] the group {} stands twice", group.name));
    for (auto& file : plan_files(group.name, group.tensors, group.metadata, options.max_file_bytes)) {
      plan_.push_back(std::move(file));
      group_of_.push_back(group.name);
    }
  }
  state_ = to_text(content.values);
}

void SaveJob::require_same() const {
  std::string all = last_name(path_) + state_;
  for (const auto& file : plan_) all += file.name + file.header;
  auto ranks = static_cast<size_t>(ranks_.size());
  if (dist::checked_mode() && ranks > 1) all += plain_digests(plan_);
  auto mine = static_cast<int64_t>(xxh3(all.data(), static_cast<int64_t>(all.size())));
  std::vector<int64_t> hashes = ranks_.gather({mine}, std::vector<int64_t>(ranks, 1));
  for (size_t r = 1; r < ranks; ++r)
    if (hashes[r] != hashes[0])
      throw ValueError(
          fmt::format("[checkpoint] rank {} saves to another folder, or other names, types or values, than rank 0; "
                      "state of one rank alone has no place in a checkpoint",
                      r));
}

// One tensor after the other: what is brought together or summed for it need not be there for all at once. A rank that
// has no memory for its copy still takes part in what the others need of it.
void SaveJob::take_pieces() {
  Owners owners(ranks_.size());
  std::exception_ptr error;
  for (size_t f = 0; f < plan_.size(); ++f)
    for (size_t t = 0; t < plan_[f].tensors.size(); ++t) {
      PlannedTensor& planned = plan_[f].tensors[t];
      TensorType type = writable_type(planned.tensor.type());
      std::vector<OwnedBox> boxes = owners.assign(type);
      Tensor x = writable(planned.tensor);
      bool fresh = x.impl()->storage != planned.tensor.impl()->storage;
      planned.tensor = Tensor();
      Piece piece{f, type.shape, {}, planned.entry.offset, chunks_.size(), {}};
      if (target_ == Target::folder) list_chunks(f, t, type, boxes);
      for (const OwnedBox& owned : boxes)
        if (owned.rank == ranks_.rank() && !error) try {
            take(x, owned, piece, fresh);
          } catch (const std::exception&) { error = std::current_exception(); }
    }
  ranks_.agree(error);
  give_other_chunks(chunks_, ranks_.size());
  hashes_.resize(chunks_.size());
}

void SaveJob::take(const Tensor& x, const OwnedBox& owned, Piece piece, bool fresh) {
  Tensor block = x.local();
  piece.box = owned.box;
  piece.dense = background_ && !fresh ? cleave::detail::dense_copy(block, x.dtype()) : cleave::detail::dense(block);
  bytes_ += numel(owned.box.shape) * size_of(x.dtype());
  pieces_.push_back(std::move(piece));
}

void SaveJob::list_chunks(size_t file, size_t tensor, const TensorType& type, const std::vector<OwnedBox>& boxes) {
  const SafetensorsEntry& e = plan_[file].tensors[tensor].entry;
  size_t first = chunks_.size();
  for (int64_t at = 0; at < e.bytes; at += kChunkBytes)
    chunks_.push_back({file, tensor, e.offset + at, std::min(kChunkBytes, e.bytes - at)});
  give_whole_chunks(std::span(chunks_).subspan(first), type, boxes);
}

void SaveJob::prepare() {
  require_replaceable(path_, target_);
  if (exists(temporary()) && FileLock(temporary()).refused())
    throw FileError(fmt::format("{} cannot be written: another save is writing it", path_));
  if (exists(aside_) && !exists(path_)) files_.rename(aside_, path_);  // where a save has died between two renames
  files_.remove(aside_);
  files_.remove(temporary());
  if (target_ == Target::folder) {
    files_.make_folder(temporary());
    lock_ = FileLock(temporary());
    made_ = true;
  }
  for (const auto& file : plan_) {
    open_.emplace_back(files_, temporary(file.name), file.bytes);
    if (!std::exchange(made_, true)) lock_ = FileLock(temporary());
    open_.back().write(file.header.data(), static_cast<int64_t>(file.header.size()), 0);
  }
}

void SaveJob::write() {
  std::vector<OutputFile> files = std::move(open_);
  open_.clear();
  bool all = !files.empty();  // this rank has made them
  files.resize(plan_.size());
  std::vector<bool> used(plan_.size(), all);
  for (const Piece& p : pieces_) {
    if (!used[p.file]) files[p.file] = OutputFile(files_, temporary(plan_[p.file].name));
    used[p.file] = true;
    const auto* data = static_cast<const std::byte*>(cleave::detail::elements(p.dense).data);
    each_run(p.global, p.box, size_of(p.dense.dtype()),
             [&](int64_t to, int64_t from, int64_t bytes) { write_run(files[p.file], p, data + from, to, bytes); });
  }
  for (size_t f = 0; f < files.size(); ++f) {
    require_wanted();
    if (used[f]) files[f].sync();
  }
}

// By chunks, each hashed while its bytes are in the caches.
void SaveJob::write_run(OutputFile& file, const Piece& piece, const std::byte* data, int64_t at, int64_t bytes) {
  for (int64_t end = at + bytes, next = at; at < end; data += next - at, at = next) {
    require_wanted();
    int64_t number = at / kChunkBytes;
    next = std::min(end, (number + 1) * kChunkBytes);
    file.write(data, next - at, piece.offset + at);
    if (chunks_.empty()) continue;
    size_t chunk = piece.first_chunk + static_cast<size_t>(number);
    if (chunks_[chunk].whole) hashes_[chunk] = static_cast<int64_t>(xxh3(data, next - at));
  }
}

// From the files, where each chunk is whole: in memory its parts lie on several ranks, or apart.
void SaveJob::hash() {
  std::vector<char> buffer(static_cast<size_t>(kChunkBytes));
  OutputFile file;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const Chunk& c = chunks_[i];
    if (c.whole || c.rank != ranks_.rank()) continue;
    require_wanted();
    std::string path = temporary(plan_[c.file].name);
    if (file.path() != path) file = OutputFile(files_, path);
    file.read(buffer.data(), c.bytes, c.offset);
    hashes_[i] = static_cast<int64_t>(xxh3(buffer.data(), c.bytes));
  }
}

void SaveJob::gather_hashes() {
  if (chunks_.empty()) return;
  std::vector<int64_t> mine, counts(static_cast<size_t>(ranks_.size()), 0);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    ++counts[static_cast<size_t>(chunks_[i].rank)];
    if (chunks_[i].rank == ranks_.rank()) mine.push_back(hashes_[i]);
  }
  std::vector<int64_t> all = ranks_.gather(mine, counts), next(counts.size(), 0);
  std::partial_sum(counts.begin(), counts.end() - 1, next.begin() + 1);
  for (size_t i = 0; i < chunks_.size(); ++i)
    hashes_[i] = all[static_cast<size_t>(next[static_cast<size_t>(chunks_[i].rank)]++)];
}

void SaveJob::write_manifest() {
  Manifest manifest;
  auto add_text = [&](const std::string& name, const std::string& text) {
    write_text(files_, temporary(name), text);
    auto bytes = static_cast<int64_t>(text.size());
    manifest.files[name] = {.bytes = bytes, .hash = xxh3(text.data(), bytes)};
  };
  add_text(kState, state_);
  std::map<std::string, std::map<std::string, std::string>> file_of;  // by group and tensor
  std::map<std::string, int64_t> group_bytes;
  for (size_t f = 0; f < plan_.size(); ++f) {
    const PlannedFile& file = plan_[f];
    auto header = static_cast<int64_t>(file.header.size());
    manifest.groups[group_of_[f]].push_back(file.name);
    ManifestFile& entry = manifest.files[file.name];
    entry.bytes = file.bytes;
    entry.hash = xxh3(file.header.data(), header);
    for (const auto& t : file.tensors) {
      entry.chunks[t.entry.name];  // also of a tensor without bytes
      file_of[group_of_[f]][t.entry.name] = file.name;
    }
    group_bytes[group_of_[f]] += file.bytes - header;
  }
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const PlannedFile& file = plan_[chunks_[i].file];
    manifest.files[file.name].chunks[file.tensors[chunks_[i].tensor].entry.name].push_back(
        static_cast<uint64_t>(hashes_[i]));
  }
  for (const auto& [group, files] : manifest.groups)
    if (files.size() > 1) add_text(group + ".safetensors.index.json", index_text(file_of[group], group_bytes[group]));
  write_text(files_, temporary(kManifest), to_text(manifest));
}

void SaveJob::put_in_place() {
  std::string parent = parent_folder(path_);
  if (target_ == Target::file || !exists(path_)) {
    files_.rename(temporary(), path_);
    return files_.sync_folder(parent);
  }
  if (!files_.exchange(temporary(), path_)) {
    files_.rename(path_, aside_);
    files_.rename(temporary(), path_);
  }
  files_.sync_folder(parent);
  files_.remove(temporary());
  files_.remove(aside_);
}

void SaveJob::commit() {
  if (target_ == Target::folder) {
    write_manifest();
    files_.sync_folder(temporary());
  }
  put_in_place();
}

void SaveJob::start(Stage stage, bool busy) {
  stage_ = stage;
  error_ = nullptr;
  over_ = !busy;
  if (!busy || !background_) return;
  const char* name = stage == &SaveJob::write ? "write" : stage == &SaveJob::hash ? "hash" : "complete";
  int64_t bytes = stage == &SaveJob::write ? bytes_ : stage == &SaveJob::hash ? torn_bytes() : 0;
  try {
    thread_ = std::thread([this, name, bytes] {
      work(name, bytes);
      over_ = true;
    });
  } catch (const std::system_error& e) {  // no more threads: the others hear of it as of any error
    error_ =
        std::make_exception_ptr(FileError(fmt::format("{} cannot be written in the background: {}", path_, e.what())));
    over_ = true;
  }
}

// That this rank is to read again.
int64_t SaveJob::torn_bytes() const {
  int64_t bytes = 0;
  for (const Chunk& c : chunks_) bytes += !c.whole && c.rank == ranks_.rank() ? c.bytes : 0;
  return bytes;
}

void SaveJob::work(const char* name, int64_t bytes) {
  int64_t began = Observer::now_ns();
  try {
    (this->*stage_)();
  } catch (const std::exception&) { error_ = std::current_exception(); }
  worked_.push_back({name, bytes, began, Observer::now_ns()});
}

bool SaveJob::stage_over(bool wait) {
  if (!background_) {
    FileSpan span("save", bytes_);
    if (!over_) work("save", bytes_);
    worked_.clear();  // the span has told of it
  } else if (!wait && !ranks_.all(over_)) {
    return false;
  } else if (thread_.joinable()) {
    thread_.join();
  }
  if (auto* observer = Observer::current())
    for (const Work& w : worked_)
      observer->finished(FileSpan(w.name, w.bytes, FileSpan::Part::background), w.began, w.ended);
  worked_.clear();
  ranks_.agree(error_);
  return true;
}

bool SaveJob::advance(bool wait) {
  while (!done_) try {
      if (!stage_over(wait)) return false;
      next();
    } catch (...) {
      give_up();
      throw;
    }
  return true;
}

void SaveJob::next() {
  bool torn = std::any_of(chunks_.begin(), chunks_.end(), [](const Chunk& c) { return !c.whole; });
  if (stage_ == &SaveJob::write) {
    pieces_.clear();
    if (torn) return start(&SaveJob::hash, true);
  }
  if (stage_ != &SaveJob::commit) {
    gather_hashes();
    return start(&SaveJob::commit, ranks_.rank() == 0);
  }
  lock_.release();
  done_ = true;
}

// A save that nobody wants any more ends soon, however much it has to write.
void SaveJob::require_wanted() const {
  if (unwanted_) throw FileError(fmt::format("{} was given up", path_));
}

void SaveJob::give_up() {
  unwanted_ = true;
  if (thread_.joinable()) thread_.join();
  open_.clear();
  if (!done_) clean();
  done_ = true;
}

// After a failure; what cannot be removed the next save removes.
void SaveJob::clean() {
  if (!made_) return;
  try {
    files_.remove(temporary());
  } catch (const FileError&) {}
  lock_.release();
}

}  // namespace cleave::nn::detail
