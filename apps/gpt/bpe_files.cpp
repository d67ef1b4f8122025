#include "gpt/bpe_files.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gpt {

namespace fs = std::filesystem;
using cleave::FileError;
using Json = nlohmann::json;  // its objects are found by key in logarithmic time, unlike ordered ones

namespace {

// The letters of GPT-2's encoder.py: printable bytes of Latin-1 stand for themselves, the others, in order, for U+0100
// and up.
bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteLetters {
  std::array<uint32_t, 256> letter{};            // by byte
  std::unordered_map<uint32_t, uint8_t> byte{};  // by letter

  ByteLetters() {
    uint32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      letter[static_cast<size_t>(b)] = stands_for_itself(b) ? static_cast<uint32_t>(b) : next++;
      byte[letter[static_cast<size_t>(b)]] = static_cast<uint8_t>(b);
    }
  }
};
const ByteLetters& letters() {
  static const ByteLetters table;
  return table;
}

// All letters are below U+0800: one or two bytes of UTF-8.
std::string to_letters(const std::string& bytes) {
  std::string out;
  for (char c : bytes) {
    uint32_t letter = letters().letter[static_cast<uint8_t>(c)];
    if (letter < 0x80) {
      out += static_cast<char>(letter);
    } else {
      out += static_cast<char>(0xC0 | letter >> 6);
      out += static_cast<char>(0x80 | (letter & 0x3F));
    }
  }
  return out;
}

// The bytes that letters stand for; nothing if one of them is no letter.
std::optional<std::string> from_letters(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    auto first = static_cast<uint8_t>(text[i]);
    uint32_t letter = first;
    if (first >= 0x80) {
      if ((first & 0xE0) != 0xC0 || ++i == text.size()) return std::nullopt;
      letter = (first & 0x1Fu) << 6 | (static_cast<uint8_t>(text[i]) & 0x3Fu);
    }
    auto found = letters().byte.find(letter);
    if (found == letters().byte.end()) return std::nullopt;
    out += static_cast<char>(found->second);
  }
  return out;
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code error;
  if (!in || !fs::is_regular_file(path, error)) throw FileError(fmt::format("{} cannot be read", path.string()));
  return {std::istreambuf_iterator<char>(in), {}};
}

