// Observers: what watches one rank at work, as spans that every floor of the library opens.
#pragma once
#include <cstdint>

#include <cleave/core/kernel.h>

namespace cleave {

class Span;

/// Sees the spans of the ranks (threads) that it was set on. Spans nest: each ends before the one around it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin(const Span& span) = 0;
  virtual void end(const Span& span) = 0;
  /// Something that went on beside the spans is over: a collective that was started and waited for later. Times are of
  /// `now_ns()`.
  virtual void finished(const Span& /*span*/, int64_t /*began*/, int64_t /*ended*/) {}

  /// The one of this rank, or null.
  static Observer* current();
  /// Makes it that of this rank (null: none) and returns the one before. Spans that are open then are not told to
  /// either.
  static Observer* set(Observer* observer);
  /// Nanoseconds of the steady clock.
  static int64_t now_ns();
};

namespace detail {
extern thread_local constinit Observer* observer;
}

/// What a span is; each kind but `phase` and `scope` has a type of its own, which says more.
enum class SpanKind : uint8_t {
  kernel,          ///< KernelSpan
  collective,      ///< dist::CollectiveSpan
  redistribution,  ///< dist::RedistributionSpan
  node,            ///< autograd::NodeSpan, one step of backward
  op,              ///< OpSpan
  module,          ///< nn::ModuleSpan
  phase,           ///< "backward", "optimizer"
  scope,           ///< a user's own
  file             ///< nn::FileSpan
};

/// Lives on the stack while it lasts.
class Span {
 public:
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  const SpanKind kind;
  const char* const name;

 protected:
  Span(SpanKind kind, const char* name) : kind(kind), name(name) {}
  ~Span() = default;
  /// Derived classes call these last in their constructor and first in their destructor.
  void open() {
    observer_ = detail::observer;
    if (observer_) [[unlikely]]
      observer_->begin(*this);
  }
  void close() {
    if (observer_) [[unlikely]]
      tell_end();
  }

 private:
  void tell_end();
  Observer* observer_ = nullptr;
};

/// A span with nothing but a name, which must outlive it.
class NamedSpan : public Span {
 public:
  NamedSpan(SpanKind kind, const char* name) : Span(kind, name) { open(); }
  ~NamedSpan() { close(); }
};

/// One launch of a kernel.
class KernelSpan : public Span {
 public:
  KernelSpan(const char* op, KernelFn function, const KernelCall& call)
      : Span(SpanKind::kernel, op), function(function), call(call) {
    open();
  }
  ~KernelSpan() { close(); }
  const KernelFn function;
  const KernelCall& call;
};

}  // namespace cleave
