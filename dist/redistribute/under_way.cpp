#include <cleave/dist/redistribute/under_way.h>

#include <exception>

namespace cleave::dist::steps {
namespace {

class UnderWay : public PendingOperation {
 public:
  // The result by its view alone: its storage holds this.
  UnderWay(std::unique_ptr<Pending> collective, const View& out, InUse use)
      : use_(std::move(use)), out_(out), collective_(std::move(collective)) {}

  void wait() override {
    if (auto collective = std::move(collective_)) {
      try {
        collective->wait();
        unpack(use_.received, out_, use_.boxes);
      } catch (...) { error_ = std::current_exception(); }
      use_ = {};
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  InUse use_;
  View out_;
  std::exception_ptr error_;
  std::unique_ptr<Pending> collective_;
};

}  // namespace

void put_under_way(std::unique_ptr<Pending> collective, const Tensor& out, InUse use) {
  Tensor source = use.sent.buffer.defined() || !use.source.defined() ? Tensor() : use.source.detach();
  use.source = source;
  auto operation = std::make_shared<UnderWay>(std::move(collective), out.impl()->view, std::move(use));
  if (source.defined()) source.impl()->storage->set_pending(operation);
  out.impl()->storage->set_pending(std::move(operation));
}

}  // namespace cleave::dist::steps
