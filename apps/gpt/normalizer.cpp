#include "gpt/normalizer.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <utf8proc.h>

#include "gpt/utf8.h"

namespace gpt {

namespace {

struct Form {
  const char* name;
  int options;
};
constexpr std::array kForms = {Form{"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
                               Form{"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
                               Form{"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                               Form{"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

const Form* form_of(const std::string& type) {
  const auto* found = std::find_if(kForms.begin(), kForms.end(), [&](const Form& f) { return f.name == type; });
  return found == kForms.end() ? nullptr : found;
}

void append_form(std::string_view text, int options, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  utf8proc_ssize_t n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owned(result, std::free);
  if (n < 0) throw cleave::ValueError(fmt::format("text cannot be normalized: {}", utf8proc_errmsg(n)));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(n));
}

// By parts, as utf8proc needs four bytes for each character of one. Each begins with an ASCII character, which joins
// with nothing before it; ASCII itself is every form of itself.
std::string in_form(std::string_view text, int options) {
  constexpr size_t kPart = 1 << 14;
  auto ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  std::string out;
  while (!text.empty()) {
    const auto* end = std::find_if(text.begin(), text.end(), [&](char c) { return !ascii(c); });
    auto plain = static_cast<size_t>(end - text.begin());
    if (plain > 1 || plain == text.size()) {  // the last may join with what follows
      size_t taken = plain == text.size() ? plain : plain - 1;
      out += text.substr(0, taken);
      text.remove_prefix(taken);
      continue;
    }
    size_t part = std::min(kPart, text.size());
    while (part < text.size() && !ascii(text[part])) ++part;
    append_form(text.substr(0, part), options, out);
    text.remove_prefix(part);
  }
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t n; !text.empty(); text.remove_prefix(n)) {
    n = character_bytes(text);
    uint32_t c = code_point(text.substr(0, n));
    std::array<utf8proc_uint8_t, 4> bytes{};
    auto length = utf8proc_encode_char(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)), bytes.data());
    if (c == 0x130)
      out += "i\u0307";  // the one whose lower case is two characters
    else
      out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
  }
  return out;
}

std::string replaced(std::string_view text, const Regex& regex, const std::string& content) {
  std::string out;
  regex.cut(text, [&](std::string_view piece, bool matched) { out += matched ? std::string_view(content) : piece; });
  return out;
}

}  // namespace

Normalizer::Normalizer(std::vector<NormalizerStep> steps) {
  for (NormalizerStep& s : steps) {
    Step step{std::move(s), std::nullopt};
    const std::string& type = step.step.type;
    if (type == "Replace") {
      if (step.step.pattern.empty()) throw cleave::ValueError("a Replace of nothing");
      step.regex.emplace(step.step.regex ? step.step.pattern : Regex::escaped(step.step.pattern));
    } else if (type != "Lowercase" && type != "Prepend" && !form_of(type)) {
      throw cleave::ValueError(fmt::format("a normalizer \"{}\"", type));
    }
    steps_.push_back(std::move(step));
  }
}

std::string Normalizer::operator()(std::string_view text) const {
  std::string now(text);
  for (const auto& [step, regex] : steps_) {
    std::string next;
    if (step.type == "Prepend") {
      next = now.empty() ? now : step.content + now;
    } else {
      for_runs(now, [&, &step = step, &regex = regex](std::string_view run, bool valid) {
        if (!valid)
          next += run;
        else if (regex)
          next += replaced(run, *regex, step.content);
        else if (const Form* form = form_of(step.type))
          next += in_form(run, form->options);
        else
          next += lowercase(run);
      });
    }
    now = std::move(next);
  }
  return now;
}

}  // namespace gpt
