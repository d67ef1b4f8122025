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

/// ZeRO (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"): which of
/// optimizer state (stage 1), gradients (2) and parameters (3) are split further, over mesh axes that else replicate
/// them. Stage 0: none.
struct Zero {
  int stage = 0;
  std::vector<std::string> axes = {};  ///< major first
  friend bool operator==(const Zero&, const Zero&) = default;
};

/// Names are dotted; in patterns `*` is any one segment and `**` any number. An exact name beats a pattern; parameters
/// and buffers that nothing names are replicated.
struct ShardingPlan {
  /// Name or pattern of parameters and buffers -> layout. "dp, - => -, -": stored split over dp, used whole (ZeRO-3).
  /// A third part is the layout of the gradient, by default as stored; it is reduced to it in backward, as soon as its
  /// last term is there (ZeRO-2). A fourth is that of optimizer state, by default the gradient's, if that is split
  /// further, else as stored: "-, - => -, - => -, - => dp, -" is ZeRO-1, whose gradients stay whole terms until the
  /// sync, which brings them to where the state is.
  std::vector<std::pair<std::string, std::string>> parameter = {};
  /// "input", "output" of the model itself, "<module or pattern>.input" or ".output" of those below -> layouts.
  std::vector<std::pair<std::string, Port>> forward = {};

  /// How parameters whose layout has no "=>" are stored beyond it; see nn/zero.h.
  Zero zero = {};

  /// Reads TOML: tables [parameter], of texts, [forward], of a text, a list, or an inline table { x = "dp, -" }, and
  /// [zero], of stage = 0...3 and axes = ["dp"].
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
