// Typed errors. Messages are lower case, carry the numbers, and say what to do; see DESIGN for which are alike on all
// ranks.
#pragma once
#include <source_location>
#include <stdexcept>
#include <string>

namespace cleave {

/// Base of all errors thrown by cleave.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Sizes or dims that do not fit.
struct ShapeError : Error {
  using Error::Error;
};
/// A dtype the op does not take.
struct DTypeError : Error {
  using Error::Error;
};
/// Layouts, meshes, or a mix of plain and distributed tensors.
struct LayoutError : Error {
  using Error::Error;
};
/// An index in the data that is out of range; thrown on the ranks that see it.
struct IndexError : Error {
  using Error::Error;
};
/// Misuse of reverse mode.
struct GradError : Error {
  using Error::Error;
};
/// An option or argument outside its range.
struct ValueError : Error {
  using Error::Error;
};
/// A sharding plan that does not fit its model.
struct PlanError : Error {
  using Error::Error;
};
/// A file that is missing, unreadable or malformed.
struct FileError : Error {
  using Error::Error;
};
/// A collective whose ranks disagree, or a communication library that failed.
struct CommError : Error {
  using Error::Error;
};
/// Another rank failed or returned; carries that rank and its message.
struct PeerError : CommError {
  PeerError(int rank, const std::string& message) : CommError(message), rank(rank) {}
  int rank;
};
/// The user asked the program to end (SIGINT, SIGTERM).
struct Interrupted : Error {
  using Error::Error;
};
/// The allocator could not serve a request; the message has the statistics.
struct OutOfMemoryError : Error {
  using Error::Error;
};

/// Throws Error naming the caller's file and line unless `condition` holds: for the assertions of programs, in every
/// build.
void check(bool condition, const std::source_location& where = std::source_location::current());

}  // namespace cleave
