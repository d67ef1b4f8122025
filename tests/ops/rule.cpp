// Rules: how their text is read, which rows follow from them, and which of these the dispatcher takes.
#include <cleave/dist/mesh_state.h>

#include <doctest/doctest.h>

#include <memory>
#include <set>

#include "support/ranks.h"

using namespace cleave;
using namespace cleave::test;

namespace {

// A call of f64 tensors of these shapes, kept with what it refers to.
struct Call {
  std::vector<TensorType> in, out;
  std::unique_ptr<bool[]> present, parameter;
  RuleCall rule;
  Call(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
    present.reset(new bool[inputs.size()]);
    parameter.reset(new bool[inputs.size()]());
    for (size_t i = 0; i < inputs.size(); ++i) {
      present[i] = true;
      in.push_back({DType::f64, inputs[i], nullptr});
    }
    for (const Shape& s : outputs) out.push_back({DType::f64, s, nullptr});
    rule = {"test", in, {present.get(), inputs.size()}, {parameter.get(), inputs.size()}, out, {}};
  }
};

std::string text_of(const OperandLetters& letters) {
  std::string out;
  for (const DimLetters& d : letters) {
    std::string dim(d.begin(), d.end());
    out.append(d.size() == 1 ? "" : "(").append(dim).append(d.size() == 1 ? "" : ")");
  }
  return out;
}

std::string row_text(const ResolvedRow& row) {
  std::string out;
  for (size_t i = 0; i < row.in.size(); ++i) out += (i ? "; " : "") + to_string(dist::Layout(row.in[i]));
  out += " ->";
  for (const dist::LayoutData* l : row.out) out.append(" ").append(to_string(dist::Layout(l)));
  return out;
}

}  // namespace

TEST_CASE("letters of a rule's text: factors, dims without a letter, and leading dims that align from the right") {
  Call call({{2, 6, 5, 4}, {3, 7, 4}}, {{2, 6, 5, 7}});
  Rule r = parse_rule("b(hg)td,h.d->b(hg)t.", call.rule);
  CHECK(text_of(r.in[0]) == "b(hg)td");
  CHECK(text_of(r.in[1]) == "h()d");
  CHECK(text_of(r.out[0]) == "b(hg)t()");

  Call broadcast({{4, 1, 3}, {2, 1}}, {{4, 2, 3}});
  Rule p = parse_rule("...,...->...", broadcast.rule);
  CHECK(p.in[0][1].empty());  // 1 beside 2
  CHECK(p.in[1][1].empty());  // 1 beside 3
  CHECK(p.in[0][2] == p.out[0][2]);
  CHECK(p.in[1][0] == p.out[0][1]);  // aligned from the right
  CHECK(p.in[0][0] == p.out[0][0]);
}

TEST_CASE("the rows of a product: each letter split, a partial sum in each operand, or nothing") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Call call({{4, 6}, {6, 3}}, {{4, 3}});
    Rule r = parse_rule("mk,kn->mn", call.rule);
    r.reduced = {'k'};
    r.linear = {0b01, 0b10};
    std::set<std::string> rows;
    for (const ResolvedRow& row : legal_rows(r, call.rule, *mesh.state(), false)) rows.insert(row_text(row));
    CHECK(rows == std::set<std::string>{"-, -; -, - -> -, -", "x, -; -, - -> x, -", "-, -; -, x -> -, x",
                                        "-, x; x, - -> -, - partial(x)", "-, - partial(x); -, - -> -, - partial(x)",
                                        "-, -; -, - partial(x) -> -, - partial(x)"});
  });
}

TEST_CASE("two axes on one letter come in both orders, and operands agree on them") {
  on_mesh({{"x", 2}, {"y", 2}}, [](dist::DeviceMesh mesh) {
    Call call({{4}, {4}}, {{4}});
    std::set<std::string> rows;
    for (const ResolvedRow& row : legal_rows(pointwise_rule(call.rule), call.rule, *mesh.state(), false))
      rows.insert(row_text(row));
    CHECK(rows == std::set<std::string>{"-; - -> -", "x; x -> x", "y; y -> y", "x.y; x.y -> x.y", "y.x; y.x -> y.x"});
  });
}

TEST_CASE("a letter that must be whole, equal blocks, and terms that are added") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    Call call({{4, 5}}, {{4, 5}});
    Rule r = parse_rule("rc->rc", call.rule);
    r.whole = {'c'};
    CHECK(legal_rows(r, call.rule, *mesh.state(), false).size() == 2);
    std::vector<ResolvedRow> decomposed = legal_rows(r, call.rule, *mesh.state(), true);
    CHECK(decomposed.size() == 3);
    r.whole = {};
    r.even = {'c'};  // 5 over 2
    CHECK(legal_rows(r, call.rule, *mesh.state(), false).size() == 2);

    Call linear({{4, 6}, {4}}, {{4}});
    Rule biased = parse_rule("mk,m->m", linear.rule);
    biased.reduced = {'k'};
    biased.addends = 0b10;
    std::set<std::string> rows;
    for (const ResolvedRow& row : legal_rows(biased, linear.rule, *mesh.state(), false)) rows.insert(row_text(row));
    CHECK(rows.contains("-, x; - partial(x) -> - partial(x)"));
  });
}

TEST_CASE("the dispatcher keeps R, moves no parameter, then the fewest bytes, and never splits what is whole") {
  on_mesh({{"x", 2}}, [](dist::DeviceMesh mesh) {
    auto at = [&](const Shape& shape, const char* layout) { return placed(normal(shape, 1), mesh, layout); };
    CHECK((at({4, 6}, "-, -") + at({4, 6}, "-, -")).layout().is_replicated());
    // The large operand stays, the small one moves.
    CHECK(to_string((at({40, 6}, "x, -") + at({1, 6}, "-, x")).layout()) == "x, -");
    Tensor r = at({4, 6}, "-, -"), s = at({4, 6}, "-, x"), x = at({64, 2}, "x, -");
    Tensor w = weight(normal({2, 3}, 2), mesh, "x, -"), v = clone(w.detach());
    dist::record_collectives(true);
    CHECK(to_string((r + s).layout()) == "-, x");  // a cut is free
    CHECK(kinds().empty());
    CHECK(matmul(x, w).layout().is_partial("x"));  // activations move rather than a parameter, also larger ones
    CHECK(kinds() == std::vector<std::string>{"all_to_all"});
    dist::record_collectives(true);
    matmul(x, v);
    CHECK(kinds() == std::vector<std::string>{"all_gather"});
  });
}
