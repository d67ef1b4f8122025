// Where numbers stopped being finite.
#pragma once
#include <cleave/nn/observer.h>

#include <string>

namespace gpt {

/// While it lives, watches the outputs of modules. Communicates at every call of a module.
class FirstNotFinite {
 public:
  FirstNotFinite();
  /// "the first module whose output is not finite is blocks.0.mlp.up (f32[16, 128, 768])", alike on all ranks.
  std::string text() const;

 private:
  std::string found_;
  cleave::nn::OutputObserver observer_;
};

/// "the first parameter whose gradient is not finite is token.weight". Communicates.
std::string first_gradient_not_finite(const cleave::nn::ModuleBase& model);

}  // namespace gpt
