#include "gpt/optimizer.h"

#include <cleave/core/error.h>
#include <cleave/optim/adafactor.h>
#include <cleave/optim/adagrad.h>
#include <cleave/optim/adam.h>
#include <cleave/optim/lamb.h>
#include <cleave/optim/lion.h>
#include <cleave/optim/muon.h>
#include <cleave/optim/rmsprop.h>
#include <cleave/optim/sgd.h>

#include <fmt/format.h>

namespace gpt {

namespace optim = cleave::optim;

namespace {

// Two groups: what decays and what does not.
template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> grouped(const Gpt& model, Options options, double weight_decay) {
  auto [matrices, others] = optim::partition(model.parameters(), optim::decays);
  Options no_decay = options;
  options.weight_decay = weight_decay;
  no_decay.weight_decay = 0;
  return std::make_unique<Optimizer>(std::vector<optim::Group<Options>>{{.parameters = matrices, .options = options},
                                                                        {.parameters = others, .options = no_decay}});
}

// The matrices of the blocks are orthogonalized; tables, heads, biases and norms are left to AdamW.
std::unique_ptr<optim::Optimizer> muon(const Gpt& model, const UpdateOptions& o) {
  auto in_blocks = [](const nn::Parameter& p) { return p.shape().rank() == 2 && p.name().starts_with("blocks."); };
  auto [matrices, others] = optim::partition(model.parameters(), in_blocks);
  optim::MuonOptions options{.lr = o.lr, .weight_decay = o.weight_decay};
  optim::MuonOptions rest = options;
  rest.orthogonal = false;
  rest.rest = optim::AdamWOptions{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0};
  return std::make_unique<optim::Muon>(std::vector<optim::Group<optim::MuonOptions>>{
      {.parameters = matrices, .options = options}, {.parameters = others, .options = rest}});
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const Gpt& model, const UpdateOptions& o) {
  const std::string& name = o.optimizer;
  double decay = o.weight_decay;
  if (name == "adamw")
    return grouped<optim::AdamW>(model, optim::AdamWOptions{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95}, decay);
  if (name == "adam")
    return grouped<optim::Adam>(model, optim::AdamOptions{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95}, decay);
  if (name == "sgd") return grouped<optim::SGD>(model, optim::SGDOptions{.lr = o.lr, .momentum = 0.9}, decay);
  if (name == "adagrad") return grouped<optim::Adagrad>(model, optim::AdagradOptions{.lr = o.lr}, decay);
  if (name == "rmsprop") return grouped<optim::RMSProp>(model, optim::RMSPropOptions{.lr = o.lr}, decay);
  if (name == "lion") return grouped<optim::Lion>(model, optim::LionOptions{.lr = o.lr}, decay);
  if (name == "adafactor") return grouped<optim::Adafactor>(model, optim::AdafactorOptions{.lr = o.lr}, decay);
  if (name == "lamb") return grouped<optim::LAMB>(model, optim::LAMBOptions{.lr = o.lr}, decay);
  if (name == "muon") return muon(model, o);
  throw cleave::ValueError(fmt::format("--optimizer: '{}' is unknown", name));
}

}  // namespace gpt
