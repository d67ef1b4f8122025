// The shapes that are measured, from workloads.json, which the peers read too.
#pragma once
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

namespace bench {

/// The sizes of one entry of workloads.json: `kind` is "gpt" or "attention".
inline nlohmann::json workload(const char* kind, const std::string& name) {
  std::ifstream file(CLEAVE_WORKLOADS);
  return nlohmann::json::parse(file).at(kind).at(name);
}

}  // namespace bench
