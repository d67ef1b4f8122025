#include <cleave/nn/observer.h>

#include <utility>

namespace cleave::nn {

namespace {
thread_local CallObserver* observer = nullptr;
}

CallObserver::CallObserver() : before_(std::exchange(observer, this)) {}
CallObserver::~CallObserver() { observer = before_; }
CallObserver* CallObserver::current() { return observer; }

}  // namespace cleave::nn
