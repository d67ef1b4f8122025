#include <cleave/core/error.h>
#include <cleave/core/kernel.h>
#include <cleave/core/observer.h>

namespace cleave {

void launch(const Kernel& kernel, Device device, const char* op, const KernelCall& call) {
  if (device == Device::Meta) return;
  KernelFn run = device == Device::Cpu ? kernel.cpu : kernel.cuda;
  if (!run)
    throw ValueError("[" + std::string(op) + "] has no kernel for device " + std::string(to_string(device)) +
                     "; move the inputs to a device that has one");
  if (detail::observer) [[unlikely]] {
    KernelSpan span(op, run, call);
    return run(call);
  }
  run(call);
}

}  // namespace cleave
