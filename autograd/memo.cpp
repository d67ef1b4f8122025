#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/memo.h>
#include <cleave/autograd/node.h>
#include <cleave/core/tensor_impl.h>

#include <unordered_map>
#include <vector>

namespace cleave {
namespace autograd {
namespace {

struct Entry {
  detail::TensorImpl* result;
  uint32_t source_version, result_version;
  const LayoutData* to;
  bool grad;   // grad mode and whether the source required grad: what decides if the result is on the tape
  bool again;  // for whom saves the result to gather it again
};

bool taped(const Tensor& x) { return grad_enabled() && x.requires_grad(); }

// By source. Entries leave when either side dies; both sides carry a flag so that others pay nothing.
struct Table {
  std::unordered_map<detail::TensorImpl*, std::vector<Entry>> by_source;
  std::unordered_map<detail::TensorImpl*, detail::TensorImpl*> source_of;
  std::unordered_map<const Storage*, detail::TensorImpl*> result_on;  // results on a storage of their own
};

thread_local bool table_gone = false;
struct TableOwner {
  Table table;
  ~TableOwner() { table_gone = true; }
};
Table& table() {
  thread_local TableOwner owner;
  return owner.table;
}

// What was only looked at leads nowhere.
bool leads_on(const Tensor& result) {
  return !saving_enabled() || !result.has_producer() || result.impl()->autograd->producer->runs;
}

thread_local MemoScope* innermost = nullptr;

// A result is taken only if nothing of it has begun to die: another thread may hold the last reference.
bool try_retain(detail::TensorImpl* impl) {
  uint32_t n = impl->references.load(std::memory_order_relaxed);
  while (n != 0)
    if (impl->references.compare_exchange_weak(n, n + 1, std::memory_order_acquire)) return true;
  return false;
}

}  // namespace

Tensor recall(const Tensor& x, const LayoutData* to) {
  if (!x.impl()->memoised) return {};
  auto it = table().by_source.find(x.impl());
  if (it == table().by_source.end()) return {};
  for (const Entry& e : it->second) {
    if (e.to != to || e.grad != taped(x) || e.source_version != x.version()) continue;
    if (e.result->storage->version() != e.result_version) continue;
    if (!try_retain(e.result)) continue;
    if (Tensor known(e.result); leads_on(known)) return known;
  }
  return {};
}

void remember(const Tensor& x, const LayoutData* to, const Tensor& result, bool again) {
  detail::forget_memo(result.impl());
  Table& t = table();
  t.by_source[x.impl()].push_back({result.impl(), x.version(), result.version(), to, taped(x), again});
  t.source_of[result.impl()] = x.impl();
  x.impl()->memoised = result.impl()->memoised = true;
  if (result.storage() != x.storage()) t.result_on[result.storage()] = result.impl();
  if (innermost) innermost->kept_.push_back(result);
}

Tensor recall_value(const Tensor& x, const LayoutData* to) {
  if (!x.impl()->memoised) return {};
  auto it = table().by_source.find(x.impl());
  if (it == table().by_source.end()) return {};
  for (const Entry& e : it->second)
    if (e.to == to && e.source_version == x.version() && e.result->storage->version() == e.result_version &&
        try_retain(e.result))
      return Tensor(e.result).detach();
  return {};
}

Remembered remembered(const Tensor& x) {
  if (!x.storage()->redistributed()) return {};
  Table& t = table();
  auto found = t.result_on.find(x.storage());
  if (found == t.result_on.end() || !try_retain(found->second)) return {};
  Tensor result(found->second);
  auto source = t.source_of.find(result.impl());
  if (source == t.source_of.end() || !try_retain(source->second)) return {};
  Tensor from(source->second);
  for (const Entry& e : t.by_source[from.impl()])
    if (e.result == result.impl() && e.source_version == from.version() && e.result_version == result.version())
      return {from, result, e.to, e.again};
  return {};
}

MemoScope::MemoScope(bool ends_here) : outer_(std::exchange(innermost, this)), ends_here_(ends_here) {}
MemoScope::~MemoScope() {
  innermost = outer_;
  if (ends_here_ || !outer_ || saving_enabled()) return;
  for (Tensor& y : kept_)
    if (!y.impl()->parameter) outer_->kept_.push_back(std::move(y));
}

}  // namespace autograd

void detail::forget_memo(TensorImpl* impl) noexcept {
  if (autograd::table_gone) return;
  auto& t = autograd::table();
  if (auto on = t.result_on.find(impl->storage); on != t.result_on.end() && on->second == impl) t.result_on.erase(on);
  if (auto it = t.source_of.find(impl); it != t.source_of.end()) {
    if (auto source = t.by_source.find(it->second); source != t.by_source.end()) {
      std::erase_if(source->second, [&](const autograd::Entry& e) { return e.result == impl; });
      if (source->second.empty()) t.by_source.erase(source);
    }
    t.source_of.erase(it);
  }
  if (auto it = t.by_source.find(impl); it != t.by_source.end()) {
    for (const autograd::Entry& e : it->second) t.source_of.erase(e.result);
    t.by_source.erase(it);
  }
}

}  // namespace cleave
