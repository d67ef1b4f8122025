// The cases of dispatch.cpp through libtorch.
#include <torch/torch.h>

#include "../measure.h"

namespace {

template <class F>
void measure(const char* name, int calls, F&& call) {
  double seconds = bench::least(20, [&] {
    for (int i = 0; i < calls; ++i) call();
  });
  bench::report("dispatch", name, seconds / calls * 1e9, "ns", "libtorch");
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  torch::Tensor a = torch::ones({16}), b = torch::ones({16});
  torch::Tensor leaf = torch::ones({16}).requires_grad_();
  measure("plain", 20000, [&] { a + b; });
  measure("tape", 20000, [&] { leaf + b; });
  measure("ten_backward", 1000, [&] {
    torch::Tensor t = leaf * b;
    for (int i = 1; i < 10; ++i) t = t * b;
    t.sum().backward();
    leaf.mutable_grad() = torch::Tensor();
  });
}
