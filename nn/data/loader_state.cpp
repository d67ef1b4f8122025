#include <cleave/core/error.h>
#include <cleave/nn/data/loader_state.h>

#include <concepts>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace cleave::nn {

namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kVersion = 1;

// Calls f(name, member) for every member.
template <class State, class F>
void for_members(State& s, F&& f) {
  f("step", s.step);
  f("samples", s.samples);
  f("epoch", s.epoch);
  f("sample", s.sample);
  f("epoch_samples", s.epoch_samples);
  f("seq", s.seq);
  f("seed", s.seed);
  f("shuffle", s.shuffle);
  f("drop_last", s.drop_last);
  f("data", s.data);
}

template <class T>
void read_member(const Json& json, const char* name, T& out) {
  auto found = json.find(name);
  // JSON's numbers at and above 0 are unsigned to the parser.
  bool fits = found != json.end() && (std::same_as<T, bool> ? found->is_boolean() : found->is_number_unsigned());
  if constexpr (std::same_as<T, int64_t>) fits = fits && found->template get<uint64_t>() <= uint64_t{INT64_MAX};
  if (!fits) throw ValueError(fmt::format("the state of a loader lacks a valid \"{}\": {}", name, json.dump()));
  out = found->template get<T>();
}

}  // namespace

std::string to_string(const LoaderState& state) {
  Json json = {{"version", kVersion}};
  for_members(state, [&](const char* name, const auto& member) { json[name] = member; });
  return json.dump();
}

LoaderState read_loader_state(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw ValueError(fmt::format("the state of a loader is no JSON object: {}", text));
  int64_t version = 0;
  read_member(json, "version", version);
  if (version != kVersion)
    throw ValueError(fmt::format("the state of a loader is of version {}; this program reads {}", version, kVersion));
  LoaderState state;
  for_members(state, [&](const char* name, auto& member) { read_member(json, name, member); });
  return state;
}

}  // namespace cleave::nn
