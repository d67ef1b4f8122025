// Sharding plans as TOML.
#include <cleave/core/error.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/plan.h>
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace cleave::nn {

namespace {

[[noreturn]] void fail(const toml::node& at, const std::string& what) {
  throw PlanError("plan, line " + std::to_string(at.source().begin.line) + ": " + what);
}

std::string read_text(const toml::node& node, const std::string& what) {
  if (!node.is_string()) fail(node, what + " must be a text in quotes, such as \"dp, -\"");
  return **node.as_string();
}

Port read_port(const toml::node& node, const std::string& name) {
  std::string what = "the layout of \"" + name + "\"";
  std::vector<Port::Entry> entries;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& layout : *list) entries.emplace_back(read_text(layout, what));
  } else if (const toml::table* names = node.as_table()) {
    for (const auto& [key, layout] : *names) entries.emplace_back(std::string(key.str()), read_text(layout, what));
  } else if (node.is_string()) {
    entries.emplace_back(read_text(node, what));
  } else {
    fail(node, what + " must be a text, a list of texts, or { name = \"layout\" }");
  }
  return Port(std::move(entries));
}

Zero read_zero(const toml::table& table) {
  Zero zero;
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    if (name == "stage") {
      auto stage = node.value_exact<int64_t>();
      if (!stage || *stage < 0 || *stage > 3) fail(node, "the stage of [zero] must be 0, 1, 2 or 3");
      zero.stage = static_cast<int>(*stage);
    } else if (name == "axes") {
      if (!node.is_array()) fail(node, "the axes of [zero] must be a list of names, such as [\"dp\"]");
      for (const toml::node& axis : *node.as_array()) zero.axes.push_back(read_text(axis, "an axis of [zero]"));
    } else {
      fail(node, "[zero] has no \"" + name + "\", only stage and axes" + detail::nearest(name, {"stage", "axes"}));
    }
  }
  return zero;
}

const toml::table& read_table(const toml::node& node, const std::string& name) {
  if (!node.is_table()) fail(node, "\"" + name + "\" must be a table: [" + name + "]");
  return *node.as_table();
}

ShardingPlan read(const toml::table& file) {
  ShardingPlan plan;
  for (const auto& [key, node] : file) {
    std::string name(key.str());
    if (name == "parameter") {
      for (const auto& [k, layout] : read_table(node, name))
        plan.parameter.emplace_back(std::string(k.str()),
                                    read_text(layout, "the layout of \"" + std::string(k.str()) + "\""));
    } else if (name == "forward") {
      for (const auto& [k, layouts] : read_table(node, name))
        plan.forward.emplace_back(std::string(k.str()), read_port(layouts, std::string(k.str())));
    } else if (name == "zero") {
      plan.zero = read_zero(read_table(node, name));
    } else {
      fail(node, "there is no table \"" + name + "\"; a plan has [parameter], [forward] and [zero]" +
                     detail::nearest(name, {"parameter", "forward", "zero"}));
    }
  }
  return plan;
}

// A TOML basic string.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::string to_toml(const Port& port) {
  const auto& entries = port.entries();
  bool named = std::any_of(entries.begin(), entries.end(), [](const Port::Entry& e) { return !e.name.empty(); });
  std::string out;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i) out += ", ";
    if (named) out += quoted(entries[i].name.empty() ? std::to_string(i) : entries[i].name) + " = ";
    out += quoted(entries[i].layout);
  }
  return named ? "{ " + out + " }" : "[" + out + "]";
}

}  // namespace

ShardingPlan ShardingPlan::parse(std::string_view text) {
  try {
    return read(toml::parse(text));
  } catch (const toml::parse_error& e) {
    throw PlanError("plan, line " + std::to_string(e.source().begin.line) + ": " + std::string(e.description()));
  }
}

ShardingPlan ShardingPlan::load(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw FileError("cannot read the plan " + path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.fail()) throw FileError("cannot read the plan " + path);
  try {
    return parse(text.str());
  } catch (const PlanError& e) { throw PlanError(path + ": " + e.what()); }
}

void ShardingPlan::save(const std::string& path) const {
  std::ofstream file(path);
  file << to_string(*this);
  file.close();
  if (!file) throw FileError("cannot write the plan " + path);
}

std::string to_string(const ShardingPlan& plan) {
  std::string out = "[parameter]\n";
  for (const auto& [name, layout] : plan.parameter) out += quoted(name) + " = " + quoted(layout) + "\n";
  out += "\n[forward]\n";
  for (const auto& [name, port] : plan.forward) out += quoted(name) + " = " + to_toml(port) + "\n";
  if (plan.zero == Zero{}) return out;
  out += "\n[zero]\nstage = " + std::to_string(plan.zero.stage) + "\naxes = [";
  for (size_t i = 0; i < plan.zero.axes.size(); ++i) out += (i ? ", " : "") + quoted(plan.zero.axes[i]);
  out += "]\n";
  return out;
}

}  // namespace cleave::nn
