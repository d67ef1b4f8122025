#include <cleave/core/error.h>
#include <cleave/nn/internal/manifest.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <nlohmann/json.hpp>

namespace cleave::nn::detail {

namespace {

using Json = nlohmann::json;
constexpr const char* kFormat = "cleave checkpoint 1";

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

uint64_t read_hex(const Json& item) {
  const auto& text = item.get_ref<const std::string&>();
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc{} || end != text.data() + 16)
    throw FileError(fmt::format("'{}' is no hash", text));
  return value;
}

// Names lead nowhere but into the folder.
const std::string& plain_name(const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    throw FileError(fmt::format("'{}' is no name of a file in this folder", name));
  return name;
}

int64_t count(const Json& item) {
  if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t{1} << 62)
    throw FileError(fmt::format("{} is no number of bytes", item.dump()));
  return item.get<int64_t>();
}

// Digests of a tensor's chunks, as bytes that do not depend on the machine.
uint64_t combined(const std::vector<uint64_t>& chunks) {
  std::string bytes;
  for (uint64_t chunk : chunks)
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(chunk >> shift & 0xff));
  return xxh3(bytes.data(), static_cast<int64_t>(bytes.size()));
}

// A document in which no name stands twice.
Json parse(const std::string& text) {
  std::vector<std::map<std::string, int>> open;
  return Json::parse(text, [&](int depth, Json::parse_event_t event, Json& item) {
    if (depth > 64) throw FileError("it is nested too deep");
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && ++open.back()[item.get<std::string>()] > 1)
      throw FileError(fmt::format("{} stands twice", item.dump()));
    return true;
  });
}

template <class F>
auto reading(const std::string& text, const std::string& path, F&& f) {
  try {
    return f(parse(text));
  } catch (const nlohmann::json::exception& e) {
    throw FileError(fmt::format("{} is malformed: {}", path, e.what()));
  } catch (const FileError& e) { throw FileError(fmt::format("{} is malformed: {}", path, e.what())); }
}

ManifestFile read_file(const Json& item) {
  ManifestFile file{.bytes = count(item.at("bytes")), .hash = read_hex(item.at("xxh3"))};
  if (!item.contains("tensors")) return file;
  for (const auto& [name, tensor] : item.at("tensors").get_ref<const Json::object_t&>()) {
    std::vector<uint64_t> chunks;
    for (const auto& chunk : tensor.at("chunks").get_ref<const Json::array_t&>()) chunks.push_back(read_hex(chunk));
    if (combined(chunks) != read_hex(tensor.at("xxh3")))
      throw FileError(fmt::format("the chunks of {} do not have its hash", name));
    file.chunks.emplace(name, std::move(chunks));
  }
  return file;
}

}  // namespace

uint64_t xxh3(const void* data, int64_t bytes) { return XXH3_64bits(data, static_cast<size_t>(bytes)); }

int64_t chunks_of(int64_t bytes, int64_t chunk_bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }

std::string to_text(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) {
    Json& item = files[name] = {{"bytes", file.bytes}, {"xxh3", hex(file.hash)}};
    if (!name.ends_with(".safetensors")) continue;
    Json& tensors = item["tensors"] = Json::object();
    for (const auto& [tensor, chunks] : file.chunks) {
      Json list = Json::array();
      for (uint64_t chunk : chunks) list.push_back(hex(chunk));
      tensors[tensor] = {{"xxh3", hex(combined(chunks))}, {"chunks", std::move(list)}};
    }
  }
  Json out = {
      {"format", kFormat},
      {"hash",
       "xxh3, 64 bits: of a tensor's chunks of chunk_bytes row-major bytes; of a tensor, of its chunks' digests "
       "(8 bytes each, little-endian); of a safetensors file, of its header; of other files, of all"},
      {"chunk_bytes", manifest.chunk_bytes},
      {"groups", manifest.groups},
      {"files", std::move(files)}};
  return out.dump(1) + "\n";
}

Manifest read_manifest(const std::string& text, const std::string& path) {
  return reading(text, path, [](const Json& in) {
    if (in.at("format") != kFormat) throw FileError(fmt::format("its format is not '{}'", kFormat));
    Manifest out;
    out.chunk_bytes = count(in.at("chunk_bytes"));
    if (out.chunk_bytes < 1) throw FileError("chunk_bytes is 0");
    for (const auto& [name, item] : in.at("files").get_ref<const Json::object_t&>())
      out.files.emplace(plain_name(name), read_file(item));
    out.groups = in.at("groups").get<decltype(out.groups)>();
    for (const auto& [group, files] : out.groups)
      for (const auto& file : files)
        if (!out.files.contains(file))
          throw FileError(fmt::format("group {} has a file {} without a size", group, file));
    return out;
  });
}

std::string to_text(const CheckpointValues& values) {
  Json out = Json::object();
  for (const auto& [name, value] : values) {
    const double* number = std::get_if<double>(&value);
    if (number && !std::isfinite(*number))  // JSON has no such number
      out[name] = {{"number", std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf"}};
    else
      std::visit([&](const auto& v) { out[name] = v; }, value);
  }
  try {
    return out.dump(1) + "\n";
  } catch (const nlohmann::json::exception& e) {
    throw ValueError(fmt::format("[checkpoint] a value is no UTF-8 text: {}", e.what()));
  }
}

CheckpointValues read_values(const std::string& text, const std::string& path) {
  return reading(text, path, [](const Json& in) {
    CheckpointValues out;
    for (const auto& [name, item] : in.get_ref<const Json::object_t&>()) {
      if (item.is_string())
        out[name] = item.get<std::string>();
      else if (item.is_number_float())
        out[name] = item.get<double>();
      else if (item.is_number_integer() && !(item.is_number_unsigned() && item.get<uint64_t>() > INT64_MAX))
        out[name] = item.get<int64_t>();
      else if (item.is_object() && item.at("number") == "nan")
        out[name] = std::nan("");
      else if (item.is_object() && (item.at("number") == "inf" || item.at("number") == "-inf"))
        out[name] = item.at("number") == "inf" ? std::numeric_limits<double>::infinity()
                                               : -std::numeric_limits<double>::infinity();
      else
        throw FileError(fmt::format("{} is no number and no text", name));
    }
    return out;
  });
}

std::string index_text(const std::map<std::string, std::string>& file_of, int64_t total_bytes) {
  return Json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", file_of}}.dump(2) + "\n";
}

std::map<std::string, std::string> read_index(const std::string& text, const std::string& path) {
  return reading(text, path, [](const Json& in) {
    auto out = in.at("weight_map").get<std::map<std::string, std::string>>();
    for (const auto& [name, file] : out) plain_name(file);
    return out;
  });
}

}  // namespace cleave::nn::detail
