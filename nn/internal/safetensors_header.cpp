#include <cleave/core/error.h>
#include <cleave/nn/internal/safetensors_header.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace cleave::nn::detail {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, kDTypes> kNames = {"F64", "F32", "BF16", "F16", "I64", "I32", "U8", "BOOL"};
// The reference writer puts larger alignments first; among equals, in the order of its own list of dtypes.
constexpr std::array<int, kDTypes> kPlaces = {1, 2, 4, 5, 0, 3, 6, 7};

std::optional<DType> dtype_of(const std::string& text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i]) return static_cast<DType>(i);
  return std::nullopt;
}

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw FileError(fmt::format("{} is no complete safetensors file: {}", path, what));
}

/// Takes the header's JSON event by event: nothing is built that the format does not have, so neither depth nor number
/// of values costs more than the text, and a name that stands twice is seen.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a bool"); }
  bool number_integer(number_integer_t value) override { unexpected(fmt::format("the number {}", value)); }
  bool number_float(number_float_t, const string_t& text) override { unexpected("the number " + text); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!list_) unexpected(fmt::format("the number {}", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(path_, fmt::format("{} has the {} {}", name_, key_, value));
    if (list_->size() == (key_ == "shape" ? size_t{kMaxDims} : 2))
      fail(path_, fmt::format("{} has a {} of more than {} numbers", name_, key_, list_->size()));
    list_->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata[key_] = value;
    } else if (depth_ == 2 && key_ == "dtype" && !list_) {
      auto dtype = dtype_of(value);
      if (!dtype) fail(path_, fmt::format("{} has the dtype '{}', which cleave lacks", name_, value));
      entry_.dtype = *dtype;
    } else {
      unexpected("a text");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ == 2 || list_) unexpected("an object");
    ++depth_;
    keys_.clear();
    if (depth_ == 2 && !in_metadata_) entry_ = {.name = name_};
    return true;
  }

  bool key(string_t& value) override {
    if (depth_ == 1) {
      name_ = value;
      in_metadata_ = value == "__metadata__";
      if (!names_.insert(value).second) fail(path_, fmt::format("the name {} stands twice", value));
      return true;
    }
    key_ = value;
    if (!keys_.insert(value).second) fail(path_, fmt::format("{} of {} stands twice", value, name_));
    if (!in_metadata_ && value != "dtype" && value != "shape" && value != "data_offsets")
      fail(path_, fmt::format("{} has a member {}, which the format lacks", name_, value));
    return true;
  }

  bool end_object() override {
    if (--depth_ == 0 || in_metadata_) {
      in_metadata_ = false;
      return true;
    }
    for (const char* needed : {"dtype", "shape", "data_offsets"})
      if (!keys_.contains(needed)) fail(path_, fmt::format("{} lacks its {}", name_, needed));
    if (offsets_.size() != 2) fail(path_, fmt::format("{} has {} data_offsets, not 2", name_, offsets_.size()));
    entry_.shape = Shape(shape_);
    entry_.offset = offsets_[0];
    entry_.bytes = offsets_[1] - offsets_[0];
    header_.entries.push_back(std::move(entry_));
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || list_ || key_ == "dtype") unexpected("a list");
    list_ = key_ == "shape" ? &shape_ : &offsets_;
    list_->clear();
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    fail(path_, fmt::format("its header is malformed: {}", e.what()));
  }

 private:
  [[noreturn]] void unexpected(const std::string& what) const {
    if (depth_ == 0) fail(path_, fmt::format("its header is no JSON object, but {}", what));
    if (depth_ == 1) fail(path_, fmt::format("its header is malformed: {} is {}", name_, what));
    fail(path_, fmt::format("its header is malformed: {} of {} is {}", key_, name_, what));
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_, key_;
  std::set<std::string> names_, keys_;
  SafetensorsEntry entry_;
  std::vector<int64_t> shape_, offsets_;
  std::vector<int64_t>* list_ = nullptr;
};

// A size that no file of this length could hold is an error before sizes are multiplied.
void check_size(const SafetensorsEntry& e, int64_t data_bytes, const std::string& path) {
  auto range = [&] { return fmt::format("lies at {} to {} of {}", e.offset, e.offset + e.bytes, data_bytes); };
  if (e.bytes < 0 || e.offset > data_bytes || e.bytes > data_bytes - e.offset)
    fail(path, fmt::format("{} {}", e.name, range()));
  bool empty = std::find(e.shape.begin(), e.shape.end(), 0) != e.shape.end();
  int64_t count = 1;
  for (int64_t n : e.shape) {
    if (n > std::numeric_limits<int64_t>::max() / 8 / std::max<int64_t>(count, 1))
      fail(path, fmt::format("{} has the shape {}, which has too many elements", e.name, to_string(e.shape)));
    if (n > 0) count *= n;
  }
  if (int64_t bytes = empty ? 0 : count * size_of(e.dtype); bytes != e.bytes)
    fail(path, fmt::format("{} is {}{} and needs {} bytes, but {}", e.name, to_string(e.dtype), to_string(e.shape),
                           bytes, range()));
}

}  // namespace

SafetensorsHeader parse_header(std::string_view text, int64_t data_bytes, const std::string& path) {
  if (text.empty() || text.front() != '{') fail(path, "its header is no JSON object");
  SafetensorsHeader header;
  HeaderReader reader(path, header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  for (const auto& e : header.entries) check_size(e, data_bytes, path);
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  int64_t end = 0;
  for (const auto& e : header.entries) {
    if (e.offset < end) fail(path, fmt::format("{} at {} overlaps the tensor before it", e.name, e.offset));
    if (e.offset > end) fail(path, fmt::format("no tensor covers the bytes {} to {}", end, e.offset));
    end = e.offset + e.bytes;
  }
  if (end != data_bytes)
    fail(path, fmt::format("its tensors have {} bytes, but {} follow the header", end, data_bytes));
  return header;
}

namespace {

std::string header_json(std::vector<SafetensorsEntry>& entries, const Metadata& metadata) {
  auto place = [](const SafetensorsEntry& e) { return kPlaces[static_cast<size_t>(e.dtype)]; };
  std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
    return std::pair<int, const std::string&>(place(a), a.name) < std::pair<int, const std::string&>(place(b), b.name);
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  std::string text = header.dump();
  text.pop_back();  // entries are appended as text: an ordered object looks through all its names for each new one
  for (auto& e : entries) {
    e.bytes = numel(e.shape) * size_of(e.dtype);
    e.offset = offset;
    offset += e.bytes;
    Json item = {{"dtype", kNames[static_cast<size_t>(e.dtype)]},
                 {"shape", std::vector<int64_t>(e.shape.begin(), e.shape.end())},
                 {"data_offsets", {e.offset, offset}}};
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", Json(e.name).dump(), item.dump());
  }
  return text + "}";
}

}  // namespace

std::string make_header(std::vector<SafetensorsEntry>& entries, const Metadata& metadata) {
  std::string text;
  try {
    text = header_json(entries, metadata);
  } catch (const nlohmann::json::exception& e) {
    throw ValueError(fmt::format("[checkpoint] a name is no UTF-8 text: {}", e.what()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  if (text.size() > kLargestHeader)
    throw ValueError(fmt::format("{} tensors need a header of {} bytes; the format has at most {}", entries.size(),
                                 text.size(), kLargestHeader));
  uint64_t length = text.size();
  std::string out(8, 0);
  std::memcpy(out.data(), &length, 8);
  out += text;
  for (auto& e : entries) e.offset += static_cast<int64_t>(out.size());
  return out;
}

}  // namespace cleave::nn::detail
