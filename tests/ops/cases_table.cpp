// tests/CASES.md names tests that exist: "folder/file: how a test case's name begins", several separated by ";".
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string tests_folder() {
  const char* root = std::getenv("CLEAVE_SOURCE");
  std::string here = __FILE__;
  return root ? std::string(root) + "/tests/" : here.substr(0, here.rfind("ops/"));
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string trimmed(std::string s) {
  if (size_t note = s.find(" ("); note != std::string::npos) s.resize(note);
  size_t first = s.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return s.substr(first, s.find_last_not_of(' ') - first + 1);
}

bool is_file(const std::string& s) { return s.find('/') != std::string::npos && s.find('/') < s.find(' '); }

}  // namespace

TEST_CASE("every test that the table of cases names is there") {
  std::istringstream table(read(tests_folder() + "CASES.md"));
  int named = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.rfind("| ", 0) != 0 || line.rfind("| row", 0) == 0) continue;
    std::string cell = line.substr(0, line.rfind(" |"));
    std::istringstream parts(cell.substr(cell.rfind("| ") + 2));
    std::string file;
    for (std::string part; std::getline(parts, part, ';');) {
      part = trimmed(part);
      if (part.rfind("not built", 0) == 0) continue;
      std::string phrase = part;
      if (is_file(part)) {
        size_t colon = part.find(": ");
        file = part.substr(0, colon);
        phrase = colon == std::string::npos ? "" : part.substr(colon + 2);
      }
      std::istringstream files(file);
      for (std::string one; std::getline(files, one, ',');) {
        std::string text = read(tests_folder() + trimmed(one) + ".cpp");
        if (text.empty()) text = read(tests_folder() + trimmed(one) + ".sh");
        CHECK_MESSAGE(!text.empty(), "there is no tests/" << trimmed(one) << ".cpp, named by: " << line);
        CHECK_MESSAGE((phrase.empty() || text.find("\"" + phrase) != std::string::npos),
                      "tests/" << one << ".cpp has no case that begins with \"" << phrase << "\", named by: " << line);
      }
      ++named;
    }
  }
  CHECK(named > 100);
}
