#include "gpt/error_place.h"

#include <cleave/core/error.h>

namespace gpt {

namespace {

template <class E>
void rethrow_as(const cleave::Error& e, const std::string& text) {
  if (dynamic_cast<const E*>(&e)) throw E(text);
}

template <class... E>
[[noreturn]] void rethrow_as_one_of(const cleave::Error& e, const std::string& text) {
  (rethrow_as<E>(e, text), ...);
  throw cleave::Error(text);
}

}  // namespace

void rethrow_with_place(const std::string& place) {
  try {
    throw;
  } catch (const cleave::PeerError& e) {
    // A rank that passed the news on has put its own place before it.
    std::string text = e.what(), who = "rank " + std::to_string(e.rank) + " ";
    size_t at = text.find(who);
    throw cleave::PeerError(e.rank, place + ": " + (at == std::string::npos ? text : text.substr(at)));
  } catch (const cleave::Error& e) {
    using namespace cleave;
    rethrow_as_one_of<CommError, Interrupted, FileError, ValueError, ShapeError, DTypeError, LayoutError, IndexError,
                      GradError, PlanError, OutOfMemoryError>(e, place + ": " + e.what());
  }
}

}  // namespace gpt