/// One tokenizer being read, and the errors about it.
class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path) {}

  Bpe hugging_face(const Json& file) {
    if (has(file, "normalizer")) read_normalizer(file["normalizer"]);
    read_pretokenizer(file.contains("pre_tokenizer") ? file["pre_tokenizer"] : Json());
    const Json& model = file.at("model");
    if (std::string type = model.value("type", "BPE"); type != "BPE")
      fail(fmt::format("its model is \"{}\", not \"BPE\"", type));
    for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      if (has(model, name) && model[name] != "" && model[name] != 0) fail(fmt::format("its model has \"{}\"", name));
    out_.ignore_merges = model.value("ignore_merges", false);
    read_vocabulary(model.at("vocab"));
    for (const Json& t : file.value("added_tokens", Json::array())) read_added(t);
    for (const Json& merge : model.at("merges")) {
      if (merge.is_string())
        read_merge(merge.get<std::string>());
      else
        add_merge(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
    }
    bool lacks_bytes = bytes_ < 256;  // else every text has its tokens, and what is for the others is never used
    for (const char* name : {"unk_token", "byte_fallback"})
      if (lacks_bytes && has(model, name) && model[name] != false)
        fail(fmt::format("its model has \"{}\" and {} of the 256 bytes", name, bytes_));
    return finished();
  }

  Bpe gpt2(const Json& vocabulary, const std::string& merges) {
    read_vocabulary(vocabulary);
    if (auto end = vocabulary.find(kEndOfText); end != vocabulary.end())
      out_.added.push_back({kEndOfText, end->get<uint32_t>()});
    std::istringstream lines(merges);
    bool first = true;
    for (std::string line; std::getline(lines, line); first = false) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty() && !(first && line.starts_with("#version"))) read_merge(line);
    }
    return finished();
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{} is no byte-level BPE tokenizer that can be used here: {}", path_.string(), what));
  }

 private:
  static bool has(const Json& object, const char* name) { return object.contains(name) && !object[name].is_null(); }

  void read_normalizer(const Json& n) {
    std::string type = n.at("type").get<std::string>();
    if (type == "Sequence") {
      for (const Json& step : n.at("normalizers")) read_normalizer(step);
      return;
    }
    NormalizerStep step{.type = type};
    if (type == "Prepend") step.content = n.at("prepend").get<std::string>();
    if (type == "Replace") {
      step.content = n.at("content").get<std::string>();
      step.regex = n.at("pattern").contains("Regex");
      step.pattern = n["pattern"].at(step.regex ? "Regex" : "String").get<std::string>();
    }
    try {
      Normalizer({step});
    } catch (const cleave::ValueError&) { fail(fmt::format("its normalizer has {}", n.dump())); }
    out_.normalizer.push_back(std::move(step));
  }

  // Splits, and behind them ByteLevel, which may cut by GPT-2's pattern.
  void read_pretokenizer(const Json& p) {
    if (p.is_null()) fail("it has no pre-tokenizer");
    std::vector<Json> steps;
    flatten(p, steps);
    if (steps.empty() || steps.back().value("type", "") != "ByteLevel")
      fail(fmt::format("its pre-tokenizer is {}", p.dump()));
    if (steps.back().value("add_prefix_space", true)) fail("its pre-tokenizer has \"add_prefix_space\"");
    out_.patterns.clear();
    for (size_t i = 0; i + 1 < steps.size(); ++i) out_.patterns.push_back(pattern_of(steps[i]));
    if (steps.back().value("use_regex", true)) out_.patterns.emplace_back(kGpt2Pattern);
  }
  static void flatten(const Json& p, std::vector<Json>& steps) {
    if (p.value("type", "") != "Sequence") return steps.push_back(p);
    for (const Json& step : p.at("pretokenizers")) flatten(step, steps);
  }
  std::string pattern_of(const Json& step) const {
    std::string type = step.value("type", "");
    if (type == "Digits") return step.value("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    if (type != "Split" || step.value("behavior", "") != "Isolated" || step.value("invert", false))
      fail(fmt::format("its pre-tokenizer has {}", step.dump()));
    const Json& pattern = step.at("pattern");
    if (pattern.contains("Regex")) return pattern["Regex"].get<std::string>();
    return Regex::escaped(pattern.at("String").get<std::string>());
  }

  void put(uint32_t id, const std::string& bytes, const std::string& text) {
    constexpr uint32_t kMost = 1 << 24;
    if (id >= kMost) fail(fmt::format("its token \"{}\" has the id {}", text, id));
    if (bytes.empty()) fail(fmt::format("its token {} is empty", id));
    if (out_.tokens.size() <= id) out_.tokens.resize(id + 1);
    if (!out_.tokens[id].empty()) fail(fmt::format("two tokens have the id {}", id));
    out_.tokens[id] = bytes;
  }
  void read_vocabulary(const Json& vocabulary) {
    for (const auto& [text, id] : vocabulary.items()) {
      if (!id.is_number_unsigned()) fail(fmt::format("its token \"{}\" has no id", text));
      std::optional<std::string> bytes = from_letters(text);
      put(id.get<uint32_t>(), bytes.value_or(text), text);
      ids_[text] = id.get<uint32_t>();
      if (!bytes) without_bytes_.insert(text);
      bytes_ += bytes && bytes->size() == 1;
    }
    next_added_ = ids_.size();
  }
  // Hugging Face gives tokens that the vocabulary lacks the ids behind it, in order, whatever the file says.
  void read_added(const Json& t) {
    AddedToken added{.text = t.at("content").get<std::string>(),
                     .id = t.at("id").get<uint32_t>(),
                     .special = t.value("special", false),
                     .normalized = t.value("normalized", false),
                     .single_word = t.value("single_word", false),
                     .lstrip = t.value("lstrip", false),
                     .rstrip = t.value("rstrip", false)};
    auto known = ids_.find(added.text);
    added.in_vocabulary = known != ids_.end();
    uint64_t id = known == ids_.end() ? next_added_++ : known->second;
    if (id != added.id) fail(fmt::format("its token \"{}\" has the ids {} and {}", added.text, id, added.id));
    if (known == ids_.end()) {
      put(added.id, added.text, added.text);
    } else if (without_bytes_.erase(added.text) == 0 && out_.tokens[added.id] != added.text) {
      fail(fmt::format("its token \"{}\" is an added token and one of the bytes that its letters stand for",
                       added.text));
    }
    out_.added.push_back(std::move(added));
  }
  void read_merge(const std::string& line) {
    size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      fail(fmt::format("its merge \"{}\" is not of two tokens", line));
    add_merge(line.substr(0, space), line.substr(space + 1));
  }
  void add_merge(const std::string& left, const std::string& right) {
    for (const std::string& part : {left, right, left + right})
      if (!ids_.contains(part)) fail(fmt::format("its merge \"{} {}\" needs the token \"{}\"", left, right, part));
    out_.merges.emplace_back(ids_.at(left), ids_.at(right));
  }
  Bpe finished() {
    if (!without_bytes_.empty())
      fail(fmt::format("its token \"{}\" is not made of letters that stand for bytes", *without_bytes_.begin()));
    try {
      return Bpe(std::move(out_));
    } catch (const cleave::ValueError& e) { fail(e.what()); }
  }

  fs::path path_;
  BpeModel out_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::set<std::string> without_bytes_;  // tokens that are no letters of bytes, and no added tokens
  uint64_t next_added_ = 0;
  int bytes_ = 0;  // tokens of one
};

