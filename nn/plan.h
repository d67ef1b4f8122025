// ShardingPlan: which layouts the parameters, inputs and outputs of a model have; a value, and a file.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cleave::nn {

/// Layouts of a module's inputs or outputs: a list by position, `{"dp, -", "-"}`, or pairs of a name (or position) and
/// a layout, `{{"x", "dp, -"}, {"mask", "-"}}`. What it does not list is left as it is.
class Port {
 public:
  struct Entry {
    Entry(const char* layout) : layout(layout) {}
    Entry(std::string layout) : layout(std::move(layout)) {}
    Entry(std::string name, std::string layout) : name(std::move(name)), layout(std::move(layout)) {}
    std::string name;  ///< "": by position
    std::string layout;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  Port() = default;
  Port(std::initializer_list<Entry> entries) : entries_(entries) {}
  explicit Port(std::vector<Entry> entries) : entries_(std::move(entries)) {}
  const std::vector<Entry>& entries() const { return entries_; }
  friend bool operator==(const Port&, const Port&) = default;

 private:
  std::vector<Entry> entries_;
};

/// Names are dotted; in patterns `*` is any one segment and `**` any number. An exact name beats a pattern, and a
/// pattern beats `**` alone; parameters and buffers that nothing names are replicated.
struct ShardingPlan {
  /// Name or pattern of parameters and buffers -> layout, or up to four, "stored => used => gradient => state", each
  /// equal to the first where left out. "dp, - => -, -": stored split over dp, used whole (ZeRO-3, FSDP).
  /// "-, - => -, - => dp, -": the gradient is reduced to its owners as soon as backward has it, and what an optimizer
  /// keeps lies so too (ZeRO-2). "-, - => -, - => -, - => dp, -": the gradient stays whole, as each rank's term, until
  /// the sync, and then goes to the owners of the state (ZeRO-1). See nn/zero.h.
  std::vector<std::pair<std::string, std::string>> parameter = {};
  /// "input", "output" of the model itself, "<module or pattern>.input" or ".output" of those below -> layouts.
  std::vector<std::pair<std::string, Port>> forward = {};

  /// Reads TOML: tables [parameter], of texts, and [forward], of a text, a list, or an inline table { x = "dp, -" }.
  /// Throws PlanError with the line for anything else.
  static ShardingPlan parse(std::string_view toml);
  /// `parse` of a file; FileError if it cannot be read.
  static ShardingPlan load(const std::string& path);
  /// Writes `to_string`; FileError if it cannot.
  void save(const std::string& path) const;

  friend bool operator==(const ShardingPlan&, const ShardingPlan&) = default;
};

/// The plan as TOML that `parse` reads back.
std::string to_string(const ShardingPlan& plan);

}  // namespace cleave::nn
