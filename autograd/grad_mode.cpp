#include <cleave/autograd/grad_mode.h>

#include <utility>

namespace cleave {
namespace {
thread_local bool enabled = true, saving = true;
}

bool grad_enabled() { return enabled; }
NoGrad::NoGrad() : before_(std::exchange(enabled, false)) {}
NoGrad::~NoGrad() { enabled = before_; }
EnableGrad::EnableGrad() : before_(std::exchange(enabled, true)) {}
EnableGrad::~EnableGrad() { enabled = before_; }
bool saving_enabled() { return saving; }
RecordOnly::RecordOnly() : before_(std::exchange(saving, false)) {}
RecordOnly::~RecordOnly() { saving = before_; }

}  // namespace cleave
