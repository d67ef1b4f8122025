// Text for people.
#include <cleave/core/text.h>

#include <doctest/doctest.h>

using namespace cleave;

TEST_CASE("sizes have the unit in which they are short") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1024) == "1.0 KiB");
  CHECK(bytes_text((1 << 20) - 1) == "1.0 MiB");  // not 1024.0 KiB
  CHECK(bytes_text(int64_t{3} << 29) == "1.50 GiB");
  CHECK(bytes_text(-2048) == "-2.0 KiB");
  CHECK(bytes_text(INT64_MAX) == "8192.00 PiB");
}

TEST_CASE("the distance of words") {
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("sitting", "kitten") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("same", "same") == 0);
}
