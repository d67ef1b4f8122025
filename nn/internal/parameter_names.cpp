#include <cleave/nn/internal/parameter_names.h>

#include <unordered_map>

namespace cleave::nn::detail {

namespace {
thread_local std::unordered_map<const void*, std::string> names;
}

void name_storage(const void* storage, const std::string& path) { names.insert_or_assign(storage, path); }

const std::string& storage_name(const void* storage) {
  static const std::string none;
  auto at = names.find(storage);
  return at == names.end() ? none : at->second;
}

void forget_storage_names() { names.clear(); }

}  // namespace cleave::nn::detail
