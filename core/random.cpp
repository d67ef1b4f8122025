#include <cleave/core/error.h>
#include <cleave/core/random.h>

#include <charconv>

namespace cleave {
namespace {
thread_local detail::RandomKey stream;
}

void seed(uint64_t value) { stream = {value, 0}; }

std::string rng_state() {
  return std::string("seed ").append(std::to_string(stream.seed)).append(" call ").append(std::to_string(stream.call));
}

void set_rng_state(std::string_view text) {
  detail::RandomKey state;
  std::string_view rest = text;
  auto take = [&rest](std::string_view word, uint64_t& value) {
    if (!rest.starts_with(word)) return false;
    auto [end, error] = std::from_chars(rest.data() + word.size(), rest.data() + rest.size(), value);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return error == std::errc{};
  };
  if (!take("seed ", state.seed) || !take(" call ", state.call) || !rest.empty())
    throw ValueError("[set_rng_state] '" + std::string(text) + "' is not of the form 'seed 7 call 42'");
  stream = state;
}

namespace detail {

// Call 0 belongs to explicit seeds, which draw nothing from the stream.
RandomKey next_random_key() {
  ++stream.call;
  return stream;
}
RandomKey random_state() { return stream; }
void set_random_state(RandomKey state) { stream = state; }

}  // namespace detail
}  // namespace cleave
