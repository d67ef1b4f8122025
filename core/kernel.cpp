#include <cleave/core/allocator.h>
#include <cleave/core/error.h>
#include <cleave/core/kernel.h>
#include <cleave/core/observer.h>

namespace cleave {
namespace {

void count_scratch(const Kernel& kernel, const KernelCall& call) {
  if (!kernel.cpu_scratch) return;
  int64_t bytes = kernel.cpu_scratch(call);
  if (bytes == 0) return;
  detail::MemoryUseScope use(MemoryUse::workspace);
  detail::release(detail::allocate(bytes, Device::Meta));
}

}  // namespace

void launch(const Kernel& kernel, Device device, const char* op, const KernelCall& call) {
  if (device == Device::Meta) return count_scratch(kernel, call);
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