// GPT-2's file of the other kind beside this one.
fs::path beside(const fs::path& path, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (fs::exists(path.parent_path() / name)) return path.parent_path() / name;
  throw FileError(fmt::format("{} needs {} beside it", path.string(), fmt::join(names, " or ")));
}

bool holds_merges(const fs::path& path) { return path.extension() == ".txt" || path.extension() == ".bpe"; }

}  // namespace

std::array<uint8_t, 256> byte_alphabet() {
  std::array<uint8_t, 256> bytes{};
  for (int b = 0; b < 256; ++b) bytes[static_cast<size_t>(b)] = static_cast<uint8_t>(b);
  std::sort(bytes.begin(), bytes.end(), [](uint8_t a, uint8_t b) { return letters().letter[a] < letters().letter[b]; });
  return bytes;
}

Bpe read_tokenizer(const std::string& name) {
  fs::path path = name, vocabulary = path;
  if (holds_merges(path)) vocabulary = beside(path, {"vocab.json", "encoder.json"});
  Reader reader(path);
  try {
    Json file = Json::parse(read_text(vocabulary));
    if (!file.is_object()) reader.fail("it is no JSON object");
    if (file.contains("model") && file["model"].is_object()) return reader.hugging_face(file);
    fs::path merges = holds_merges(path) ? path : beside(path, {"merges.txt", "vocab.bpe"});
    return reader.gpt2(file, read_text(merges));
  } catch (const nlohmann::json::exception& e) { reader.fail(fmt::format("it is malformed: {}", e.what())); }
}

namespace {

Json byte_level(bool own_pattern) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_pattern}};
}

Json sequence_of(const char* member, const Json& steps) {
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {member, steps}};
}

Json pretokenizer_json(const BpeModel& m) {
  bool own = !m.patterns.empty() && m.patterns.back() == kGpt2Pattern;
  Json steps = Json::array();
  for (size_t i = 0; i + own < m.patterns.size(); ++i)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", m.patterns[i]}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(byte_level(own));
  return sequence_of("pretokenizers", steps);
}

Json normalizer_json(const BpeModel& m) {
  Json steps = Json::array();
  for (const NormalizerStep& s : m.normalizer) {
    Json& step = steps.emplace_back(Json{{"type", s.type}});
    if (s.type == "Prepend") step["prepend"] = s.content;
    if (s.type != "Replace") continue;
    step["pattern"] = {{s.regex ? "Regex" : "String", s.pattern}};
    step["content"] = s.content;
  }
  return steps.empty() ? Json() : sequence_of("normalizers", steps);
}

}  // namespace

void write_tokenizer(const Bpe& bpe, const std::string& path) {
  const BpeModel& m = bpe.model();
  Json added = Json::array(), vocabulary = Json::object(), merges = Json::array();
  std::vector<std::string> texts;
  for (const std::string& bytes : m.tokens) texts.push_back(to_letters(bytes));
  std::vector<bool> only_added(texts.size());
  for (const AddedToken& t : m.added) {
    only_added[t.id] = !t.in_vocabulary;
    texts[t.id] = t.text;
    added.push_back({{"id", t.id},
                     {"content", t.text},
                     {"single_word", t.single_word},
                     {"lstrip", t.lstrip},
                     {"rstrip", t.rstrip},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  }
  for (size_t id = 0; id < texts.size(); ++id)
    if (!texts[id].empty() && !only_added[id]) vocabulary[texts[id]] = id;
  for (auto [left, right] : m.merges) merges.push_back({texts[left], texts[right]});
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", m.ignore_merges},
                {"vocab", vocabulary},
                {"merges", merges}};
  Json file = {{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", added},
               {"normalizer", normalizer_json(m)},
               {"pre_tokenizer", pretokenizer_json(m)},
               {"post_processor", nullptr},
               {"decoder", byte_level(true)},
               {"model", model}};
  std::string temporary = path + ".tmp";
  std::ofstream out(temporary, std::ios::binary);
  out << file.dump(1) << "\n";
  out.close();
  std::error_code error;
  if (out) fs::rename(temporary, path, error);
  if (!out || error) {
    fs::remove(temporary, error);
    throw FileError(fmt::format("{} cannot be written", path));
  }
}

}  // namespace gpt
