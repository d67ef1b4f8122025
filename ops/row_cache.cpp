#include <cleave/dist/mesh_state.h>
#include <cleave/ops/row_cache.h>

#include <cstring>
#include <unordered_map>

namespace cleave {
namespace {

constexpr size_t kMaxEntries = 8192;

using Key = std::vector<uint64_t>;

void append(Key& key, uint64_t word) { key.push_back(word); }

void append_tensor(Key& key, const Tensor& x) {
  if (!x.defined()) {
    append(key, ~uint64_t{0});
    return;
  }
  const detail::TensorImpl& impl = *x.impl();
  append(key, static_cast<uint64_t>(impl.view.dtype) | static_cast<uint64_t>(impl.parameter) << 8 |
                  static_cast<uint64_t>(impl.global.rank()) << 16);
  append(key, reinterpret_cast<uint64_t>(impl.layout));
  for (int64_t n : impl.global) append(key, static_cast<uint64_t>(n));
}

void build_key(Key& key, const OpDef& op, Inputs in, Attributes attributes) {
  key.clear();
  append(key, reinterpret_cast<uint64_t>(&op));
  append(key, in.size());
  for (const Tensor* x : in) append_tensor(key, *x);
  size_t bytes = op.key_bytes;
  const char* data = static_cast<const char*>(attributes.data());
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, std::min<size_t>(8, bytes - at));
    append(key, word);
  }
}

struct HashKey {
  size_t operator()(const Key& key) const {
    uint64_t h = 0x9e3779b97f4a7c15ull;
    for (uint64_t w : key) {
      h ^= w;
      h *= 0xff51afd7ed558ccdull;
      h ^= h >> 32;
    }
    return h;
  }
};

struct Cache {
  std::unordered_map<Key, CachedRow, HashKey> rows;
  Key key;
};

// Layouts are interned per world: a cache of an older world would name layouts that are gone.
Cache& cache_of(const dist::MeshState& mesh) {
  static const char tag = 0;
  std::shared_ptr<void>& slot = mesh.cache(&tag);
  if (!slot) slot = std::make_shared<Cache>();
  return *static_cast<Cache*>(slot.get());
}

thread_local size_t last_size = 0;

CachedRow make_row(const OpDef& op, Inputs in, Attributes attributes, std::span<const OutputType> out,
                   const dist::MeshState& mesh) {
  std::vector<TensorType> in_types, out_types;
  std::unique_ptr<bool[]> present(new bool[in.size()]), parameter(new bool[in.size()]);
  for (size_t i = 0; i < in.size(); ++i) {
    present[i] = in[i]->defined();
    parameter[i] = present[i] && in[i]->impl()->parameter;
    in_types.push_back(present[i] ? in[i]->type() : TensorType{});
  }
  for (const OutputType& o : out) out_types.push_back({o.dtype, o.shape, nullptr});
  RuleCall call{op.name, in_types, {present.get(), in.size()}, {parameter.get(), in.size()}, out_types, attributes};
  CachedRow cached;
  if (op.layout.direct()) {
    LayoutRow row = op.layout.direct()(call);
    cached.row.in = std::move(row.in);
    cached.row.out = std::move(row.out);
  } else {
    cached.row = resolve_row(op.layout.factors()(call), call, mesh, op.decompose != nullptr);
  }
  for (size_t i = 0; i < in.size(); ++i) cached.moves |= present[i] && cached.row.in[i] != in_types[i].layout;
  for (size_t i = 0; i < out.size(); ++i)
    cached.local.push_back(dist::local_box(out[i].shape, *cached.row.out[i]).shape);
  return cached;
}

}  // namespace

const CachedRow& cached_row(const OpDef& op, Inputs in, Attributes attributes, std::span<const OutputType> out,
                            const dist::MeshState& mesh) {
  Cache& cache = cache_of(mesh);
  build_key(cache.key, op, in, attributes);
  auto it = cache.rows.find(cache.key);
  if (it == cache.rows.end()) {
    if (cache.rows.size() >= kMaxEntries) cache.rows.clear();
    CachedRow row = make_row(op, in, attributes, out, mesh);
    build_key(cache.key, op, in, attributes);
    it = cache.rows.emplace(cache.key, std::move(row)).first;
    last_size = cache.rows.size();
  }
  return it->second;
}

size_t row_cache_size() { return last_size; }

}  // namespace cleave
