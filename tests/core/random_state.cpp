// The state of the random stream as a text.
#include <cleave/core/error.h>
#include <cleave/core/random.h>

#include <doctest/doctest.h>

using namespace cleave;

TEST_CASE("a stream goes on from its text") {
  seed(18446744073709551615u);
  (void)detail::next_random_key();
  std::string text = rng_state();
  CHECK(text == "seed 18446744073709551615 call 1");
  auto next = detail::next_random_key();
  seed(3);
  set_rng_state(text);
  auto again = detail::next_random_key();
  CHECK(again.seed == next.seed);
  CHECK(again.call == next.call);
  for (const char* bad : {"", "seed", "seed 3", "seed 3 call", "seed 3 call 4 ", "seed -3 call 4", "call 3 seed 4",
                          "seed 18446744073709551616 call 1"})
    CHECK_THROWS_AS(set_rng_state(bad), ValueError);
  CHECK(detail::random_state().call == 2);
  seed(0);
}
