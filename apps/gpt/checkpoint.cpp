#include "gpt/checkpoint.h"

#include <cleave/autograd/redistribute.h>
#include <cleave/core/error.h>
#include <cleave/nn/build.h>

#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "gpt/safetensors.h"

namespace gpt {

using cleave::FileError;

namespace {
constexpr const char* kConfigKey = "gpt";
}

void require_writable(const std::string& path) {
  std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (std::filesystem::is_directory(path) || access(folder.c_str(), W_OK) != 0)
    throw FileError(fmt::format("--save: {} cannot be written", path));
}

void save_model(const cleave::dist::World& world, const Gpt& model, const std::string& path) {
  auto parameters = model.named_parameters();
  std::optional<SafetensorsWriter> file;
  if (world.rank() == 0) {
    std::vector<TensorEntry> entries;
    for (const auto& [name, p] : parameters) entries.push_back({name, p.dtype(), p.shape()});
    file.emplace(path, entries, Metadata{{kConfigKey, to_json(model.config)}});
  }
  for (const auto& [name, p] : parameters) {
    Tensor whole = cleave::dist::full_tensor(p.tensor().detach());
    if (file) file->write(whole);
  }
  if (file) file->commit();
}

std::unique_ptr<Gpt> load_model(const std::string& path) {
  SafetensorsFile file = read_safetensors(path);
  auto found = file.metadata.find(kConfigKey);
  if (found == file.metadata.end() || file.tensors.empty())
    throw FileError(fmt::format("{} holds no model of gpt train --save: it lacks a description of the model", path));
  Config config = parse_config(found->second);
  cleave::DType dtype = file.tensors.begin()->second.dtype();
  if (!cleave::is_floating(dtype)) throw FileError(fmt::format("{} has weights of dtype {}", path, to_string(dtype)));
  std::unique_ptr<Gpt> model(new Gpt(nn::build<Gpt>({.dtype = dtype, .deferred = true}, config)));
  auto parameters = model->named_parameters();
  if (parameters.size() != file.tensors.size())
    throw FileError(fmt::format("{} has {} tensors, but its model has {} parameters", path, file.tensors.size(),
                                parameters.size()));
  for (const auto& [name, p] : parameters) {
    auto tensor = file.tensors.find(name);
    if (tensor == file.tensors.end()) throw FileError(fmt::format("{} lacks the parameter {}", path, name));
    if (!(tensor->second.shape() == p.shape()) || tensor->second.dtype() != dtype)
      throw FileError(fmt::format("{}: {} is {}, but its model needs {}{}", path, name,
                                  to_string(tensor->second.type()), to_string(dtype), to_string(p.shape())));
  }
  nn::materialize(*model);
  for (const auto& [name, p] : parameters) p.assign(file.tensors.at(name));
  return model;
}

}  // namespace gpt
