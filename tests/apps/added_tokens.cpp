// Tokens that are found in text: which, and what of the text around them they take.
#include "gpt/added_tokens.h"

#include <doctest/doctest.h>

#include "gpt/bpe.h"

using namespace gpt;

namespace {

// "text[token]text": what is found where.
std::string found(const std::vector<AddedToken>& tokens, const std::string& text) {
  AddedTokens all;
  for (const AddedToken& t : tokens) all.add(t.text, t);
  std::string out;
  all.cut(
      text, [&](std::string_view between) { out += between; }, [&](const AddedToken& t) { out += "[" + t.text + "]"; });
  return out;
}

}  // namespace

TEST_CASE("the leftmost is found, of several at one place the longest, then on from its end") {
  std::vector<AddedToken> tokens = {{.text = "<s>"}, {.text = "<s>>"}, {.text = " <"}, {.text = "s>x"}};
  CHECK(found(tokens, "a<s>>b") == "a[<s>>]b");
  CHECK(found(tokens, "<s><ss") == "[<s>]<ss");
  CHECK(found(tokens, "a <s>") == "a[ <]s>");
  CHECK(found(tokens, "<s>x <") == "[<s>]x[ <]");
  CHECK(found(tokens, "ss>x") == "s[s>x]");
  CHECK(found(tokens, "<") == "<");
  CHECK(found(tokens, "").empty());
  CHECK(found({{.text = "\xff"}}, "a\xff\xfe") == "a[\xff]\xfe");
}

TEST_CASE("tokens may take the white space beside them") {
  std::vector<AddedToken> tokens = {
      {.text = "L", .lstrip = true}, {.text = "R", .rstrip = true}, {.text = "B", .lstrip = true, .rstrip = true}};
  CHECK(found(tokens, "a \n\u00a0L b") == "a[L] b");
  CHECK(found(tokens, "a R \t\u2003b") == "a [R]b");
  CHECK(found(tokens, " B  B ") == "[B][B]");
  CHECK(found(tokens, "R \u200b L") == "[R]\u200b[L]");  // U+200B is no white space
  CHECK(found(tokens, "R  L") == "[R][L]");
  CHECK(found(tokens, " \xff L") == " \xff[L]");
}

TEST_CASE("a token may have to be a word") {
  std::vector<AddedToken> tokens = {{.text = "ab", .single_word = true}, {.text = "b"}};
  CHECK(found(tokens, "ab, ab.") == "[ab], [ab].");
  CHECK(found(tokens, "xab") == "xab");  // the token within is passed by too, as in Hugging Face's
  CHECK(found(tokens, "ab1 ab_ ab\u0301 ab\u200d \u00e9ab") == "ab1 ab_ ab\u0301 ab\u200d \u00e9ab");
  CHECK(found(tokens, "ab\xff-ab\u00b2") == "[ab]\xff-[ab]\u00b2");
  CHECK(found(tokens, "xb") == "x[b]");
}
