#include <cleave/core/error.h>
#include <cleave/ops/rule.h>

#include <algorithm>
#include <string>

namespace cleave {
namespace {

struct ParsedOperand {
  bool ellipsis = false;  // leading "..."
  std::vector<std::string> dims;
};

// "...m(hg)." -> an ellipsis and one string of letters per dim ("" for '.').
ParsedOperand parse_operand(std::string_view text) {
  ParsedOperand out;
  size_t i = 0;
  if (text.substr(0, 3) == "...") {
    out.ellipsis = true;
    i = 3;
  }
  while (i < text.size()) {
    if (text[i] == '(') {
      size_t end = text.find(')', i);
      out.dims.emplace_back(text.substr(i + 1, end - i - 1));
      i = end + 1;
    } else {
      out.dims.emplace_back(text[i] == '.' ? "" : std::string(1, text[i]));
      ++i;
    }
  }
  return out;
}

std::vector<ParsedOperand> parse_side(std::string_view text) {
  std::vector<ParsedOperand> out;
  while (true) {
    size_t comma = text.find(',');
    out.push_back(parse_operand(text.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

// Letters of leading dims, by their distance from the last of them.
Letter leading_letter(int64_t from_right) { return static_cast<Letter>('A' + from_right); }

OperandLetters letters_of(const ParsedOperand& parsed, const Shape& shape, const Shape& leading_sizes) {
  OperandLetters out;
  int64_t leading = parsed.ellipsis ? shape.rank() - static_cast<int64_t>(parsed.dims.size()) : 0;
  for (int64_t d = 0; d < leading; ++d) {
    int64_t from_right = leading - 1 - d;
    bool broadcast = shape[d] == 1 && leading_sizes[from_right] != 1;
    out.push_back(broadcast ? DimLetters{} : DimLetters{leading_letter(from_right)});
  }
  for (const std::string& d : parsed.dims) out.emplace_back(d.begin(), d.end());
  return out;
}

// Sizes of the leading dims counted from the right, after broadcasting.
Shape leading_sizes(const std::vector<ParsedOperand>& operands, const RuleCall& call) {
  Shape sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].ellipsis || !call.present[i]) continue;
    const Shape& shape = call.in[i].shape;
    int64_t n = shape.rank() - static_cast<int64_t>(operands[i].dims.size());
    if (n > sizes.rank()) {
      int had = sizes.rank();
      sizes.resize(static_cast<int>(n));
      for (int d = had; d < n; ++d) sizes[d] = 1;
    }
    for (int64_t d = 0; d < n; ++d)
      if (shape[n - 1 - d] != 1) sizes[d] = shape[n - 1 - d];
  }
  return sizes;
}

}  // namespace

Rule parse_rule(std::string_view text, const RuleCall& call) {
  size_t arrow = text.find("->");
  std::vector<ParsedOperand> in = parse_side(text.substr(0, arrow)), out = parse_side(text.substr(arrow + 2));
  Shape sizes = leading_sizes(in, call);
  Rule rule;
  for (size_t i = 0; i < call.in.size(); ++i)
    rule.in.push_back(call.present[i] ? letters_of(in[i], call.in[i].shape, sizes) : OperandLetters{});
  for (size_t i = 0; i < call.out.size(); ++i)
    rule.out.push_back(letters_of(out[std::min(i, out.size() - 1)], call.out[i].shape, sizes));
  return rule;
}

Rule pointwise_rule(const RuleCall& call, std::vector<uint32_t> linear) {
  Rule rule = parse_rule(std::string(call.in.empty() ? "" : [&] {
                           std::string text = "...";
                           for (size_t i = 1; i < call.in.size(); ++i) text += ",...";
                           return text;
                         }()) + "->...",
                         call);
  rule.linear = std::move(linear);
  return rule;
}

}  // namespace cleave
