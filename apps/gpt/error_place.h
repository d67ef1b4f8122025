// Errors that say where in a run they came.
#pragma once
#include <string>

namespace gpt {

/// To be called in a handler: rethrows the exception, of the same type, with "place: " before its message. An exception
/// that is not one of cleave's goes on as it is.
[[noreturn]] void rethrow_with_place(const std::string& place);

}  // namespace gpt
