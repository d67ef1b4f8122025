// What kernels say that they take while they run, beside what they take: a dry run on Device::Meta counts the former.
#include <cleave/autograd/engine.h>
#include <cleave/core/allocator.h>
#include <cleave/ops/activation.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/join.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/normalization.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/softmax.h>
#include <cleave/ops/view.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "support/op_case.h"

using namespace cleave;
using namespace cleave::test;

namespace {

// The most that was held at a time, above what there was before.
class Peak : public AllocationObserver {
 public:
  Peak() { AllocationObserver::set(this); }
  ~Peak() override { AllocationObserver::set(nullptr); }
  void allocated(uint64_t number, int64_t bytes, Device, MemoryUse) override {
    held_ += there_[number] = bytes;
    peak = std::max(peak, held_);
  }
  void released(uint64_t number) override {
    if (auto block = there_.find(number); block != there_.end()) held_ -= block->second, there_.erase(block);
  }
  int64_t peak = 0;

 private:
  std::map<uint64_t, int64_t> there_;
  int64_t held_ = 0;
};

enum class Order { dense, turned, strided };

// The same type in another order of memory, on the device.
Tensor input(const SampleInput& s, const Values& values, DType dtype, Device device, Order order) {
  if (s.absent) return {};
  Tensor x = device == Device::Cpu ? make_tensor(values, dtype) : empty(s.shape, {.dtype = dtype, .device = device});
  int last = s.shape.rank() - 1;
  if (order == Order::turned && last > 0) x = transpose(contiguous(transpose(x, 0, last)), 0, last);
  if (order == Order::strided && last >= 0) x = slice(cat({x, x}, last), last, 0, s.shape[last]);
  return x.detach();
}

struct Peaks {
  int64_t forward = 0, backward = 0;
};

Peaks peaks(const OpCase& c, DType dtype, Device device, Order order) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(input(c.inputs[i], c.values[i], c.dtype(i, dtype), device, order));
    if (c.differentiable(i)) inputs.back().set_requires_grad(true);
  }
  Peaks out;
  std::vector<Tensor> outputs;
  {
    Peak scratch;
    outputs = run_op(*c.op, c.attributes(), inputs);
    out.forward = scratch.peak;
  }
  if (!c.has_gradient) return out;
  std::vector<Seed> seeds;
  for (const Tensor& y : outputs)
    seeds.push_back({is_floating(y.dtype()) ? ones(y.shape(), {.dtype = y.dtype(), .device = device}) : Tensor(), 0});
  Peak scratch;
  run_backward(inputs, outputs, seeds);
  out.backward = scratch.peak;
  return out;
}

}  // namespace

TEST_CASE("every op's kernels take the scratch memory that they declare, forward and backward") {
  Report report;
  int64_t some = 0;
  for (const OpCase& c : registered_cases(Sizes::some))
    for (DType dtype : {DType::f32, DType::bf16})
      for (Order order : {Order::dense, Order::turned, Order::strided}) {
        Peaks real = peaks(c, dtype, Device::Cpu, order), declared = peaks(c, dtype, Device::Meta, order);
        some += real.forward + real.backward > 0;
        report.count();
        auto differ = [](int64_t a, int64_t b) { return std::abs(a - b) > 256; };  // parts are rounded up one by one
        if (differ(real.forward, declared.forward) || differ(real.backward, declared.backward))
          report.fail(c.name + " " + std::string(to_string(dtype)) + ", order " +
                      std::to_string(static_cast<int>(order)) + ": takes " + std::to_string(real.forward) + " and " +
                      std::to_string(real.backward) + " bytes, declares " + std::to_string(declared.forward) + " and " +
                      std::to_string(declared.backward));
      }
  CHECK_MESSAGE(report.failures() == 0, report.text());
  CHECK(some > 100);
}

TEST_CASE("large inputs whose rows lie across those of the output: copies that no sample is large enough for") {
  struct Case {
    const char* name;
    Tensor (*f)(const Tensor& x);
  };
  const Case cases[] = {
      {"cast", [](const Tensor& x) { return cast(x, DType::bf16); }},
      {"add", [](const Tensor& x) { return x + ones({300}, {.device = x.device()}); }},
      {"cat",
       [](const Tensor& x) {
         return cat({x, cast(x, DType::f64)}, 0);
       }},
      {"pad", [](const Tensor& x) { return pad(x, 1, 2, 3); }},
      {"sum", [](const Tensor& x) { return sum(x, {0}); }},
      {"mean", [](const Tensor& x) { return mean(x, {1}); }},
      {"amax", [](const Tensor& x) { return amax(x, {1}); }},
      {"masked_fill", [](const Tensor& x) { return masked_fill(x, gt(x, 0.0), 1.0); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"layer_norm",
       [](const Tensor& x) {
         Tensor w = ones({300}, {.device = x.device()});
         return layer_norm(x, {300}, w, w);
       }},
      {"layer_norm of two dims",
       [](const Tensor& x) {
         Tensor w = ones({200, 300}, {.device = x.device()});
         return layer_norm(x, {200, 300}, w, w);
       }},
      {"rms_norm", [](const Tensor& x) { return rms_norm(x, {300}, ones({300}, {.device = x.device()})); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"matmul", [](const Tensor& x) { return matmul(x, transpose(x, 0, 1)); }},
      {"matmul of halves",
       [](const Tensor& x) {
         Tensor h = cast(x, DType::bf16);
         return matmul(h, transpose(h, 0, 1));
       }},
      {"linear",
       [](const Tensor& x) {
         return linear(x, ones({50, 300}, {.device = x.device()}));
       }},
      {"mul_", [](const Tensor& x) {
         Tensor y = x * 1.0;
         mul_(y.detach(), 2.0);
         return y;
       }}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    int64_t taken[2] = {0, 0};
    for (int meta : {0, 1}) {
      Device device = meta ? Device::Meta : Device::Cpu;
      Tensor x = transpose(ones({300, 200}, {.device = device}), 0, 1).detach().set_requires_grad();
      Peak peak;
      Tensor y = c.f(x);
      cast(sum(cast(y, DType::f32)), DType::f32).backward();
      taken[meta] = peak.peak;
    }
    CHECK(taken[0] > 0);
    CHECK(std::abs(taken[0] - taken[1]) <= taken[0] / 200 + 4096);
  }
}
