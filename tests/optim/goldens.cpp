// Optimizers against PyTorch, and against their papers' formulas in f64 where it has none (goldens/make_goldens.py).
#include "support/goldens.h"
#include "nn/support.h"

#include <memory>

using namespace cleave;
using namespace cleave::test;

namespace {

using Make = std::function<std::unique_ptr<optim::Optimizer>(const Tensor&)>;

template <class O, class Options>
Make make(const Options& options) {
  return [options](const Tensor& w) { return std::make_unique<O>(std::vector{w}, options); };
}

const std::pair<const char*, Make> kCases[] = {
    {"sgd", make<optim::SGD>(optim::SGDOptions{.lr = 0.1})},
    {"sgd_momentum", make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01})},
    {"sgd_dampening", make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5})},
    {"sgd_nesterov", make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true})},
    {"adam",
     make<optim::Adam>(optim::AdamOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1})},
    {"adamw", make<optim::AdamW>(
                  optim::AdamWOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1})},
    {"adamw_defaults", make<optim::AdamW>(optim::AdamWOptions{.lr = 0.001})},
    {"adagrad", make<optim::Adagrad>(optim::AdagradOptions{
                    .lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.1, .initial_accumulator = 0.5})},
    {"rmsprop", make<optim::RMSProp>(optim::RMSPropOptions{.lr = 0.01, .alpha = 0.9, .weight_decay = 0.1})},
    {"rmsprop_momentum", make<optim::RMSProp>(optim::RMSPropOptions{.lr = 0.01, .momentum = 0.9})},
    {"rmsprop_centered", make<optim::RMSProp>(optim::RMSPropOptions{.lr = 0.01, .alpha = 0.5, .centered = true})},
    {"rmsprop_both",
     make<optim::RMSProp>(optim::RMSPropOptions{.lr = 0.01, .alpha = 0.5, .momentum = 0.9, .centered = true})},
    {"adafactor", make<optim::Adafactor>(optim::AdafactorOptions{.weight_decay = 0.1})},
    {"adafactor_batch", make<optim::Adafactor>(optim::AdafactorOptions{.lr = 0.8})},
    {"adafactor_vector", make<optim::Adafactor>(optim::AdafactorOptions{})},
    {"adafactor_momentum", make<optim::Adafactor>(optim::AdafactorOptions{.clip = 0.5, .beta1 = 0.9})},
    {"lion", make<optim::Lion>(optim::LionOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1})},
    {"lamb",
     make<optim::LAMB>(optim::LAMBOptions{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1})},
    {"muon_wide", make<optim::Muon>(optim::MuonOptions{.lr = 0.02, .momentum = 0.9})},
    {"muon_tall", make<optim::Muon>(optim::MuonOptions{.lr = 0.02, .momentum = 0.9})},
    {"muon_torch", make<optim::Muon>(optim::MuonOptions{.lr = 0.02})},
    {"muon_torch_adamw_rate", make<optim::Muon>(optim::MuonOptions{.lr = 0.02,
                                                                   .momentum = 0.9,
                                                                   .nesterov = false,
                                                                   .weight_decay = 0,
                                                                   .steps = 3,
                                                                   .scale = optim::MuonScale::match_adamw})},
    {"muon_torch_coefficients",
     make<optim::Muon>(optim::MuonOptions{.lr = 0.1, .steps = 8, .a = 2.0, .b = -1.5, .c = 0.5})},
    {"adafactor_plain",
     make<optim::Adafactor>(optim::AdafactorOptions{
         .lr = 0.05, .relative_step = false, .scale_parameter = false, .beta2_decay = -0.5, .eps1 = 1e-12})},
    {"lamb_raw", make<optim::LAMB>(optim::LAMBOptions{.lr = 0.1, .bias_correction = false})},
    {"sgd_all", make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.8, .weight_decay = 0.2, .nesterov = true})},
    {"sgd_damped_decay",
     make<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.2})},
    {"rmsprop_all",
     make<optim::RMSProp>(optim::RMSPropOptions{
         .lr = 0.01, .alpha = 0.7, .eps = 1e-3, .weight_decay = 0.1, .momentum = 0.5, .centered = true})},
    {"adagrad_eps", make<optim::Adagrad>(optim::AdagradOptions{.lr = 0.1, .eps = 0.1})},
    {"adam_betas_0", make<optim::Adam>(optim::AdamOptions{.lr = 0.01, .beta1 = 0, .beta2 = 0})}};

