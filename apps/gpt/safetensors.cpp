#include "gpt/safetensors.h"

#include <cleave/core/error.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/view.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace gpt {

using cleave::DType;
using cleave::FileError;
using cleave::Shape;
using cleave::ShapeError;
using cleave::Tensor;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::array<const char*, cleave::kDTypes> kNames = {"F64", "F32", "BF16", "F16", "I64", "I32", "U8", "BOOL"};
constexpr uint64_t kLargestHeader = uint64_t{100} << 20;  // the limit of the format's reference reader

int64_t bytes_of(const TensorEntry& e) { return cleave::numel(e.shape) * cleave::size_of(e.dtype); }

std::string header_of(const std::vector<TensorEntry>& entries, const Metadata& metadata) {
  Json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& e : entries) {
    std::vector<int64_t> shape(e.shape.begin(), e.shape.end());
    header[e.name] = {{"dtype", kNames[static_cast<size_t>(e.dtype)]},
                      {"shape", shape},
                      {"data_offsets", {offset, offset + bytes_of(e)}}};
    offset += bytes_of(e);
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  return text;
}

/// One file being read, and the errors about it.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), in_(path, std::ios::binary) {
    std::error_code error;
    if (!in_ || !std::filesystem::is_regular_file(path, error)) fail("it cannot be read");
    size_ = std::filesystem::file_size(path);
  }

  SafetensorsFile read() {
    uint64_t length = 0;
    if (size_ < 8) fail(fmt::format("it has {} bytes and should begin with 8 that give the header's length", size_));
    take(&length, 8);
    if (length > kLargestHeader || length > size_ - 8)
      fail(fmt::format("its header should have {} bytes, but the file has {}", length, size_));
    std::string text(length, 0);
    take(text.data(), length);
    data_ = 8 + length;
    try {
      return parse(Json::parse(text));
    } catch (const nlohmann::json::exception& e) { fail(fmt::format("its header is malformed: {}", e.what())); }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{} is no complete safetensors file: {}", path_, what));
  }
  void take(void* to, uint64_t bytes) {
    in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (static_cast<uint64_t>(in_.gcount()) != bytes) fail("it ends too early");
  }

  SafetensorsFile parse(const Json& header) {
    SafetensorsFile file;
    if (!header.is_object()) fail("its header is no JSON object");
    uint64_t end = 0;
    for (const auto& [name, item] : header.items()) {
      if (name == "__metadata__")
        file.metadata = item.get<Metadata>();
      else
        file.tensors.emplace(name, tensor(name, item, end));
    }
    if (data_ + end != size_)
      fail(fmt::format("its tensors have {} bytes, but {} follow the header", end, size_ - data_));
    return file;
  }

  Tensor tensor(const std::string& name, const Json& item, uint64_t& end) {
    TensorEntry entry{name, dtype(name, item.at("dtype").get<std::string>()), shape(name, item.at("shape"))};
    auto offsets = item.at("data_offsets").get<std::array<uint64_t, 2>>();
    auto bytes = static_cast<uint64_t>(bytes_of(entry));
    if (offsets[0] > offsets[1] || offsets[1] > size_ - data_ || offsets[1] - offsets[0] != bytes)
      fail(fmt::format("{} needs {} bytes, but lies at {} to {} of {}", name, bytes, offsets[0], offsets[1],
                       size_ - data_));
    Tensor out = cleave::empty(entry.shape, {.dtype = entry.dtype});
    in_.seekg(static_cast<std::streamoff>(data_ + offsets[0]));
    cleave::visit_dtype(entry.dtype, [&](auto element) { take(out.data<decltype(element)>(), bytes); });
    end = std::max(end, offsets[1]);
    return out;
  }
  DType dtype(const std::string& name, const std::string& text) const {
    for (size_t i = 0; i < kNames.size(); ++i)
      if (text == kNames[i]) return static_cast<DType>(i);
    fail(fmt::format("{} has the dtype '{}', which cleave lacks", name, text));
  }
  Shape shape(const std::string& name, const Json& item) const {
    auto sizes = item.get<std::vector<int64_t>>();
    if (sizes.size() > static_cast<size_t>(cleave::kMaxDims)) fail(fmt::format("{} has {} dims", name, sizes.size()));
    auto room = static_cast<int64_t>(size_);
    for (int64_t n : sizes) {
      if (n < 0 || n > room) fail(fmt::format("{} has the size {}", name, n));
      room = n > 0 ? room / n : room;
    }
    return Shape(sizes);
  }

  std::string path_;
  std::ifstream in_;
  uint64_t size_ = 0, data_ = 0;
};

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorEntry>& entries,
                                     const Metadata& metadata)
    : path_(path), temporary_(fmt::format("{}.{}.tmp", path, getpid())), entries_(entries) {
  std::string header = header_of(entries, metadata);
  uint64_t length = header.size();
  file_.open(temporary_, std::ios::binary);
  file_.write(reinterpret_cast<const char*>(&length), 8);
  file_ << header;
  if (!file_) throw FileError(fmt::format("{} cannot be written", path_));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (temporary_.empty()) return;
  file_.close();
  std::remove(temporary_.c_str());
}

void SafetensorsWriter::write(const Tensor& tensor) {
  if (written_ == entries_.size()) throw ShapeError(fmt::format("{} has only {} tensors", path_, entries_.size()));
  const TensorEntry& e = entries_[written_++];
  if (tensor.is_distributed() || tensor.dtype() != e.dtype || !(tensor.shape() == e.shape))
    throw ShapeError(fmt::format("{} was announced to {} as {}{}, but is {}", e.name, path_, to_string(e.dtype),
                                 to_string(e.shape), to_string(tensor.type())));
  Tensor dense = cleave::contiguous(tensor);
  const void* data = cleave::visit_dtype(e.dtype, [&](auto x) -> const void* { return dense.data<decltype(x)>(); });
  file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes_of(e)));
  if (!file_) throw FileError(fmt::format("{} cannot be written; is the disk full?", path_));
}

void SafetensorsWriter::commit() {
  if (written_ != entries_.size())
    throw ShapeError(fmt::format("{} has {} of {} tensors", path_, written_, entries_.size()));
  file_.close();
  if (!file_ || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw FileError(fmt::format("{} cannot be written; is the disk full?", path_));
  temporary_.clear();
}

SafetensorsFile read_safetensors(const std::string& path) { return Reader(path).read(); }

}  // namespace gpt
