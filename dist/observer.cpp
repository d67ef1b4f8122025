#include <cleave/dist/observer.h>

#include <utility>

namespace cleave::dist {
namespace {

class ObservedPending : public Pending {
 public:
  ObservedPending(std::unique_ptr<Pending> inner, const CollectiveSpan& start, int64_t began)
      : inner_(std::move(inner)), call_(start.call), axis_(start.axis), bytes_(start.bytes), began_(began) {}

  void wait() override {
    {
      CollectiveSpan span(call_, axis_, 0, CollectiveSpan::Part::wait);
      inner_->wait();
    }
    if (Observer* observer = Observer::current(); observer && !std::exchange(told_, true))
      observer->finished(CollectiveSpan(call_, axis_, bytes_, CollectiveSpan::Part::flight), began_,
                         Observer::now_ns());
  }

 private:
  std::unique_ptr<Pending> inner_;
  Collective call_;
  std::string axis_;
  int64_t bytes_, began_;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Pending> observed(std::unique_ptr<Pending> pending, const CollectiveSpan& start, int64_t began) {
  if (!Observer::current()) return pending;
  return std::make_unique<ObservedPending>(std::move(pending), start, began);
}

}  // namespace cleave::dist
