// Observers: what watches the calls of modules, to trace, explain or check a run.
#pragma once
#include <functional>
#include <span>

#include <cleave/core/observer.h>
#include <cleave/core/tensor.h>
#include <cleave/nn/module_base.h>

namespace cleave::nn {

/// A running `operator()`, with the placement of inputs and outputs in it: what every Observer is told.
class ModuleSpan : public Span {
 public:
  explicit ModuleSpan(const ModuleBase& module) : Span(SpanKind::module, module.path().c_str()), module(module) {
    open();
  }
  ~ModuleSpan() { close(); }
  const ModuleBase& module;
};

/// Work of this rank on a checkpoint's files: "save", "load". What a thread does for a save in the background ("write",
/// "hash", "complete": see nn/README.md) is told by `Observer::finished`, with the times of that thread, when the rank
/// learns that it is over.
class FileSpan : public Span {
 public:
  enum class Part : uint8_t { scope, background };
  FileSpan(const char* name, int64_t bytes, Part part = Part::scope) : Span(SpanKind::file, name), bytes(bytes) {
    if (part == Part::scope) open();
  }
  ~FileSpan() { close(); }
  const int64_t bytes;  ///< that this rank writes or reads
};

/// While it lives, every `operator()` of a module on this rank is told to it, and to it alone: the last one made is the
/// one in force. A call that throws has no `leave`.
class CallObserver {
 public:
  CallObserver();
  virtual ~CallObserver();
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  /// Before the inputs are placed.
  virtual void enter(const ModuleBase&) {}
  /// The plan brought the "input" or "output" at this position from one layout to another.
  virtual void placed(const ModuleBase&, const char* /*port*/, int /*position*/, const TensorType& /*from*/,
                      const TensorType& /*to*/) {}
  /// With the inputs as `forward` got them and the outputs as the caller gets them.
  virtual void leave(const ModuleBase&, std::span<const Tensor> /*inputs*/, std::span<const Tensor> /*outputs*/) {}

  /// The one in force on this rank, or null.
  static CallObserver* current();

 private:
  CallObserver* before_;
};

/// Calls `observe` after every `operator()`, innermost first, with the module and its output tensors: to find the first
/// whose output is not finite, say.
class OutputObserver : public CallObserver {
 public:
  using Function = std::function<void(const ModuleBase& module, std::span<const Tensor> outputs)>;
  explicit OutputObserver(Function observe) : observe_(std::move(observe)) {}
  void leave(const ModuleBase& module, std::span<const Tensor>, std::span<const Tensor> outputs) override {
    observe_(module, outputs);
  }

 private:
  Function observe_;
};

}  // namespace cleave::nn
