// The files of tests/goldens/bpe, which tests/goldens/make_bpe_goldens.py makes.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace gpt::test {

/// In $CLEAVE_SOURCE, by default the folder that the tests were compiled in.
inline std::string bpe_golden_path(const std::string& name) {
  const char* source = std::getenv("CLEAVE_SOURCE");
  auto root = source ? std::filesystem::path(source) : std::filesystem::path(__FILE__).parent_path() / ".." / "..";
  return (root / "tests" / "goldens" / "bpe" / name).string();
}
inline std::string bpe_golden(const std::string& name) {
  std::ifstream in(bpe_golden_path(name), std::ios::binary);
  if (!in) throw std::runtime_error("no " + bpe_golden_path(name));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace gpt::test
