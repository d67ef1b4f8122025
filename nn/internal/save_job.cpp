#include <cleave/core/error.h>
#include <cleave/core/observer.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/mesh_state.h>
#include <cleave/nn/internal/boxes.h>
#include <cleave/nn/internal/save_job.h>
#include <cleave/nn/observer.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

bool good_group(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
}

std::string beside(const std::string& path, const char* suffix) {
  return fmt::format("{}/.{}.{}", parent_folder(path), last_name(path), suffix);
}

// A folder that may be replaced: one of ours, or an empty one.
void require_replaceable(const std::string& path, SaveJob::Target target) {
  if (!exists(path)) return;
  bool folder = std::filesystem::is_directory(path);
  if (target == SaveJob::Target::file && folder)
    throw FileError(fmt::format("{} cannot be written: it is a folder", path));
  if (target == SaveJob::Target::file) return;
  if (!folder) throw FileError(fmt::format("{} cannot be written: it is a file, and a checkpoint is a folder", path));
  if (!std::filesystem::is_empty(path) && !exists(path + "/" + kManifest))
    throw FileError(fmt::format("{} cannot be written: it is a folder of other things, without a {}", path, kManifest));
}

}  // namespace

SaveJob::SaveJob(std::string path, const CheckpointContent& content, const SaveOptions& options, Target target,
                 bool background)
    : files_(options.files ? *options.files : FileOperations::system()),
      path_(std::move(path)),
      aside_(beside(path_, "old")),
      target_(target),
      background_(background),
      began_(Observer::now_ns()) {
  FileSpan span("save", 0);
  ranks_.run([&] { plan(content, options); });
  require_same();
  for (auto& file : plan_)
    for (auto& t : file.tensors) t.tensor = writable(t.tensor);
  ranks_.run([&] { take_pieces(); });
  try {
    ranks_.run([&] {
      if (ranks_.rank() == 0) prepare();
    });
  } catch (...) {
    open_.clear();
    clean();
    throw;
  }
  start(&SaveJob::write);
}

SaveJob::~SaveJob() {
  if (thread_.joinable()) thread_.join();
  open_.clear();
  if (!done_) clean();
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
  std::string all = state_;
  for (const auto& file : plan_) all += file.name + file.header;
  auto ranks = static_cast<size_t>(ranks_.size());
  auto mine = static_cast<int64_t>(xxh3(all.data(), static_cast<int64_t>(all.size())));
  std::vector<int64_t> hashes = ranks_.gather({mine}, std::vector<int64_t>(ranks, 1));
  for (size_t r = 1; r < ranks; ++r)
    if (hashes[r] != hashes[0])
      throw ValueError(
          fmt::format("[checkpoint] rank {} saves other names, types or values than rank 0; state of one "
                      "rank alone has no place in a checkpoint",
                      r));
}

void SaveJob::take_pieces() {
  Owners owners(ranks_.rank(), ranks_.size());
  for (size_t f = 0; f < plan_.size(); ++f)
    for (auto& t : plan_[f].tensors) {
      TensorType type = t.tensor.type();
      for (const dist::Box& box : owners.assign(writable_type(type))) {
        Tensor block = t.tensor.local();
        Tensor dense = background_ ? cleave::detail::dense_copy(block, type.dtype) : cleave::detail::dense(block);
        pieces_.push_back({f, type.shape, box, t.entry.offset, dense});
        bytes_ += numel(box.shape) * size_of(type.dtype);
      }
      t.tensor = Tensor();
    }
}

void SaveJob::prepare() {
  require_replaceable(path_, target_);
  if (exists(aside_) && !exists(path_)) files_.rename(aside_, path_);  // where a save has died between two renames
  files_.remove(aside_);
  files_.remove(temporary());
  if (target_ == Target::folder) files_.make_folder(temporary());
  for (const auto& file : plan_) {
    open_.emplace_back(files_, temporary(file.name), file.bytes);
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
             [&](int64_t to, int64_t from, int64_t bytes) { files[p.file].write(data + from, bytes, p.offset + to); });
  }
  for (size_t f = 0; f < files.size(); ++f)
    if (used[f]) files[f].sync();
}

std::vector<SaveJob::Chunk> SaveJob::chunks() const {
  std::vector<Chunk> out;
  for (size_t f = 0; f < plan_.size(); ++f)
    for (size_t t = 0; t < plan_[f].tensors.size(); ++t) {
      const SafetensorsEntry& e = plan_[f].tensors[t].entry;
      for (int64_t at = 0; at < e.bytes; at += kChunkBytes)
        out.push_back({f, t, e.offset + at, std::min(kChunkBytes, e.bytes - at)});
    }
  return out;
}

// From the files, where each chunk is whole: in memory its parts may lie on several ranks.
void SaveJob::hash() {
  std::vector<Chunk> all = chunks();
  auto mine = dist::balanced_block(static_cast<int64_t>(all.size()), ranks_.size(), ranks_.rank());
  std::vector<char> buffer(static_cast<size_t>(kChunkBytes));
  OutputFile file;
  for (int64_t i = mine.offset; i < mine.offset + mine.size; ++i) {
    const Chunk& c = all[static_cast<size_t>(i)];
    std::string path = temporary(plan_[c.file].name);
    if (file.path() != path) file = OutputFile(files_, path);
    file.read(buffer.data(), c.bytes, c.offset);
    hashes_.push_back(static_cast<int64_t>(xxh3(buffer.data(), c.bytes)));
  }
}

void SaveJob::gather_hashes() {
  auto all = static_cast<int64_t>(chunks().size());
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks_.size(); ++r) counts.push_back(dist::balanced_block(all, ranks_.size(), r).size);
  hashes_ = ranks_.gather(hashes_, counts);
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
  std::vector<Chunk> all = chunks();
  for (size_t i = 0; i < all.size(); ++i) {
    const PlannedFile& file = plan_[all[i].file];
    manifest.files[file.name].chunks[file.tensors[all[i].tensor].entry.name].push_back(
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

void SaveJob::start(void (SaveJob::*stage)()) {
  stage_ = stage;
  error_ = nullptr;
  over_ = false;
  if (background_)
    thread_ = std::thread([this] {
      work();
      over_ = true;
    });
}

void SaveJob::work() {
  try {
    (this->*stage_)();
  } catch (const std::exception&) { error_ = std::current_exception(); }
}

bool SaveJob::stage_over(bool wait) {
  if (!background_) {
    FileSpan span("save", bytes_);
    work();
  } else if (!wait && !ranks_.all(over_)) {
    return false;
  } else {
    thread_.join();
  }
  ranks_.agree(error_);
  return true;
}

bool SaveJob::advance(bool wait) {
  while (!done_) try {
      if (!stage_over(wait)) return false;
      if (stage_ == &SaveJob::write && target_ == Target::folder)
        start(&SaveJob::hash);
      else
        finish();
    } catch (...) {
      if (thread_.joinable()) thread_.join();
      done_ = true;
      clean();
      throw;
    }
  return true;
}

void SaveJob::finish() {
  pieces_.clear();
  if (target_ == Target::folder) gather_hashes();
  ranks_.run([&] {
    if (ranks_.rank() == 0) commit();
  });
  done_ = true;
  if (auto* observer = Observer::current(); observer && background_)
    observer->finished(FileSpan("save", bytes_, FileSpan::Part::background), began_, Observer::now_ns());
}

// After a failure; what cannot be removed the next save removes.
void SaveJob::clean() {
  if (ranks_.rank() != 0) return;
  try {
    files_.remove(temporary());
  } catch (const FileError&) {}
}

}  // namespace cleave::nn::detail
