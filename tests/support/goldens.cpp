#include "support/goldens.h"

#include <cleave/core/error.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace cleave::test {
namespace {

std::string path() {
  const char* root = std::getenv("CLEAVE_SOURCE");
  if (root) return std::string(root) + "/tests/goldens/goldens.txt";
  std::string here = __FILE__;  // .../tests/support/goldens.cpp
  return here.substr(0, here.rfind("support/")) + "goldens/goldens.txt";
}

// "f64 [2, 3] 1.5 2 ..."
Values parse_tensor(const std::string& text) {
  Values out;
  size_t open = text.find('['), close = text.find(']');
  std::string dtype = text.substr(0, text.find(' '));
  out.dtype = dtype == "i64" ? DType::i64 : dtype == "bool" ? DType::boolean : DType::f64;
  std::istringstream sizes(text.substr(open + 1, close - open - 1));
  for (std::string size; std::getline(sizes, size, ',');) out.shape.push_back(std::stoll(size));
  const char* at = text.c_str() + close + 1;
  for (char* end = nullptr;; at = end) {
    double x = std::strtod(at, &end);
    if (end == at) break;
    out.v.push_back(x);
  }
  if (static_cast<int64_t>(out.v.size()) != numel(out.shape))
    throw Error("goldens: \"" + text.substr(0, 60) + "\" has another size than it says");
  return out;
}

std::map<std::string, Golden> read() {
  std::ifstream file(path());
  if (!file) throw Error("cannot read " + path());
  std::map<std::string, Golden> out;
  Golden* current = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    size_t space = line.find(' ');
    std::string name = line.substr(0, space), rest = line.substr(space + 1);
    if (name == "case")
      current = &out[rest];
    else
      (*current)[name] = parse_tensor(rest);
  }
  return out;
}

}  // namespace

const std::map<std::string, Golden>& goldens() {
  static const std::map<std::string, Golden> all = read();
  return all;
}

const Golden& golden(const std::string& name) {
  auto it = goldens().find(name);
  if (it == goldens().end()) throw Error("there is no golden case " + name);
  return it->second;
}

Tensor golden_tensor(const Golden& golden, const std::string& name) {
  auto it = golden.find(name);
  if (it == golden.end()) throw Error("the golden case has no tensor " + name);
  return make_tensor(it->second, it->second.dtype);
}

}  // namespace cleave::test
