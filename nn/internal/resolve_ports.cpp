// Which layouts a plan gives to the inputs and outputs of a model's modules.
#include <cleave/core/error.h>
#include <cleave/nn/internal/names.h>
#include <cleave/nn/internal/resolve_plan.h>

#include <algorithm>

namespace cleave::nn::detail {

namespace {

using Modules = std::vector<std::pair<std::string, ModuleBase*>>;

struct PortKey {
  std::string module;  // name or pattern; "" is the model
  bool input;
};

PortKey read_key(const std::string& key) {
  size_t dot = key.rfind('.');
  std::string port = dot == std::string::npos ? key : key.substr(dot + 1);
  if (port != "input" && port != "output")
    throw PlanError("plan, forward \"" + key + "\": it must end in input or output, as \"input\", \"blocks.*.output\"" +
                    nearest(port, {"input", "output"}));
  return {dot == std::string::npos ? "" : key.substr(0, dot), port == "input"};
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

void require_input_name(const std::string& key, const std::string& name, const std::string& path, const ModuleBase& m) {
  std::vector<std::string> known;
  for (const char* n : m.input_names()) known.emplace_back(n);
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw PlanError(
      "plan, forward \"" + key + "\": " + (path.empty() ? "the model" : path) + " has no input \"" + name + "\"" +
      (known.empty() ? "; it declares no names (static constexpr std::array inputs), so give positions: \"0\", \"1\""
                     : nearest(name, known)));
}

PortLayouts read_port(const std::string& key, bool input, const Port& port, const std::string& path,
                      const ModuleBase& m, dist::DeviceMesh mesh) {
  PortLayouts out;
  for (size_t i = 0; i < port.entries().size(); ++i) {
    const Port::Entry& e = port.entries()[i];
    std::string name = e.name.empty() ? std::to_string(i) : e.name;
    if (input && !is_number(name)) require_input_name(key, name, path, m);
    if (!input && !is_number(name))
      throw PlanError("plan, forward \"" + key + "\": outputs have no names, so \"" + name +
                      "\" must be a position: \"0\", \"1\"");
    if (std::any_of(out.begin(), out.end(), [&](const auto& o) { return o.first == name; }))
      throw PlanError("plan, forward \"" + key + "\": \"" + name + "\" stands twice");
    try {
      out.emplace_back(name, mesh.layout(e.layout));
    } catch (const LayoutError& error) { throw LayoutError("plan, forward \"" + key + "\": " + error.what()); }
  }
  return out;
}

void require_used(const std::string& key, const PortKey& read, const Modules& modules) {
  std::vector<std::string> names;
  for (const auto& [path, m] : modules) {
    if (matches(read.module, path) && m->callable()) return;
    if (matches(read.module, path) && !is_pattern(read.module))
      throw PlanError("plan, forward \"" + key + "\": " + path +
                      " is a list, which is never called; name what is in it (\"" + path + ".*." +
                      (read.input ? "input" : "output") + "\")");
    if (m->callable()) names.push_back((path.empty() ? "" : path + ".") + (read.input ? "input" : "output"));
  }
  throw PlanError("plan, forward \"" + key + "\": the model has no such module" + nearest(key, names));
}

PortLayouts choose(const ShardingPlan& plan, const std::string& path, const ModuleBase& m, bool input,
                   dist::DeviceMesh mesh) {
  const std::string* chosen = nullptr;
  PortLayouts out;
  for (bool patterns : {false, true}) {
    for (const auto& [key, port] : plan.forward) {
      PortKey read = read_key(key);
      if (read.input != input || is_pattern(read.module) != patterns || !matches(read.module, path)) continue;
      PortLayouts layouts = read_port(key, input, port, path, m, mesh);
      if (chosen && layouts != out)
        throw PlanError("plan, forward: \"" + *chosen + "\" and \"" + key + "\" give " +
                        (path.empty() ? "the model" : path) +
                        " different layouts; name it exactly, or make the two agree");
      out = std::move(layouts);
      chosen = &key;
    }
    if (chosen) break;
  }
  return out;
}

}  // namespace

std::vector<PlacedModule> resolve_ports(const ModuleBase& model, dist::DeviceMesh mesh, const ShardingPlan& plan) {
  Modules modules = model.named_modules();
  for (const auto& [key, port] : plan.forward) require_used(key, read_key(key), modules);
  std::vector<PlacedModule> out;
  for (const auto& [path, m] : modules) {
    if (m->callable())
      out.push_back({m, choose(plan, path, *m, true, mesh), choose(plan, path, *m, false, mesh)});
    else
      out.push_back({m, {}, {}});
  }
  return out;
}

}  // namespace cleave::nn::detail
