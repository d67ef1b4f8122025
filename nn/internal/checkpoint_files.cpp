#include <cleave/core/error.h>
#include <cleave/core/parallel.h>
#include <cleave/nn/internal/boxes.h>
#include <cleave/nn/internal/checkpoint_files.h>
#include <cleave/nn/internal/file_operations.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

void add_tensor(StoredGroup& group, const std::string& name, StoredTensor tensor, const std::string& path) {
  if (!group.tensors.emplace(name, tensor).second)
    throw FileError(fmt::format("{} has the tensor {} in two files", path, name));
}

size_t add_file(CheckpointFiles& out, StoredGroup& group, const std::string& path) {
  out.files.emplace_back(path);
  for (const auto& [name, text] : out.files.back().metadata()) group.metadata.emplace(name, text);
  return out.files.size() - 1;
}

void add_all(CheckpointFiles& out, StoredGroup& group, const std::string& path) {
  size_t file = add_file(out, group, path);
  for (const auto& e : out.files[file].entries()) add_tensor(group, e.name, {file, &e}, path);
}

// A text file that the manifest vouches for.
std::string verified_text(const CheckpointFiles& in, const std::string& name) {
  std::string path = in.path + "/" + name;
  auto entry = in.manifest->files.find(name);
  if (entry == in.manifest->files.end()) throw FileError(fmt::format("{} is not in the manifest", path));
  std::string text = read_text(path);
  auto bytes = static_cast<int64_t>(text.size());
  if (bytes != entry->second.bytes)
    throw FileError(fmt::format("{} has {} bytes, but {} were written", path, bytes, entry->second.bytes));
  if (xxh3(text.data(), bytes) != entry->second.hash)
    throw FileError(fmt::format("{} is damaged: its hash is not the manifest's", path));
  return text;
}

void require_file(const SafetensorsFile& file, const ManifestFile& expected, int64_t chunk_bytes) {
  if (file.file_bytes() != expected.bytes)
    throw FileError(
        fmt::format("{} has {} bytes, but {} were written", file.path(), file.file_bytes(), expected.bytes));
  const auto* begin = file.entries().empty() ? nullptr : file.bytes(file.entries().front()).data();
  if (begin && xxh3(begin - file.header_bytes(), file.header_bytes()) != expected.hash)
    throw FileError(fmt::format("{} is damaged: the hash of its header is not the manifest's", file.path()));
  for (const auto& e : file.entries()) {
    auto chunks = expected.chunks.find(e.name);
    int64_t needed = chunks_of(e.bytes, chunk_bytes);
    if (chunks == expected.chunks.end() || static_cast<int64_t>(chunks->second.size()) != needed)
      throw FileError(fmt::format("{}: the manifest lacks the {} hashes of {}", file.path(), needed, e.name));
  }
  if (file.entries().size() != expected.chunks.size())
    throw FileError(fmt::format("{} has {} tensors, but {} were written", file.path(), file.entries().size(),
                                expected.chunks.size()));
}

void open_ours(CheckpointFiles& out) {
  std::string text = read_text(out.path + "/" + kManifest);
  out.manifest = read_manifest(text, out.path + "/" + kManifest);
  out.identity = xxh3(text.data(), static_cast<int64_t>(text.size()));
  out.values = read_values(verified_text(out, kState), out.path + "/" + kState);
  for (const auto& [group, names] : out.manifest->groups)
    for (const auto& name : names) {
      add_all(out, out.groups[group], out.path + "/" + name);
      require_file(out.files.back(), out.manifest->files.at(name), out.manifest->chunk_bytes);
    }
}

// Hugging Face's index: it says in which file each tensor lies.
void open_index(CheckpointFiles& out, const std::string& index) {
  auto file_of = read_index(read_text(index), index);
  StoredGroup& group = out.groups["model"];
  std::map<std::string, size_t> opened;
  for (const auto& [tensor, name] : file_of)
    if (!opened.contains(name)) opened[name] = add_file(out, group, parent_folder(index) + "/" + name);
  for (const auto& [tensor, name] : file_of) {
    const SafetensorsFile& file = out.files[opened[name]];
    const auto* entry = file.find(tensor);
    if (!entry)
      throw FileError(fmt::format("{} lacks the tensor {}, which {} places there", file.path(), tensor, index));
    add_tensor(group, tensor, {opened[name], entry}, index);
  }
}

std::string only_file(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(folder, error); !error && at != std::filesystem::end(at);
       at.increment(error))
    if (at->path().extension() == ".safetensors") found.push_back(at->path().string());
  if (error) throw FileError(fmt::format("{} cannot be read: {}", folder, error.message()));
  if (found.size() == 1) return found.front();
  throw FileError(
      fmt::format("{} is no checkpoint: it has no {}, no model.safetensors, no index, and {} other "
                  "safetensors files",
                  folder, kManifest, found.size()));
}

