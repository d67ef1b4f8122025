// Where a tensor's elements live. A rank has one device of each kind.
#pragma once
#include <cstdint>
#include <string_view>

namespace cleave {

/// `Meta` tensors have a type and no elements: ops on them only infer.
enum class Device : uint8_t { Cpu, Meta, Cuda };

/// "cpu", "meta", "cuda".
constexpr std::string_view to_string(Device d) {
  return d == Device::Cpu ? "cpu" : d == Device::Meta ? "meta" : "cuda";
}

}  // namespace cleave
