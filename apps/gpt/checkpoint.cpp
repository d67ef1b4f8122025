#include "gpt/checkpoint.h"

#include <cleave/core/error.h>
#include <cleave/nn/build.h>
#include <cleave/nn/checkpoint_series.h>

#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

namespace gpt {

using cleave::FileError;
namespace nn = cleave::nn;
namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigKey = "gpt";

bool wants_folder(const std::string& path) { return path.ends_with('/') || fs::is_directory(path); }

// A folder of checkpoints stands for the newest.
std::string newest(const std::string& path) {
  if (!fs::is_directory(path) || !fs::exists(path + "/latest")) return path;
  nn::FoundCheckpoint found = nn::find_latest(path);
  return found.folder.empty() ? path : found.folder;
}

}  // namespace

void require_writable(const std::string& path) {
  fs::path parent = fs::absolute(path.ends_with('/') ? path.substr(0, path.size() - 1) : path).parent_path();
  bool ours = !fs::is_directory(path) || fs::is_empty(path) || fs::exists(path + "/manifest.json");
  if (!ours || access(parent.c_str(), W_OK) != 0) throw FileError(fmt::format("--save: {} cannot be written", path));
}

nn::CheckpointGroup model_group(const Gpt& model) {
  return {.name = "model",
          .tensors = nn::named_tensors(model),
          .metadata = {{kConfigKey, to_json(model.config)}, {"format", "pt"}}};  // some readers ask for a format
}

Config config_of(const nn::Checkpoint& file) {
  const nn::Metadata& metadata = file.metadata("model");
  auto found = metadata.find(kConfigKey);
  if (found == metadata.end())
    throw FileError(fmt::format("{} holds no model of gpt train: it lacks a description of the model", file.path()));
  return parse_config(found->second);
}

void save_model(const Gpt& model, const std::string& path, int64_t max_file_bytes) {
  nn::CheckpointGroup group = model_group(model);
  if (wants_folder(path))
    nn::save_checkpoint(path, {.groups = {group}}, {.max_file_bytes = max_file_bytes});
  else
    nn::save_safetensors(path, group.tensors, group.metadata);
}

std::unique_ptr<Gpt> load_model(const std::string& path) {
  nn::Checkpoint file(newest(path));
  auto tensors = file.tensors("model");
  Config config = config_of(file);
  if (tensors.empty()) throw FileError(fmt::format("{} holds no tensors", path));
  cleave::DType dtype = tensors.front().second.dtype;
  if (!cleave::is_floating(dtype)) throw FileError(fmt::format("{} has weights of dtype {}", path, to_string(dtype)));
  std::unique_ptr<Gpt> model(new Gpt(nn::build<Gpt>({.dtype = dtype, .deferred = true}, config)));
  nn::materialize(*model);
  file.load(*model);
  return model;
}

}  // namespace gpt
