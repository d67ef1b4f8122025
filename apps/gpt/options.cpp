#include "gpt/options.h"

#include <cleave/core/error.h>

#include <map>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace gpt {

namespace {

using cleave::DType;

void add_model(CLI::App& app, Config& c) {
  const std::string group = "Model";
  app.add_option("--vocab", c.vocab, "tokens; bytes need 256")->capture_default_str()->group(group);
  app.add_option("--layers", c.layers, "blocks")->capture_default_str()->group(group);
  app.add_option("--dim", c.dim, "width of the residual stream")->capture_default_str()->group(group);
  app.add_option("--heads", c.heads, "attention heads")->capture_default_str()->group(group);
  app.add_option("--kv-heads", c.kv_heads, "key and value heads [as many as heads]")->group(group);
  app.add_option("--ffn", c.ffn, "width of the feed-forward part [4 dim]")->group(group);
  app.add_option("--seq", c.seq, "longest context")->capture_default_str()->group(group);
  app.add_option("--dropout", c.dropout, "on attention weights and residual branches")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--tied", c.tied, "the head is the token embedding")->group(group);
  app.add_option("--positions", c.positions, "learned or rope")->capture_default_str()->group(group);
  app.add_option("--norm", c.norm, "layer or rms")->capture_default_str()->group(group);
}

void add_shape(CLI::App& app, int64_t& batch, DType& dtype) {
  app.add_option("--batch", batch, "sequences per step, over all ranks")->capture_default_str()->group("Model");
  static const std::map<std::string, DType> kinds{{"f32", DType::f32}, {"f64", DType::f64}, {"bf16", DType::bf16}};
  auto read = [&dtype](const std::string& text) { dtype = kinds.at(text); };
  app.add_option_function<std::string>("--dtype", read,
                                       "f32, f64, or bf16: weights and activations of 16 bits, updated in f32 [f32]")
      ->check(CLI::IsMember({"f32", "f64", "bf16"}).description(""))
      ->group("Model");
}

void add_placement(CLI::App& app, std::string& mesh, std::string& plan) {
  app.add_option("--mesh", mesh, "named axes, e.g. dp=2,tp=2 [dp over all ranks]")->group("Placement");
  app.add_option("--plan", plan, "single, dp, tp, tp_sp, dp_tp, dp_tp_sp or a TOML file [from the axes]")
      ->group("Placement");
}

// "A:B", or "A" for one step.
void read_steps(const std::string& text, TrainOptions& o) {
  size_t colon = text.find(':');
  std::string first = text.substr(0, colon), last = colon == std::string::npos ? first : text.substr(colon + 1);
  if (!CLI::detail::lexical_cast(first, o.trace_first) || !CLI::detail::lexical_cast(last, o.trace_last))
    throw cleave::ValueError(fmt::format("--trace-steps is {}; it must be two step numbers, like 3:5", text));
}

void add_watch(CLI::App& app, TrainOptions& o) {
  const std::string group = "Seeing";
  app.add_option("--trace", o.trace,
                 "write ops, collectives, modules and memory of some steps of all ranks to this file, for "
                 "chrome://tracing or ui.perfetto.dev")
      ->group(group);
  app.add_option_function<std::string>(
         "--trace-steps", [&o](const std::string& text) { read_steps(text, o); }, "first and last of these steps [3:5]")
      ->group(group);
  app.add_flag("--profile", o.profile, "print where the time of rank 0 went, from step 3 on, as a table by op")
      ->group(group);
}

void add_train(CLI::App& app, TrainOptions& o) {
  add_model(app, o.model);
  add_shape(app, o.batch, o.dtype);
  app.add_option("--steps", o.steps, "")->capture_default_str();
  app.add_option("--lr", o.lr, "learning rate after warm-up")->capture_default_str();
  app.add_option("--min-lr", o.min_lr, "learning rate at the end of the cosine [lr / 30]");
  app.add_option("--warmup", o.warmup, "steps of linear warm-up [steps / 10]");
  app.add_option("--weight-decay", o.weight_decay, "of matrices")->capture_default_str();
  app.add_option("--clip", o.clip, "largest gradient norm; 0: any")->capture_default_str();
  app.add_option("--seed", o.seed, "of weights, batches and dropout")->capture_default_str();
  app.add_option("--data", o.data, "file or folder of text [the C++ headers of this machine]");
  app.add_option("--eval-every", o.eval_every, "steps between held-out losses [at the end]");
  app.add_option("--log", o.log, "write a line of JSON per step to this file");
  app.add_option("--save", o.save, "write the model to this safetensors file");
  add_watch(app, o);
  add_placement(app, o.mesh, o.plan);
  app.add_option("--ranks", "thread ranks; under mpirun its processes are the ranks [1]")->group("Placement");
  app.add_option("--overlap", "communicate while computing: on, off or auto; alone: on [off]")
      ->expected(0, 1)
      ->check(CLI::IsMember({"on", "off", "auto"}).description(""))
      ->group("Placement");
  app.add_flag("--deferred,!--no-deferred", o.deferred, "make only the weights that a rank holds [on]")
      ->group("Placement");
  app.add_option("--compare", o.compare, "single: also train on one device, and compare every step")
      ->check(CLI::IsMember({"single"}).description(""));
}

void add_generate(CLI::App& app, GenerateOptions& o) {
  app.add_option("--model", o.model, "file that gpt train --save wrote")->required();
  app.add_option("--prompt", o.prompt, "text to continue");
  app.add_option("--tokens", o.tokens, "bytes to write")->capture_default_str();
  app.add_option("--temperature", o.temperature, "0: always the likeliest")->capture_default_str();
  app.add_option("--top-k", o.top_k, "choose among the k likeliest; 0: all")->capture_default_str();
  app.add_option("--seed", o.seed, "")->capture_default_str();
}

void add_plan(CLI::App& app, PlanOptions& o) {
  add_model(app, o.model);
  add_shape(app, o.batch, o.dtype);
  add_placement(app, o.mesh, o.plan);
  app.add_flag("--explain", o.explain, "layouts, redistributions and their bytes, instead of the plan as TOML");
}

void require(bool ok, const char* option, double value, const char* range) {
  if (!ok) throw cleave::ValueError(fmt::format("{} is {}; it must be {}", option, value, range));
}

void check_watch(const TrainOptions& o) {
  if (!o.compare.empty() && (o.profile || !o.trace.empty()))
    throw cleave::ValueError("--trace and --profile watch one run; leave --compare away");
  if (!o.trace_last) return;
  if (o.trace.empty()) throw cleave::ValueError("--trace-steps needs --trace");
  require(o.trace_first >= 1 && o.trace_first <= o.steps, "the first of --trace-steps",
          static_cast<double>(o.trace_first), "from 1 to --steps");
  require(o.trace_last >= o.trace_first, "the last of --trace-steps", static_cast<double>(o.trace_last),
          "at least the first");
}

Options checked(TrainOptions o) {
  o.model = completed(o.model);
  require(o.batch >= 1, "--batch", static_cast<double>(o.batch), "at least 1");
  require(o.steps >= 1, "--steps", static_cast<double>(o.steps), "at least 1");
  require(o.lr > 0, "--lr", o.lr, "above 0");
  require(!o.min_lr || (*o.min_lr >= 0 && *o.min_lr <= o.lr), "--min-lr", o.min_lr.value_or(0), "from 0 to --lr");
  require(o.warmup.value_or(0) >= 0, "--warmup", static_cast<double>(o.warmup.value_or(0)), "at least 0");
  require(o.weight_decay >= 0, "--weight-decay", o.weight_decay, "at least 0");
  require(o.clip >= 0, "--clip", o.clip, "at least 0");
  require(o.eval_every >= 0, "--eval-every", static_cast<double>(o.eval_every), "at least 0");
  check_watch(o);
  return o;
}

Options checked(GenerateOptions o) {
  require(o.tokens >= 0, "--tokens", static_cast<double>(o.tokens), "at least 0");
  require(o.temperature >= 0, "--temperature", o.temperature, "at least 0");
  require(o.top_k >= 0, "--top-k", static_cast<double>(o.top_k), "at least 0");
  return o;
}

Options checked(PlanOptions o) {
  o.model = completed(o.model);
  require(o.batch >= 1, "--batch", static_cast<double>(o.batch), "at least 1");
  return o;
}

}  // namespace

std::variant<Options, int> parse_command_line(int argc, char** argv) {
  CLI::App app("Trains a GPT on bytes, on one device or split over many by a plan.", "gpt");
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  TrainOptions train;
  GenerateOptions generate;
  PlanOptions plan;
  CLI::App* t = app.add_subcommand("train", "train a model on text");
  CLI::App* g = app.add_subcommand("generate", "let a trained model write");
  CLI::App* p = app.add_subcommand("plan", "print a plan, or explain what it does on a mesh of any size");
  add_train(*t, train);
  add_generate(*g, generate);
  add_plan(*p, plan);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 1; }
  return t->parsed() ? checked(train) : g->parsed() ? checked(generate) : checked(plan);
}

}  // namespace gpt
