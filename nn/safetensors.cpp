#include <cleave/core/error.h>
#include <cleave/core/parallel.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/nn/data/internal/mapped_file.h>
#include <cleave/nn/internal/boxes.h>
#include <cleave/nn/internal/safetensors_header.h>
#include <cleave/nn/safetensors.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace cleave::nn {

namespace {

constexpr int64_t kCopiedAtOnce = int64_t{1} << 20;  // bytes that are worth another thread

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{} is no complete safetensors file: {}", path, what));
}

void require_inside(const std::string& path, const SafetensorsEntry& entry, const dist::Box& box) {
  bool inside = box.shape.rank() == entry.shape.rank() && box.offset.rank() == entry.shape.rank();
  for (int d = 0; inside && d < entry.shape.rank(); ++d)
    inside = box.offset[d] >= 0 && box.shape[d] >= 0 && box.offset[d] <= entry.shape[d] - box.shape[d];
  if (!inside)
    throw ShapeError(fmt::format("{} of {} is {} and has no block of {} at {}", entry.name, path,
                                 to_string(entry.shape), to_string(box.shape), to_string(box.offset)));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  try {
    file_ = std::make_unique<detail::MappedFile>(path);
  } catch (const FileError& e) { fail(path, e.what()); }
  auto size = static_cast<uint64_t>(file_->size());
  uint64_t length = 0;
  if (size < 8) fail(path, fmt::format("it has {} bytes and should begin with 8 that give the header's length", size));
  std::memcpy(&length, file_->data(), 8);
  if (length > detail::kLargestHeader || length > size - 8)
    fail(path, fmt::format("its header should have {} bytes, but the file has {} and a header at most {}", length, size,
                           detail::kLargestHeader));
  header_bytes_ = static_cast<int64_t>(8 + length);
  std::string_view text(reinterpret_cast<const char*>(file_->data()) + 8, length);
  auto header = detail::parse_header(text, file_->size() - header_bytes_, path);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].offset += header_bytes_;
    index_.emplace(entries_[i].name, i);
  }
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

int64_t SafetensorsFile::file_bytes() const { return file_->size(); }

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  auto at = index_.find(name);
  return at == index_.end() ? nullptr : &entries_[at->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return {reinterpret_cast<const std::byte*>(file_->data()) + entry.offset, static_cast<size_t>(entry.bytes)};
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (!entry) throw FileError(fmt::format("{} lacks the tensor {}", path_, name));
  return read(*entry, {Shape(entry->shape.rank(), 0), entry->shape});
}

Tensor SafetensorsFile::read(const SafetensorsEntry& entry, const dist::Box& box) const {
  require_inside(path_, entry, box);
  Tensor out = cleave::detail::make_tensor(box.shape, entry.dtype, Device::Cpu);
  read(entry, box, cleave::detail::elements(out).data);
  return out;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, const dist::Box& box, void* memory) const {
  require_inside(path_, entry, box);
  auto* to = static_cast<std::byte*>(memory);
  const std::byte* from = bytes(entry).data();
  int64_t element = size_of(entry.dtype);
  parallel_for(numel(box.shape) * element, kCopiedAtOnce, [&](int64_t begin, int64_t end) {
    detail::each_run(entry.shape, box, element, begin, end, [&](int64_t source, int64_t target, int64_t bytes) {
      std::memcpy(to + target, from + source, static_cast<size_t>(bytes));
    });
  });
  if (entry.dtype == DType::boolean) {
    auto bad = std::find_if(to, to + numel(box.shape), [](std::byte b) { return b > std::byte{1}; });
    if (bad != to + numel(box.shape))
      throw FileError(fmt::format("{}: {} is BOOL, but has the byte {}", path_, entry.name, static_cast<int>(*bad)));
  }
}

}  // namespace cleave::nn
