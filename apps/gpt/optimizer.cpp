#include "gpt/optimizer.h"

#include <cleave/core/error.h>
#include <cleave/optim/adam.h>
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
  std::vector<optim::Group<Options>> groups;
  groups.push_back({.parameters = matrices, .options = options});
  groups.push_back({.parameters = others, .options = no_decay});
  return std::make_unique<Optimizer>(std::move(groups));
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const Gpt& model, const UpdateOptions& o) {
  if (o.optimizer == "adamw")
    return grouped<optim::AdamW>(model, optim::AdamWOptions{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95}, o.weight_decay);
  if (o.optimizer == "adam")
    return grouped<optim::Adam>(model, optim::AdamOptions{.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95}, o.weight_decay);
  if (o.optimizer == "sgd")
    return grouped<optim::SGD>(model, optim::SGDOptions{.lr = o.lr, .momentum = 0.9}, o.weight_decay);
  throw cleave::ValueError(fmt::format("--optimizer: '{}' is unknown", o.optimizer));
}

}  // namespace gpt
