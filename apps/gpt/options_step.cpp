// The options of a training step: how its numbers are made, and how the weights are updated by them.
#include <cleave/core/error.h>

#include <map>

#include <fmt/format.h>

#include "gpt/options_groups.h"

namespace gpt {

using cleave::DType;

namespace {

void add_dtype(CLI::App& app, DType& dtype) {
  static const std::map<std::string, DType> kinds{
      {"f32", DType::f32}, {"f64", DType::f64}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  auto read = [&dtype](const std::string& text) { dtype = kinds.at(text); };
  app.add_option_function<std::string>(
         "--dtype", read, "f32, f64, or bf16, f16: weights and activations of 16 bits, updated in f32 [f32]")
      ->check(CLI::IsMember({"f32", "f64", "bf16", "f16"}).description(""))
      ->group("Step");
}

}  // namespace

void add_step_options(CLI::App& app, StepOptions& o) {
  const std::string group = "Step";
  app.add_option("--batch", o.batch, "sequences per step, over all ranks")->capture_default_str()->group(group);
  add_dtype(app, o.dtype);
  app.add_option("--accumulate", o.accumulate, "micro-batches that a batch is made in, to save memory")
      ->capture_default_str()
      ->group(group);
  app.add_option_function<std::string>(
         "--autocast", [&o](const std::string& text) { o.autocast = text == "bf16" ? DType::bf16 : DType::f16; },
         "products in bf16 or f16 while weights stay in --dtype, sums and norms in f32")
      ->check(CLI::IsMember({"bf16", "f16"}).description(""))
      ->group(group);
  auto sixteen = [&](const char* name, DType& to, const char* help) {
    app.add_option_function<std::string>(
           name, [&to](const std::string& text) { to = text == "f32" ? DType::f32 : DType::bf16; }, help)
        ->check(CLI::IsMember({"f32", "bf16"}).description(""))
        ->group(group);
  };
  sixteen("--gradient-dtype", o.gradients, "f32 or bf16: in which gradients of 16-bit weights are kept [f32]");
  sixteen("--reduce-dtype", o.reduce, "f32 or bf16: in which gradients are sent [f32]");
  app.add_option("--loss-scale", o.loss_scale, "of f16 [0: as large as gradients allow]")->group(group);
  app.add_option("--recompute", o.recompute,
                 "modules, or patterns of them, whose activations are made again in backward instead of kept: "
                 "'blocks.*.mlp', or all blocks: all")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->group(group);
  app.add_option("--loss-chunk", o.loss_chunk, "tokens whose logits exist at a time in the loss [0: all]")
      ->group(group);
}

void add_update_options(CLI::App& app, UpdateOptions& o) {
  const std::string group = "Update";
  app.add_option("--optimizer", o.optimizer, "adamw, adam, sgd, adagrad, rmsprop, lion, adafactor, lamb or muon")
      ->check(CLI::IsMember({"adamw", "adam", "sgd", "adagrad", "rmsprop", "lion", "adafactor", "lamb", "muon"})
                  .description(""))
      ->capture_default_str()
      ->group(group);
  app.add_option("--lr", o.lr, "learning rate after warm-up")->capture_default_str()->group(group);
  app.add_option("--min-lr", o.min_lr, "learning rate at the end of the cosine [lr / 30]")->group(group);
  app.add_option("--warmup", o.warmup, "steps of linear warm-up [steps / 10]")->group(group);
  app.add_option("--weight-decay", o.weight_decay, "of matrices")->capture_default_str()->group(group);
  app.add_option("--clip", o.clip, "largest gradient norm; 0: any")->capture_default_str()->group(group);
  app.add_option("--ema", o.ema, "decay of averaged weights, which are evaluated and saved [0: none]")->group(group);
}

void check(const StepOptions& o) {
  require(o.batch >= 1, "--batch", static_cast<double>(o.batch), "at least 1");
  require(o.accumulate >= 1 && o.accumulate <= o.batch, "--accumulate", static_cast<double>(o.accumulate),
          "from 1 to --batch");
  require(o.loss_scale >= 0, "--loss-scale", o.loss_scale, "above 0, or 0 for a dynamic one");
  require(o.loss_chunk >= 0, "--loss-chunk", static_cast<double>(o.loss_chunk), "at least 0");
  bool half = o.dtype == DType::f16 || o.autocast == DType::f16;
  if (o.loss_scale > 0 && !half) throw cleave::ValueError("--loss-scale is for --dtype f16 or --autocast f16");
  if (o.autocast && o.dtype != DType::f32) throw cleave::ValueError("--autocast needs weights of --dtype f32");
}

void check(const UpdateOptions& o) {
  require(o.lr > 0, "--lr", o.lr, "above 0");
  require(!o.min_lr || (*o.min_lr >= 0 && *o.min_lr <= o.lr), "--min-lr", o.min_lr.value_or(0), "from 0 to --lr");
  require(o.warmup.value_or(0) >= 0, "--warmup", static_cast<double>(o.warmup.value_or(0)), "at least 0");
  require(o.weight_decay >= 0, "--weight-decay", o.weight_decay, "at least 0");
  require(o.clip >= 0, "--clip", o.clip, "at least 0");
  require(o.ema >= 0 && o.ema < 1, "--ema", o.ema, "from 0 to below 1");
}

}  // namespace gpt
