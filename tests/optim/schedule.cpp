// Schedules: values by hand.
#include "nn/support.h"

using namespace cleave;
using namespace cleave::optim;
using cleave::test::check_throws;

TEST_CASE("parts") {
  CHECK(constant()(7) == 1);
  CHECK(linear(1, 0, 4)(1) == 0.75);
  CHECK(linear(1, 0, 4)(9) == 0);
  CHECK(warmup(4)(0) == 0.25);
  CHECK(warmup(4)(3) == 1);
  CHECK(warmup(4)(9) == 1);
  CHECK(cosine(10)(0) == 1);
  CHECK(cosine(10)(5) == doctest::Approx(0.5));
  CHECK(cosine(10, 0.1)(10) == doctest::Approx(0.1));
  CHECK(cosine(10, 0.1)(99) == doctest::Approx(0.1));
}

TEST_CASE("one after the other, and products") {
  Schedule s = warmup(4).then(cosine(8, 0.1)).then(constant(0.1));
  CHECK(s(0) == 0.25);
  CHECK(s(3) == 1);
  CHECK(s(4) == 1);  // the cosine's own start
  CHECK(s(8) == doctest::Approx(0.55));
  CHECK(s(12) == doctest::Approx(0.1));
  CHECK(s(1000) == doctest::Approx(0.1));
  CHECK(linear(0, 1, 4).then(constant(5))(3) == 0.75);
  CHECK(linear(0, 1, 4).then(constant(5))(4) == 5);  // no step of the first one's end
  CHECK(warmup(4).then(cosine(8)).steps() == 12);
  CHECK((warmup(2) * constant(0.5))(0) == 0.25);
  CHECK((linear(1, 0, 2) * linear(1, 0, 4))(1) == 0.375);
  CHECK((linear(1, 0, 2) * linear(1, 0, 4)).steps() == 4);
}

TEST_CASE("what makes no sense") {
  check_throws<ValueError>([] { warmup(0); }, {"warmup", "at least one"});
  check_throws<ValueError>([] { cosine(3)(-1); }, {"-1"});
  check_throws<ValueError>([] { constant().then(warmup(2)); }, {"never ends"});
  check_throws<ValueError>([] { Schedule nothing{Schedule::Function()}; }, {"empty"});
}
