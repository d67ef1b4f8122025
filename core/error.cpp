#include <cleave/core/error.h>

namespace cleave {

void check(bool condition, const std::source_location& where) {
  if (condition) return;
  throw Error("check failed at " + std::string(where.file_name()) + ":" + std::to_string(where.line()));
}

}  // namespace cleave
