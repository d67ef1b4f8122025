// What the tests of checkpoints share.
#pragma once
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "apps/temporary_folder.h"
#include "nn/support.h"

namespace cleave::test {

using gpt::test::TemporaryFolder;
using nn::NamedTensors;

/// Every file of a folder by name.
inline std::map<std::string, std::string> contents(const TemporaryFolder& folder, const std::string& name) {
  std::map<std::string, std::string> out;
  for (const auto& item : std::filesystem::directory_iterator(folder.path(name)))
    out[item.path().filename()] = folder.read(name + "/" + item.path().filename().string());
  return out;
}
inline std::vector<std::string> names(const TemporaryFolder& folder, const std::string& name = "") {
  std::vector<std::string> out;
  for (const auto& item : std::filesystem::directory_iterator(folder.path(name))) out.push_back(item.path().filename());
  std::sort(out.begin(), out.end());
  return out;
}

/// The bytes of a plain or gathered tensor.
inline std::string bytes_of(const Tensor& x) {
  Tensor whole = dist::full_tensor(x.detach());
  Tensor dense = detail::dense(whole);
  return {static_cast<const char*>(detail::elements(dense).data),
          static_cast<size_t>(numel(dense.shape()) * size_of(dense.dtype()))};
}
inline std::map<std::string, std::string> bytes_of(const NamedTensors& tensors) {
  std::map<std::string, std::string> out;
  for (const auto& [name, x] : tensors) out[name] = bytes_of(x);
  return out;
}

/// A vocabulary that divides by nothing, a matrix smaller than most meshes, a tie, and a buffer.
struct Model : nn::Module<Model> {
  nn::Embedding embed{this, "embed", 13, 6};
  nn::Linear up{this, "up", 6, 15};
  nn::Linear down{this, "down", 15, 6};
  nn::Parameter small{this, "small", {3, 2}, nn::init::normal(0, 1)};
  nn::Parameter head{this, "head", embed.weight};
  nn::Buffer count{this, "count", {}, DType::i64};
  Tensor forward(const Tensor& ids) const {
    Tensor x = embed(ids);
    x = x + down(gelu(up(x)));
    return matmul(x, transpose(Tensor(head), 0, 1)) + sum(Tensor(small));
  }
};

}  // namespace cleave::test
