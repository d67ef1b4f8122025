#include <cleave/core/error.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/nn/internal/match_names.h>
#include <cleave/nn/internal/names.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include <fmt/format.h>

namespace cleave::nn::detail {

namespace {

// std::regex recurses with the length of the text.
constexpr size_t kLongestName = 2048;

class Renames {
 public:
  explicit Renames(const LoadOptions& options) {
    for (const auto& [pattern, text] : options.renames) try {
        rules_.emplace_back(std::regex(pattern), text);
      } catch (const std::regex_error& e) {
        throw ValueError(fmt::format("[load] '{}' is no regular expression: {}", pattern, e.what()));
      }
  }
  std::string operator()(const std::string& name) const {
    if (name.size() > kLongestName) return name;
    for (const auto& [pattern, text] : rules_)
      if (std::smatch found; std::regex_match(name, found, pattern)) return found.format(text);
    return name;
  }

 private:
  std::vector<std::pair<std::regex, std::string>> rules_;
};

// The file's tensors by the names they have in the model.
std::map<std::string, const StoredTensor*> renamed(const StoredGroup& group, const LoadOptions& options,
                                                   const std::string& path) {
  Renames rename(options);
  std::map<std::string, const StoredTensor*> out;
  std::map<std::string, std::string> from;
  for (const auto& [name, tensor] : group.tensors) {
    std::string to = rename(name);
    if (!out.emplace(to, &tensor).second)
      throw ValueError(fmt::format("[load] {} and {} of {} both become {}", from[to], name, path, to));
    from[to] = name;
  }
  return out;
}

bool keeps_values(DType from, DType to) {
  if (from == to) return true;
  if (!is_floating(from) || !is_floating(to) || is_half(to)) return false;
  return size_of(to) > size_of(from);
}

Shape expected_shape(const Match& match) {
  Shape shape = match.target->tensor.shape();
  if (match.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

void check_type(const Match& match, const std::string& name, const LoadOptions& options, const std::string& path) {
  const Tensor& x = match.target->tensor;
  const SafetensorsEntry& e = *match.stored.back()->entry;
  TensorType stored{e.dtype, e.shape};
  if (match.transposed && x.dim() != 2)
    throw ValueError(fmt::format("[load] {} is {} and cannot be transposed", name, to_string(x.type())));
  if (!(e.shape == expected_shape(match)))
    throw FileError(fmt::format("{}: {} is {}, but the model needs {}{}{}", path, e.name, to_string(stored),
                                to_string(x.dtype()), to_string(expected_shape(match)),
                                e.name == name ? "" : " as " + name));
  bool rounds = is_floating(e.dtype) && is_floating(x.dtype());
  if (!keeps_values(e.dtype, x.dtype()) && !(options.cast && rounds))
    throw DTypeError(fmt::format("[load] {}: {} is {} and the model needs {}{}", path, e.name, to_string(stored),
                                 to_string(x.dtype()), rounds ? "; .cast = true allows rounding" : ""));
}

void check_target(const LoadTarget& target) {
  const Tensor& x = target.tensor;
  if (x.device() == Device::Meta && !x.impl()->absent)
    throw ValueError(fmt::format("[load] {} is deferred; call shard(model, mesh, plan) or materialize(model) first",
                                 target.names.front()));
  if (x.is_distributed() && x.impl()->layout->partial)
    throw LayoutError(
        fmt::format("[load] {} is {}; a partial sum cannot be loaded", target.names.front(), describe(x.type())));
}

void check_strict(const LoadReport& report, const std::vector<std::string>& in_file,
                  const std::vector<std::string>& in_model, const std::string& path) {
  if (!report.missing.empty())
    throw FileError(fmt::format("{} lacks {} of the model's tensors, the first is {}{}", path, report.missing.size(),
                                report.missing.front(), nearest(report.missing.front(), in_file)));
  if (!report.unexpected.empty())
    throw FileError(fmt::format("{} has {} tensors that the model lacks, the first is {}{}", path,
                                report.unexpected.size(), report.unexpected.front(),
                                nearest(report.unexpected.front(), in_model)));
}

// A pattern with a slip in it would let a square matrix go in as it stands.
void require_transposed(const LoadOptions& options, const std::vector<std::string>& in_model) {
  for (const std::string& pattern : options.transposed)
    if (std::none_of(in_model.begin(), in_model.end(), [&](const auto& name) { return matches(pattern, name); }))
      throw ValueError(
          fmt::format("[load] transposed: the model has no tensor \"{}\"{}", pattern, nearest(pattern, in_model)));
}

}  // namespace

Matches match_names(const StoredGroup& group, const std::vector<LoadTarget>& targets, const LoadOptions& options,
                    const std::string& path) {
  auto stored = renamed(group, options, path);
  std::vector<std::string> in_file, in_model;
  for (const auto& [name, tensor] : stored) in_file.push_back(name);
  Matches out;
  for (const LoadTarget& target : targets) in_model.insert(in_model.end(), target.names.begin(), target.names.end());
  require_transposed(options, in_model);
  std::set<std::string> known;
  for (const LoadTarget& target : targets) {
    check_target(target);
    Match match{.target = &target};
    for (const std::string& name : target.names) {
      if (!known.insert(name).second) throw ValueError(fmt::format("[load] the name {} stands twice", name));
      for (const std::string& pattern : options.transposed) match.transposed |= matches(pattern, name);
    }
    for (const std::string& name : target.names)
      if (auto at = stored.find(name); at != stored.end()) {
        match.stored.push_back(at->second);
        check_type(match, name, options, path);
      }
    if (match.stored.empty())
      out.report.missing.push_back(target.names.front());
    else
      out.list.push_back(std::move(match));
  }
  for (const std::string& name : in_file)
    if (!known.contains(name)) out.report.unexpected.push_back(name);
  if (options.strict) check_strict(out.report, in_file, in_model, path);
  return out;
}

}  // namespace cleave::nn::detail
