// Pieces of text: regular expressions as Oniguruma reads them, of any bytes.
#include "gpt/pretokenizer.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

using namespace gpt;
using cleave::ValueError;

namespace {

using Pieces = std::vector<std::string>;
Pieces pieces(const std::vector<std::string>& patterns, std::string_view text) {
  Pieces out;
  Pretokenizer(patterns).cut(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}
Pieces gpt2(std::string_view text) { return pieces({kGpt2Pattern}, text); }

}  // namespace

TEST_CASE("pieces are GPT-2's") {
  CHECK(gpt2("").empty());
  CHECK(gpt2("Hello world, it's 3,14!") == Pieces{"Hello", " world", ",", " it", "'s", " 3", ",", "14", "!"});
  CHECK(gpt2("a   b\n\n c  ") == Pieces{"a", "  ", " b", "\n\n", " c", "  "});
  CHECK(gpt2("I'LL don''t") == Pieces{"I", "'", "LL", " don", "''", "t"});
  CHECK(gpt2("caf\u00e9\u00a0\u4e16\u754c\u00b2") == Pieces{"caf\u00e9", "\u00a0", "\u4e16\u754c", "\u00b2"});
  CHECK(gpt2("x\u180ey").size() == 3);  // no white space since Unicode 6.3
}

TEST_CASE("bytes that are no UTF-8 are pieces") {
  CHECK(gpt2("a\xff\xfe b\xe4\xb8") == Pieces{"a", "\xff\xfe", " b", "\xe4\xb8"});
  CHECK(gpt2(std::string_view(" \xed\xa0\x80", 4)) == Pieces{" ", "\xed\xa0\x80"});  // a surrogate
  CHECK(gpt2("\xf4\x90\x80\x80").size() == 1);
  CHECK(gpt2(std::string_view("a\0b", 3)) == Pieces{"a", std::string(1, '\0'), "b"});
}

TEST_CASE("matches and what lies between them are pieces, and the next pattern cuts each") {
  CHECK(pieces({"[a-z]+"}, "ab--cd-") == Pieces{"ab", "--", "cd", "-"});
  CHECK(pieces({"x*"}, "axa") == Pieces{"a", "x", "a"});
  CHECK(pieces({}, "ab") == Pieces{"ab"});
  CHECK(pieces({R"(\p{N})", "b|^1|a$"}, "ba12ab") == Pieces{"b", "a", "1", "2", "a", "b"});
}

// The answers are those of Hugging Face's tokenizers 0.23.3 (Split, isolated).
TEST_CASE("patterns mean what they mean to Oniguruma") {
  CHECK(pieces({"^a"}, "a\na\nba") == Pieces{"a", "\n", "a", "\nba"});
  CHECK(pieces({"a$"}, "a\na\nba") == Pieces{"a", "\n", "a", "\nb", "a"});
  CHECK(pieces({R"(\w+)"}, "a\u0301b\u200cc_\u203fd\u00b2e\u0661f") ==
        Pieces{"a\u0301b", "\u200c", "c_\u203fd\u00b2e\u0661f"});
  CHECK(pieces({R"(\bx)"}, "ax x") == Pieces{"ax ", "x"});
  CHECK(pieces({R"(\Bx)"}, "ax x") == Pieces{"a", "x", " x"});
  CHECK(pieces({R"(\h+)"}, "xfa9 z") == Pieces{"x", "fa9", " z"});
  CHECK(pieces({R"(\v+)"}, "x\x0b\n z") == Pieces{"x", "\x0b", "\n z"});
  CHECK(pieces({R"(\s+)"}, "a\u180eb\u0085c\u200bd") == Pieces{"a\u180eb", "\u0085", "c\u200bd"});
  CHECK(pieces({R"([^\S]+)"}, "a \u180e b") == Pieces{"a", " ", "\u180e", " ", "b"});
  CHECK(pieces({R"([\s\p{L}]+)"}, "a \u180e b") == Pieces{"a ", "\u180e", " b"});
  CHECK(pieces({R"(\u0061+)"}, "aab") == Pieces{"aa", "b"});
  CHECK(pieces({"(?i:'s)"}, "'\u017f'S") == Pieces{"'\u017f", "'S"});
  CHECK(pieces({".+"}, "a\nb\rc") == Pieces{"a", "\n", "b\rc"});
  CHECK(pieces({Regex::escaped("a.b|^\\")}, "xa.b|^\\y") == Pieces{"x", "a.b|^\\", "y"});
}

TEST_CASE("patterns that Oniguruma and PCRE2 read differently are refused, with what they have") {
  for (const char* pattern : {"a(b",     R"(\p{N}{1,3}+)", "a{,2}",   "a{2}?",   "[[a]b]",  "[a-z&&[^b]]", "(?m).",
                              "(?s).",   "a(?i)b|c",       R"(\pL)",  R"(\R\X)", R"([\W])", R"([\b])",     R"(\Qa\E)",
                              R"(\xE9)", R"((a)\1)",       "(?<n>a)", "[]a]",    "a\\",     R"(\u12)"}) {
    CAPTURE(pattern);
    CHECK_THROWS_WITH_AS(Regex{pattern}, doctest::Contains(pattern), ValueError);
  }
}

TEST_CASE("long runs are cut without a deep stack") {
  std::string llama = R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  for (const char* unit : {" ", "a", "\n", " \n", "\u0301", "!"}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += unit;
    CHECK(pieces({llama}, text).size() <= 2);
    CHECK(pieces({"(?:(?:.|\n)\\s*)+"}, text).size() == 1);
  }
}
