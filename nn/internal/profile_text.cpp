#include <cleave/nn/internal/profile_text.h>

#include <cleave/autograd/observer.h>
#include <cleave/dist/observer.h>
#include <cleave/nn/internal/parameter_names.h>
#include <cleave/nn/observer.h>
#include <cleave/ops/observer.h>

#include <string_view>

#include <fmt/format.h>

namespace cleave::nn::detail {
namespace {

using autograd::NodeSpan;
using dist::CollectiveSpan;
using dist::RedistributionSpan;

constexpr size_t kMaxTexts = 65'536;

template <class S>
const S& as(const Span& span) {
  return static_cast<const S&>(span);
}

const char* category(SpanKind kind) {
  constexpr const char* names[] = {"kernel", "collective", "redistribution", "backward", "op",
                                   "module", "phase",      "scope",          "file"};
  return names[static_cast<size_t>(kind)];
}

std::string collective_arguments(const CollectiveSpan& s) {
  return fmt::format("\"axis\":{},\"bytes\":{},\"dtype\":{},\"label\":{}", quoted(s.axis), s.bytes,
                     quoted(to_string(s.call.dtype)), quoted(s.call.label));
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      out.append(1, '\\').append(1, c);
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out += '"';
}

std::string name_of(const Span& span) {
  switch (span.kind) {
    case SpanKind::node:
      return std::string("backward of ").append(span.name);
    case SpanKind::collective: {
      const auto& s = as<CollectiveSpan>(span);
      const char* wait = s.part == CollectiveSpan::Part::wait ? "wait for " : "";
      return fmt::format("{}{} over {}", wait, to_string(s.call.kind), s.axis);
    }
    case SpanKind::redistribution:
      if (std::string_view(span.name) == "gradients") return "reduction of gradients";
      if (std::string_view(span.name) == "parameter") return "gather of a parameter";
      return std::string_view(span.name) == "gather again" ? span.name : "redistribution";
    case SpanKind::module:
      return *span.name ? span.name : "model";
    default:
      return span.name;
  }
}

std::string subject_of(const Span& span) {
  if (span.kind != SpanKind::redistribution) return "";
  const auto& s = as<RedistributionSpan>(span);
  const std::string& name = storage_name(s.subject);
  return s.count == 1 || name.empty() ? name : fmt::format("{} and {} more", name, s.count - 1);
}

void EventTexts::collect(const Span& span) {
  in_.clear();
  out_.clear();
  auto tensors = [](auto& list, const Tensor& x) {
    if (x.defined()) list.push_back({x.dtype(), &x.impl()->global, x.impl()->layout});
  };
  auto gradient = [](auto& list, const autograd::Cotangent& g, const Shape& global, const dist::LayoutData* layout) {
    if (g.value.defined())
      list.push_back({g.value.dtype(), &global, layout ? autograd::gradient_layout(layout, g.partial) : nullptr});
  };
  switch (span.kind) {
    case SpanKind::kernel:
      for (const View* v : as<KernelSpan>(span).call.in)
        if (v) in_.push_back({v->dtype, &v->shape, nullptr});
      for (const View* v : as<KernelSpan>(span).call.out) out_.push_back({v->dtype, &v->shape, nullptr});
      break;
    case SpanKind::op:
      for (const Tensor* x : as<OpSpan>(span).in) tensors(in_, *x);
      for (const Tensor& y : as<OpSpan>(span).out) tensors(out_, y);
      break;
    case SpanKind::redistribution: {
      const auto& s = as<RedistributionSpan>(span);
      in_.push_back({s.from.dtype, &s.from.shape, s.from.layout});
      out_.push_back({s.from.dtype, &s.from.shape, s.to});
      break;
    }
    case SpanKind::node: {
      const auto& s = as<NodeSpan>(span);
      for (size_t i = 0; i < s.cotangents.size(); ++i)
        gradient(in_, s.cotangents[i], s.node.outputs[i].global, s.node.outputs[i].layout);
      for (size_t i = 0; i < s.gradients.size(); ++i) {
        const autograd::Edge& edge = s.node.inputs[i];
        if (edge.node) {
          const auto& producer = edge.node.get()->outputs[static_cast<size_t>(edge.output)];
          gradient(out_, s.gradients[i], producer.global, producer.layout);
        } else if (edge.leaf.defined()) {
          gradient(out_, s.gradients[i], edge.leaf.impl()->global, edge.leaf.impl()->layout);
        }
      }
      break;
    }
    default:
      break;
  }
}

uint32_t EventTexts::of(const std::string& name, const char* category) {
  uint64_t key = Hash().add(category).add(name).value();
  if (auto found = known_.find(key); found != known_.end()) return found->second;
  texts_.push_back({name, category, ""});
  return known_[key] = static_cast<uint32_t>(texts_.size() - 1);
}

uint32_t EventTexts::of(const Span& span, const std::string* subject) {
  collect(span);
  Hash key;
  key.add(static_cast<uint64_t>(span.kind)).add(span.name);
  if (subject) key.add(*subject);
  for (const auto* list : {&in_, &out_}) {
    key.add(list->size());
    for (const TypeRef& t : *list) {
      key.add(static_cast<uint64_t>(t.dtype)).add(reinterpret_cast<uintptr_t>(t.layout));
      for (int64_t n : *t.shape) key.add(static_cast<uint64_t>(n) + 1);
    }
  }
  if (span.kind == SpanKind::collective) {
    const auto& s = as<CollectiveSpan>(span);
    key.add(static_cast<uint64_t>(s.call.kind)).add(s.axis).add(static_cast<uint64_t>(s.bytes));
    key.add(static_cast<uint64_t>(s.call.dtype)).add(static_cast<uint64_t>(s.part));
  }
  if (span.kind == SpanKind::file) key.add(static_cast<uint64_t>(as<FileSpan>(span).bytes));
  if (auto found = known_.find(key.value()); found != known_.end()) return found->second;

  if (texts_.size() >= kMaxTexts) return of(std::string(span.name), category(span.kind));
  EventText text{name_of(span), category(span.kind), ""};
  if (span.kind == SpanKind::file) text.arguments = fmt::format("\"bytes\":{}", as<FileSpan>(span).bytes);
  if (span.kind == SpanKind::collective) text.arguments = collective_arguments(as<CollectiveSpan>(span));
  auto list = [&](const char* name, const std::vector<TypeRef>& types) {
    std::string items;
    for (const TypeRef& t : types)
      items += (items.empty() ? "" : ",") + quoted(to_string(TensorType{t.dtype, *t.shape, t.layout}));
    text.arguments += fmt::format("{}\"{}\":[{}]", text.arguments.empty() ? "" : ",", name, items);
  };
  if (!in_.empty() || !out_.empty()) list("in", in_), list("out", out_);
  if (subject) {
    if (span.kind == SpanKind::redistribution) text.name.append(": ").append(*subject);
    text.arguments += ",\"of\":" + quoted(*subject);
  }
  texts_.push_back(std::move(text));
  return known_[key.value()] = static_cast<uint32_t>(texts_.size() - 1);
}

}  // namespace cleave::nn::detail
