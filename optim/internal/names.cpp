#include <cleave/core/error.h>
#include <cleave/optim/internal/names.h>

#include <set>

namespace cleave::optim::detail {

std::vector<std::string> names_of(const std::vector<nn::Parameter>& parameters, const char* who) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const nn::Parameter& p : parameters) {
    names.push_back(p.name().empty() ? std::to_string(names.size()) : p.name());
    if (!seen.insert(names.back()).second)
      throw ValueError(std::string("[") + who + "] two parameters have the name " + names.back() +
                       ", by which their state is saved; make their models parts of one module, or use one " + who +
                       " for each");
  }
  return names;
}

}  // namespace cleave::optim::detail
