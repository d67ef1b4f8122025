#include "gpt/run_log.h"

#include <cleave/core/error.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace gpt {

namespace {

using Json = nlohmann::json;

/// One line, with its place for errors.
class Line {
 public:
  Line(const std::string& path, int64_t number, const std::string& text)
      : place_(fmt::format("{}:{}", path, number)), json_(Json::parse(text, nullptr, false)) {
    if (json_.is_discarded()) fail("is not JSON; is it a log of gpt train --log, and whole?");
    if (!json_.is_object()) fail("is JSON, but no object; a log has one {...} per line");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw cleave::ValueError(fmt::format("gpt report: {} {}", place_, what));
  }

  const Json* find(const char* name) const {
    auto at = json_.find(name);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }

  double number(const Json& value, const char* name) const {
    if (value.is_null()) return kMissing;
    if (!value.is_number()) fail(fmt::format("has the field \"{}\", but it is no number", name));
    return value.get<double>();
  }
  double number(const char* name) const {
    const Json* value = find(name);
    return value ? number(*value, name) : kMissing;
  }
  const Json* list(const char* name) const {
    const Json* value = find(name);
    if (value && !value->is_array()) fail(fmt::format("has the field \"{}\", but it is no list", name));
    return value;
  }

  bool flag(const char* name) const {
    const Json* value = find(name);
    if (!value) return false;
    if (value->is_boolean()) return value->get<bool>();
    return number(*value, name) != 0;
  }

 private:
  std::string place_;
  Json json_;
};

void read_outliers(const Line& line, RunStep& s) {
  if (const Json* names = line.list("outlier"))
    for (const Json& name : *names) {
      s.loss_outlier |= name == "loss";
      s.grad_norm_outlier |= name == "grad_norm";
    }
  const Json* z = line.find("z");
  if (!z) return;
  if (!z->is_object()) line.fail("has the field \"z\", but it is no object");
  s.loss_z = line.number(z->value("loss", Json()), "z.loss");
  s.grad_norm_z = line.number(z->value("grad_norm", Json()), "z.grad_norm");
}

RunStep step_in(const Line& line) {
  RunStep s;
  const Json* step = line.find("step");
  if (!step || !step->is_number_integer() || step->get<int64_t>() < 1)
    line.fail("has no field \"step\" with a number from 1");
  s.step = step->get<int64_t>();
  s.loss = line.number("loss");
  s.grad_norm = line.number("grad_norm");
  s.lr = line.number("lr");
  s.ms = line.number("ms");
  s.tokens_per_s = line.number("tokens_per_s");
  s.held_out = line.number("held_out");
  s.loss_scale = line.number("loss_scale");
  s.skipped = line.flag("skipped");
  read_outliers(line, s);
  if (const Json* peaks = line.list("peak_bytes"))
    for (const Json& bytes : *peaks) s.peak_bytes.push_back(line.number(bytes, "peak_bytes"));
  if (const Json* calls = line.list("comm"))
    for (const Json& c : *calls) {
      if (!c.is_object() || !c.contains("axis") || !c["axis"].is_string() || !c.contains("bytes"))
        line.fail("has the field \"comm\", but its entries lack \"axis\" or \"bytes\"");
      s.comm_bytes[c["axis"].get<std::string>()] += line.number(c["bytes"], "comm.bytes");
    }
  return s;
}

}  // namespace

RunLog read_run_log(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw cleave::FileError(fmt::format("gpt report: {} cannot be read", path));
  RunLog run{.name = path.substr(path.rfind('/') + 1), .steps = {}};
  int64_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (in.eof() && !Json::accept(text)) break;
    Line line(path, number, text);
    RunStep step = step_in(line);
    if (!run.steps.empty() && step.step <= run.steps.back().step)
      line.fail(fmt::format("has step {} behind step {}; are two runs in one file?", step.step, run.steps.back().step));
    run.steps.push_back(std::move(step));
  }
  if (run.steps.empty()) throw cleave::FileError(fmt::format("gpt report: {} has no lines", path));
  return run;
}

}  // namespace gpt
