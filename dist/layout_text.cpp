// The notation of layouts: reading "dp, -, tp partial(pp)" and writing it.
#include <cctype>

#include <cleave/core/error.h>
#include <cleave/dist/mesh_state.h>

namespace cleave::dist {

namespace {

bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// text    := [entry {"," entry}] ["partial" "(" [op ":"] axis {"," axis} ")"]
// entry   := "-" | "..." | axis {"." axis}
class Reader {
 public:
  Reader(const MeshState& mesh, std::string_view text) : mesh_(mesh), text_(text) { out_.mesh = &mesh; }

  LayoutData read() {
    skip();
    if (at_ < text_.size() && !at_partial()) {
      do entry();
      while (take(","));
    }
    if (at_partial()) partial();
    if (at_ < text_.size()) fail("expected `,` or partial(...) before \"" + std::string(text_.substr(at_)) + "\"");
    return out_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw LayoutError("layout \"" + std::string(text_) + "\" on " + to_string(DeviceMesh(&mesh_)) + ": " + what);
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(std::string_view token) {
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    skip();
    return true;
  }
  std::string_view word() const {
    size_t end = at_;
    while (end < text_.size() && name_char(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  // An axis may be called partial too: the clause is what has a parenthesis.
  bool at_partial() const {
    if (word() != "partial") return false;
    size_t next = text_.find_first_not_of(" \t\n", at_ + 7);
    return next != std::string_view::npos && text_[next] == '(';
  }

  int find(std::string_view name) const {
    try {
      return mesh_.axis(name);
    } catch (const LayoutError& e) { throw LayoutError("layout \"" + std::string(text_) + "\": " + e.what()); }
  }

  int axis() {
    std::string_view name = word();
    if (name.empty())
      fail(at_ < text_.size() ? "expected the name of an axis before \"" + std::string(text_.substr(at_)) + "\""
                              : "expected the name of an axis at the end");
    int index = find(name);
    if (used_ & axis_bit(index))
      fail("axis " + std::string(name) + " is used twice; an axis splits one dim or is partial, once");
    used_ |= axis_bit(index);
    at_ += name.size();
    skip();
    return index;
  }

  void entry() {
    if (take("...")) {
      if (out_.ellipsis >= 0) fail("`...` stands twice; one is enough for any number of unsplit dims");
      out_.ellipsis = out_.rank;
      return;
    }
    if (out_.rank == kMaxDims) fail("a tensor has at most " + std::to_string(kMaxDims) + " dims");
    AxisList& list = out_.dims[static_cast<size_t>(out_.rank)];
    if (at_ == text_.size() || text_[at_] == ',' || at_partial())
      fail("dim " + std::to_string(out_.rank) + " is empty; write `-` for a dim that no axis splits");
    ++out_.rank;
    if (take("-")) return;
    do list.push_back(axis());
    while (take("."));
  }

  void partial() {
    take("partial");
    take("(");
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      std::string_view name = to_string(op);
      size_t colon = text_.find_first_not_of(" \t\n", at_ + name.size());
      if (word() == name && colon != std::string_view::npos && text_[colon] == ':') {
        take(name);
        take(":");
        out_.op = op;
        break;
      }
    }
    do out_.partial |= axis_bit(axis());
    while (take(","));
    if (!take(")")) fail("partial( is not closed");
  }

  const MeshState& mesh_;
  std::string_view text_;
  size_t at_ = 0;
  AxisMask used_ = 0;
  LayoutData out_;
};

}  // namespace

Layout DeviceMesh::layout(std::string_view text) const { return Layout(state_->intern(Reader(*state_, text).read())); }

std::string to_string(Layout layout) {
  const LayoutData& data = *layout.data();
  const auto& axes = data.mesh->axes();
  std::string out;
  auto add = [&](const std::string& entry) { out += (out.empty() ? "" : ", ") + entry; };
  for (int d = 0; d <= data.rank; ++d) {
    if (d == data.ellipsis) add("...");
    if (d == data.rank) break;
    std::string entry;
    for (int a : data.dims[static_cast<size_t>(d)])
      entry += (entry.empty() ? "" : ".") + axes[static_cast<size_t>(a)].name;
    add(entry.empty() ? "-" : entry);
  }
  std::string terms = detail::partial_text(data);
  return out + (out.empty() || terms.empty() ? "" : " ") + terms;
}

std::string detail::partial_text(const LayoutData& data) {
  if (data.partial == 0) return "";
  std::string names;
  for (size_t a = 0; a < data.mesh->axes().size(); ++a)
    if (data.partial & axis_bit(static_cast<int>(a))) names += (names.empty() ? "" : ", ") + data.mesh->axes()[a].name;
  std::string op = data.op == ReduceOp::sum ? "" : std::string(to_string(data.op)) + ": ";
  return "partial(" + op + names + ")";
}

}  // namespace cleave::dist
