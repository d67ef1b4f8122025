// Normal forms of text: by Unicode's definitions, of any bytes.
#include "gpt/normalizer.h"

#include <cleave/core/error.h>

#include <doctest/doctest.h>

using namespace gpt;
using cleave::ValueError;

namespace {
std::string normal(const char* type, const std::string& text) { return Normalizer({{.type = type}})(text); }
}  // namespace

// From the tables of Unicode's Standard Annex #15.
TEST_CASE("the four forms") {
  struct Row {
    const char *text, *nfc, *nfd, *nfkc, *nfkd;
  };
  for (const Row& r : {Row{"e\u0301", "\u00e9", "e\u0301", "\u00e9", "e\u0301"},
                       Row{"\u212b", "\u00c5", "A\u030a", "\u00c5", "A\u030a"},
                       Row{"q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307"},
                       Row{"\ufb01\u00b2", "\ufb01\u00b2", "\ufb01\u00b2", "fi2", "fi2"},
                       Row{"\u1e9b\u0323", "\u1e9b\u0323", "\u017f\u0323\u0307", "\u1e69", "s\u0323\u0307"},
                       Row{"\u1100\u1161\u11a8", "\uac01", "\u1100\u1161\u11a8", "\uac01", "\u1100\u1161\u11a8"},
                       Row{"plain", "plain", "plain", "plain", "plain"}, Row{"", "", "", "", ""}}) {
    CAPTURE(r.text);
    CHECK(normal("NFC", r.text) == r.nfc);
    CHECK(normal("NFD", r.text) == r.nfd);
    CHECK(normal("NFKC", r.text) == r.nfkc);
    CHECK(normal("NFKD", r.text) == r.nfkd);
  }
}

TEST_CASE("long text is in the form of its parts, wherever it is cut") {
  std::string text, expected;
  for (int i = 0; i < 9000; ++i) {
    text += i % 7 ? "e\u0301" : "xe\u0301 ";
    expected += i % 7 ? "\u00e9" : "x\u00e9 ";
  }
  CHECK(normal("NFC", text) == expected);
  CHECK(normal("NFD", expected) == text);
  std::string marks = "e", composed = "\u00e9";
  for (int i = 0; i < 40000; ++i) marks += "\u0301";
  for (int i = 1; i < 40000; ++i) composed += "\u0301";
  CHECK(normal("NFC", marks) == composed);
}

TEST_CASE("bytes that are no UTF-8, and zeros, stay") {
  std::string zero(1, '\0');
  CHECK(normal("NFC", "e\xff\u0301" + zero + "e\u0301\xe4") == "e\xff\u0301" + zero + "\u00e9\xe4");
  CHECK(normal("Lowercase", "A\xc3" + zero + "B") == "a\xc3" + zero + "b");
}

TEST_CASE("lower case is each character's own") {
  CHECK(normal("Lowercase", "ABC \u00c9\u03a3\u0130\u1e9e\u10400") == "abc \u00e9\u03c3i\u0307\u00df\u10400");
  CHECK(normal("Lowercase", "\U00010400") == "\U00010428");
}

TEST_CASE("text is put before and replaced, step by step") {
  Normalizer n({{.type = "Prepend", .content = "\u2581"},
                {.type = "Replace", .pattern = " ", .content = "\u2581"},
                {.type = "Replace", .pattern = "[0-9]+", .regex = true, .content = "#"},
                {.type = "Replace", .pattern = ".", .content = ""}});
  CHECK(n("a 12.b") == "\u2581a\u2581#b");
  CHECK(n("").empty());
  CHECK(Normalizer({})("As is") == "As is");
  CHECK(Normalizer({}).empty());
}

TEST_CASE("steps that are not known are refused") {
  CHECK_THROWS_WITH_AS(Normalizer({{.type = "Nmt"}}), doctest::Contains("Nmt"), ValueError);
  CHECK_THROWS_AS(Normalizer({{.type = "Replace"}}), ValueError);
  CHECK_THROWS_WITH_AS(Normalizer({{.type = "Replace", .pattern = "a(", .regex = true}}), doctest::Contains("a("),
                       ValueError);
}
