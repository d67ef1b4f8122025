// What every benchmark program needs: options, a clock, the process's memory, and one way to report.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace bench {

/// Seconds of the machine's steady clock, which processes of one machine share.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of the fastest of `n` calls: noise only adds.
template <class F>
double least(int n, F&& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < n; ++i) {
    double start = now();
    f();
    best = std::min(best, now() - start);
  }
  return best;
}

/// Bytes of the process from /proc/self/status: "VmRSS" now, "VmHWM" at its peak.
inline int64_t process_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  return 0;
}

/// One result, as a line of JSON on stdout.
inline void report(const std::string& name, const std::string& case_, double value, const char* unit,
                   const char* by = "cleave") {
  nlohmann::json line{{"by", by}, {"name", name}, {"case", case_}, {"value", value}, {"unit", unit}};
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

/// The arguments as "--name value" pairs.
class Options {
 public:
  Options(int argc, char** argv) : words_(argv + 1, argv + argc) {}
  explicit Options(std::vector<std::string> words) : words_(std::move(words)) {}
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    auto at = std::find(words_.begin(), words_.end(), "--" + name);
    return at == words_.end() || at + 1 == words_.end() ? otherwise : at[1];
  }
  int number(const std::string& name, int otherwise) const {
    std::string value = text(name);
    return value.empty() ? otherwise : std::stoi(value);
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace bench
