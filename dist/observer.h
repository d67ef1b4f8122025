// The spans of communication, for observers.
#pragma once
#include <string>

#include <cleave/core/observer.h>
#include <cleave/core/type.h>
#include <cleave/dist/communicator.h>

namespace cleave::dist {

/// A collective. Its time has the waiting for other ranks in it. `axis` and `bytes` are as `comm_counts()` has them;
/// what it does not count, and a wait, has no bytes.
class CollectiveSpan : public Span {
 public:
  enum class Part : uint8_t {
    call,   ///< a blocking call, or the start of one
    wait,   ///< the wait for one that was started
    flight  ///< from its start to the end of the wait: no span of its own, only for `Observer::finished`
  };
  CollectiveSpan(const Collective& call, const std::string& axis, int64_t bytes, Part part = Part::call)
      : Span(SpanKind::collective, call.label), call(call), axis(axis), bytes(bytes), part(part) {
    if (part != Part::flight) open();
  }
  ~CollectiveSpan() { close(); }
  operator const Collective&() const { return call; }
  Collective call;
  const std::string& axis;
  const int64_t bytes;
  const Part part;
};

/// `pending`, which `start` began at `began` (`Observer::now_ns`); while an observer is set, one that tells it of the
/// wait and the whole time.
std::unique_ptr<Pending> observed(std::unique_ptr<Pending> pending, const CollectiveSpan& start, int64_t began);

/// A tensor on its way from one layout to another; or several that share a collective, of which this is the first.
class RedistributionSpan : public Span {
 public:
  RedistributionSpan(const char* label, const TensorType& from, const LayoutData* to, const void* subject,
                     int64_t count = 1)
      : Span(SpanKind::redistribution, label), from(from), to(to), subject(subject), count(count) {
    open();
  }
  ~RedistributionSpan() { close(); }
  const TensorType& from;
  const LayoutData* const to;
  const void* const subject;  ///< the storage of the tensor, or of the leaf whose gradient this is: names it
  const int64_t count;
};

}  // namespace cleave::dist
