#include <cleave/autograd/grad_mode.h>
#include <cleave/core/cpu/optimizer.h>
#include <cleave/core/kernel.h>
#include <cleave/core/primitives.h>
#include <cleave/dist/communicator.h>
#include <cleave/ops/host.h>
#include <cleave/optim/ema.h>
#include <cleave/optim/internal/names.h>
#include <cleave/optim/internal/options.h>
#include <cleave/optim/internal/owned.h>
#include <cleave/optim/internal/updated.h>

#include <algorithm>
#include <exception>
#include <map>

namespace cleave::optim {

namespace {

// In place: the output is the average, which is read and written.
constexpr Kernel kernel{
    .cpu = [](const KernelCall& c) { cpu::average(*c.out[0], *c.in[0], c.attributes.as<cpu::AverageStep>()); }};

// Writes this rank's block; whoever saved the parameter sees a new version.
void write(const Tensor& to, const Tensor& from) {
  if (to.impl()->absent) return;
  cleave::detail::copy_view(to.device(), cleave::detail::elements(from), cleave::detail::elements(to));
  to.bump_version();
}

}  // namespace

EMA::EMA(std::vector<nn::Parameter> parameters, const Optimizer* optimizer, const EMAOptions& options)
    : parameters_(std::move(parameters)), optimizer_(optimizer), options_(options) {
  if (parameters_.empty()) throw ValueError("[ema] there are no parameters to average");
  detail::require_fraction("ema", "decay", options.decay);
  names_ = detail::names_of(parameters_, "ema");
  averages_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!parameters_[i].is_deferred()) follow(i);
}
EMA::EMA(std::vector<nn::Parameter> parameters, const EMAOptions& options)
    : EMA(std::move(parameters), nullptr, options) {}
EMA::EMA(const Optimizer& optimizer, const EMAOptions& options) : EMA(optimizer.parameters(), &optimizer, options) {}

// What is averaged, its average being there and under the same layout.
Tensor EMA::follow(size_t i) {
  const nn::Parameter& p = parameters_[i];
  if (p.is_deferred())
    throw ValueError("[ema] parameter " + names_[i] +
                     " is deferred and has no elements yet; call shard(model, mesh, plan) or materialize(model) first");
  Tensor value = optimizer_ ? optimizer_->master(i) : Tensor();
  if (!value.defined()) {
    const dist::LayoutData* state = p.state()->state_layout;
    value = p.tensor().detach();
    if (state && !value.impl()->absent) value = detail::in_layout(value, state);
  }
  Tensor& average = averages_[i];
  DType dtype = detail::working(p.dtype());
  if (!average.defined())
    average = detail::own_copy(value, dtype);
  else if (average.impl()->layout != value.impl()->layout)
    average = detail::own_copy(detail::in_layout(average, value.impl()->layout), dtype);
  return value;
}

void EMA::update() {
  NoGrad off;
  dist::PhaseScope phase("optimizer");
  if (swapped()) throw ValueError("[ema] update() while the averages are in the parameters' places; swap() first");
  auto t = static_cast<double>(updates_);
  double decay = options_.warmup ? std::min(options_.decay, (1 + t) / (10 + t)) : options_.decay;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor value = follow(i);
    if (value.impl()->absent) continue;
    const View* in[] = {&cleave::detail::elements(value)};
    const View* out[] = {&cleave::detail::elements(averages_[i])};
    launch(kernel, value.device(), "ema", {in, out, cpu::AverageStep{1 - decay}});
  }
  ++updates_;
}

void EMA::swap() {
  NoGrad off;
  dist::PhaseScope phase("optimizer");
  if (swapped()) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& stored = parameters_[i].tensor();  // sharded anew since, it may be
      write(stored, detail::in_layout(own_[i], stored.impl()->layout));
    }
    own_.clear();
    return;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) follow(i);
  detail::Updated averaged;
  std::vector<Tensor> own;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& stored = parameters_[i].tensor();
    own.push_back(detail::own_copy(stored, stored.dtype()));
    if (!stored.impl()->absent) averaged.add(stored, averages_[i]);
  }
  own_ = std::move(own);
  try {
    averaged.bring_back();
  } catch (...) {
    swap();
    throw;
  }
}

EMA::Scope::~Scope() {
  try {
    ema_.swap();
  } catch (const std::exception&) {
    // A gather of a parameter has failed, as when another rank ended: whoever uses the parameter next meets that error.
  }
}

std::vector<NamedTensor> EMA::state() const {
  std::vector<NamedTensor> out;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (averages_[i].defined()) out.emplace_back(names_[i] + ".average", averages_[i]);
  Tensor count = cleave::detail::make_tensor({}, DType::i64, Device::Cpu);
  *count.data<int64_t>() = updates_;
  out.emplace_back("ema.updates", count);
  return out;
}

void EMA::load_state(const std::vector<NamedTensor>& state) {
  NoGrad off;
  if (swapped()) throw ValueError("[ema] load_state() while swapped; swap() first");
  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : state)
    if (!given.emplace(name, tensor).second) throw ValueError("[load_state] \"" + name + "\" is given twice");
  auto take = [&](const std::string& name, const Shape& shape) {
    auto it = given.find(name);
    if (it == given.end()) throw ValueError("[load_state] \"" + name + "\" is missing");
    Tensor tensor = it->second;
    given.erase(it);
    if (!(tensor.shape() == shape))
      throw ShapeError("[load_state] " + name + " is " + to_string(tensor.type()) + " but must have the shape " +
                       to_string(shape));
    return tensor;
  };
  std::vector<Tensor> averages;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor tensor = take(names_[i] + ".average", parameters_[i].shape());
    if (!is_floating(tensor.dtype()))
      throw DTypeError("[load_state] " + names_[i] + ".average is " + to_string(tensor.type()) +
                       " and must be floating");
    averages.push_back(tensor);
  }
  auto updates = item<int64_t>(take("ema.updates", {}));
  if (updates < 0) throw ValueError("[load_state] ema.updates is " + std::to_string(updates));
  if (!given.empty())
    throw ValueError("[load_state] \"" + given.begin()->first + "\" is not \"<parameter>.average\" of this average");
  for (size_t i = 0; i < parameters_.size(); ++i)
    averages[i] = detail::own_copy(averages[i], detail::working(parameters_[i].dtype()));
  averages_ = std::move(averages);
  updates_ = updates;
}

}  // namespace cleave::optim