void run(const Golden& g, const Make& make, const Tensor& w) {
  auto opt = make(w);
  for (int step = 1; step <= 5; ++step) {
    Tensor gradient = golden_tensor(g, "g" + std::to_string(step));
    if (w.is_distributed()) gradient = dist::replicate(gradient, w.layout().mesh());
    sum(w * gradient).backward();
    opt->step();
    opt->zero_grad();
    CAPTURE(step);
    CHECK(distance(w, golden_tensor(g, "p" + std::to_string(step))) < 1e-12);
  }
}

}  // namespace

TEST_CASE("five steps are PyTorch's or the paper's") {
  for (const auto& [name, make] : kCases) {
    CAPTURE(std::string(name));
    const Golden& g = golden(std::string("optim_") + name);
    run(g, make, clone(golden_tensor(g, "p0")));
  }
}

TEST_CASE("so they are on split parameters") {
  on_ranks({2, 3, 4}, [&](dist::World& world) {
    dist::DeviceMesh mesh = grid(world);
    for (const auto& [name, make] : kCases)
      for (const char* text : {"dp, ...", "..., tp", "dp.tp, ...", "..., tp.dp"}) {
        CAPTURE(std::string(name));
        CAPTURE(text);
        const Golden& g = golden(std::string("optim_") + name);
        Tensor start = golden_tensor(g, "p0");
        run(g, make, dist::distribute(start, mesh.layout(start.dim() ? text : "")));
      }
  });
}

namespace {

template <class Options>
std::vector<optim::Group<Options>> two(const Tensor& p, const Tensor& q, const Options& first, const Options& second,
                                       std::optional<optim::Schedule> schedule) {
  auto handles = optim::parameters_of({p, q});
  return {{{handles[0]}, first, schedule}, {{handles[1]}, second, schedule}};
}

using TwoGroups = std::function<std::unique_ptr<optim::Optimizer>(const Tensor& p, const Tensor& q)>;
const std::pair<const char*, TwoGroups> kGroups[] = {
    {"groups_constant",
     [](const Tensor& p, const Tensor& q) {
       optim::AdamWOptions a{.lr = 0.05, .weight_decay = 0.2},
           b{.lr = 0.02, .beta1 = 0.5, .beta2 = 0.9, .weight_decay = 0};
       return std::make_unique<optim::AdamW>(two(p, q, a, b, {}));
     }},
    {"groups_linear",
     [](const Tensor& p, const Tensor& q) {
       optim::SGDOptions a{.lr = 0.1, .momentum = 0.9}, b{.lr = 0.3};
       return std::make_unique<optim::SGD>(two(p, q, a, b, optim::linear(0.25, 1, 3)));
     }},
    {"groups_warmup_cosine", [](const Tensor& p, const Tensor& q) {
       optim::AdamWOptions a{.lr = 0.1, .weight_decay = 0.2}, b{.lr = 0.1, .weight_decay = 0};
       return std::make_unique<optim::AdamW>(two(p, q, a, b, optim::warmup(3).then(optim::cosine(4, 0.1))));
     }}};

void run(const Golden& g, const TwoGroups& make, const Tensor& p, const Tensor& q) {
  auto opt = make(p, q);
  auto given = [&](const std::string& name) {
    Tensor gradient = golden_tensor(g, name);
    return p.is_distributed() ? dist::replicate(gradient, p.layout().mesh()) : gradient;
  };
  for (int step = 1; g.count("p" + std::to_string(step)); ++step) {
    std::string k = std::to_string(step);
    (sum(p * given("g" + k)) + sum(q * given("q_g" + k))).backward();
    opt->step();
    opt->zero_grad();
    CAPTURE(step);
    CHECK(distance(p, golden_tensor(g, "p" + k)) < 1e-12);
    CHECK(distance(q, golden_tensor(g, "q" + k)) < 1e-12);
  }
}

}  // namespace

TEST_CASE("groups with options of their own, under PyTorch's schedules, on one device and split") {
  for (const auto& [name, make] : kGroups) {
    CAPTURE(std::string(name));
    const Golden& g = golden(std::string("optim_") + name);
    run(g, make, clone(golden_tensor(g, "p0")), clone(golden_tensor(g, "q0")));
    on_ranks({2, 3, 4}, [&](dist::World& world) {
      dist::DeviceMesh mesh = grid(world);
      run(g, make, dist::distribute(golden_tensor(g, "p0"), mesh.layout("dp, tp")),
          dist::distribute(golden_tensor(g, "q0"), mesh.layout("tp.dp")));
    });
  }
}
