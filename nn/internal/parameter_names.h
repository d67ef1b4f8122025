// Names of parameters, for whoever watches a rank: spans of communication know tensors by their storage alone.
#pragma once
#include <string>

namespace cleave::nn::detail {

/// Notes what the parameter in this storage is called on this rank; called as it is read while an observer is set.
void name_storage(const void* storage, const std::string& path);
/// "": unknown.
const std::string& storage_name(const void* storage);
/// Storage is used again by other tensors: a recording begins without names.
void forget_storage_names();

}  // namespace cleave::nn::detail