uint64_t hash_of_headers(const std::vector<SafetensorsFile>& files) {
  std::string all;
  for (const SafetensorsFile& file : files)
    for (const SafetensorsEntry& e : file.entries())
      all += fmt::format("{} {} {} {}\n", e.name, to_string(e.dtype), to_string(e.shape), e.offset);
  return xxh3(all.data(), static_cast<int64_t>(all.size()));
}

std::string strip_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

void open_files(CheckpointFiles& out, const std::string& path) {
  out.path = strip_slashes(path);
  const std::string index = "/model.safetensors.index.json";
  std::error_code error;
  if (out.path.empty()) throw FileError("[checkpoint] the path is empty; find_latest gives that where it finds none");
  if (!std::filesystem::exists(out.path, error))
    throw FileError(fmt::format("{} {}", out.path, error ? "cannot be read: " + error.message() : "does not exist"));
  if (!std::filesystem::is_directory(out.path, error)) {
    if (out.path.ends_with(".json"))
      open_index(out, out.path);
    else
      add_all(out, out.groups["model"], out.path);
  } else if (exists(out.path + "/" + kManifest)) {
    open_ours(out);
  } else if (exists(out.path + index)) {
    open_index(out, out.path + index);
  } else {
    std::string file = out.path + "/model.safetensors";
    add_all(out, out.groups["model"], exists(file) ? file : only_file(out.path));
  }
  out.verified.resize(out.files.size());
  if (!out.manifest) out.identity = hash_of_headers(out.files);
}

// A folder of this name on a disk of its own may be another one there.
void require_one(const CheckpointFiles& files) {
  auto ranks = static_cast<size_t>(files.ranks.size());
  std::vector<int64_t> all = files.ranks.gather({static_cast<int64_t>(files.identity)}, std::vector<int64_t>(ranks, 1));
  for (size_t r = 1; r < ranks; ++r)
    if (all[r] != all[0])
      throw FileError(
          fmt::format("{} is not the same on rank {} as on rank 0; let all ranks read the same files", files.path, r));
}

void require_complete(const std::string& folder) {
  if (!exists(folder)) throw FileError(fmt::format("{} does not exist", folder));
  if (!exists(folder + "/" + kManifest)) throw FileError(fmt::format("{} has no {}", folder, kManifest));
  CheckpointFiles files;
  open_files(files, folder);
}

const StoredGroup& CheckpointFiles::group(const std::string& name) const {
  auto at = groups.find(name);
  if (at != groups.end()) return at->second;
  std::string known;
  for (const auto& [group, tensors] : groups) known += (known.empty() ? "" : ", ") + group;
  throw FileError(fmt::format("{} has no group {}; it has {}", path, name, known));
}

int64_t CheckpointFiles::chunks_of(const StoredTensor& tensor) const {
  return manifest ? detail::chunks_of(tensor.entry->bytes, manifest->chunk_bytes) : 0;
}

void CheckpointFiles::list_chunks(const StoredTensor& tensor, const dist::Box& box,
                                  std::vector<StoredChunk>& out) const {
  if (!manifest) return;
  const auto& done = verified[tensor.file];
  auto known = done.find(tensor.entry->name);
  int64_t next = 0;  // runs come in order: what lies before was looked at
  each_run(tensor.entry->shape, box, size_of(tensor.entry->dtype), [&](int64_t at, int64_t, int64_t bytes) {
    int64_t last = (at + bytes - 1) / manifest->chunk_bytes;
    for (next = std::max(next, at / manifest->chunk_bytes); next <= last; ++next)
      if (known == done.end() || !known->second[static_cast<size_t>(next)]) out.push_back({&tensor, next});
  });
}

void CheckpointFiles::verify(const std::vector<StoredChunk>& chunks) {
  auto begin_of = [&](const StoredChunk& c) { return c.number * manifest->chunk_bytes; };
  auto bytes_of = [&](const StoredChunk& c) {
    return std::min(manifest->chunk_bytes, c.tensor->entry->bytes - begin_of(c));
  };
  auto count = static_cast<int64_t>(chunks.size());
  std::vector<uint64_t> hashes(chunks.size());
  parallel_for(count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const StoredChunk& c = chunks[static_cast<size_t>(i)];
      const std::byte* data = files[c.tensor->file].bytes(*c.tensor->entry).data();
      hashes[static_cast<size_t>(i)] = xxh3(data + begin_of(c), bytes_of(c));
    }
  });
  for (size_t i = 0; i < chunks.size(); ++i) {
    const StoredChunk& c = chunks[i];
    const std::string &path = files[c.tensor->file].path(), &name = c.tensor->entry->name;
    const auto& expected = manifest->files.at(last_name(path)).chunks.at(name);
    if (hashes[i] != expected[static_cast<size_t>(c.number)])
      throw FileError(fmt::format("{} is damaged: {} is not what was written, in its bytes {} to {}", path, name,
                                  begin_of(c), begin_of(c) + bytes_of(c)));
    auto& done = verified[c.tensor->file][name];
    done.resize(expected.size());
    done[static_cast<size_t>(c.number)] = true;
  }
}

}  // namespace cleave::nn::detail
