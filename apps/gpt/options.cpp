#include "gpt/options.h"

#include <cleave/core/error.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gpt/fit.h"
#include "gpt/options_groups.h"
#include "gpt/plans.h"

namespace gpt {

void add_model_options(CLI::App& app, Config& c) {
  const std::string group = "Model";
  app.add_option("--vocab", c.vocab, "tokens; bytes need 256, a tokenizer has its own number")
      ->capture_default_str()
      ->group(group);
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

void add_placement_options(CLI::App& app, std::string& mesh, std::string& plan) {
  app.add_option("--mesh", mesh, "named axes, e.g. dp=2,tp=2 [dp over all ranks]")->group("Placement");
  app.add_option("--plan", plan,
                 fmt::format("a ready plan ({}) or a TOML file [from the axes]", fmt::join(ready_plans(), ", ")))
      ->group("Placement");
}

void add_tokenize(CLI::App& app, TokenizeOptions& o) {
  app.add_option("--data", o.data, "file or folder of text; each file is a document")->required();
  app.add_option("--out", o.out, "token file to write; its tokenizer stands beside it as *.json")->required();
  auto* read =
      app.add_option("--tokenizer", o.tokenizer, "use this tokenizer.json, vocab.json, vocab.bpe or merges.txt");
  app.add_option("--train", o.vocab_size, "learn a vocabulary of this size from the text")
      ->capture_default_str()
      ->excludes(read);
  app.add_option("--end", o.end, "the token after each document")->capture_default_str();
  app.add_option("--threads", o.threads, "[one per core]");
}

void require(bool ok, const char* option, double value, const char* range) {
  if (!ok) throw cleave::ValueError(fmt::format("{} is {}; it must be {}", option, value, range));
}

namespace {

void add_generate(CLI::App& app, GenerateOptions& o) {
  app.add_option("--model", o.model, "what gpt train --save wrote")->required();
  app.add_option("--tokenizer", o.tokenizer, "tokenizer.json, or GPT-2's files [the one of the model's data]");
  app.add_option("--prompt", o.prompt, "text to continue");
  app.add_option("--tokens", o.tokens, "tokens to write")->capture_default_str();
  app.add_option("--temperature", o.temperature, "0: always the likeliest")->capture_default_str();
  app.add_option("--top-k", o.top_k, "choose among the k likeliest; 0: all")->capture_default_str();
  app.add_option("--seed", o.seed, "")->capture_default_str();
}

void add_plan(CLI::App& app, PlanOptions& o) {
  add_model_options(app, o.model);
  add_step_options(app, o.step);
  add_update_options(app, o.update);
  add_placement_options(app, o.mesh, o.plan);
  app.add_flag("--explain", o.explain, "layouts, redistributions and their bytes, instead of the plan as TOML");
  auto* memory = app.add_flag("--memory", o.memory, "bytes of a rank in training, by a dry run, instead of the plan");
  app.add_flag("--overlap", o.overlap, "with --memory: of training that communicates while it computes")->needs(memory);
  app.add_flag("--saving", o.saving, "with --memory: of a step while a checkpoint is written in the background")
      ->needs(memory);
  app.add_option_function<std::string>(
         "--limit", [&o](const std::string& text) { o.limit = parse_bytes(text); },
         "with --memory: what a rank has, like 80GB; says what would make the model fit")
      ->needs(memory);
}

void add_report(CLI::App& app, ReportOptions& o) {
  app.add_option("logs", o.logs, "what gpt train --log wrote, one or more")->required();
  app.add_option("-o,--output", o.output, "the page")->capture_default_str();
}

Options checked(GenerateOptions o) {
  require(o.tokens >= 0, "--tokens", static_cast<double>(o.tokens), "at least 0");
  require(o.temperature >= 0, "--temperature", o.temperature, "at least 0");
  require(o.top_k >= 0, "--top-k", static_cast<double>(o.top_k), "at least 0");
  return o;
}

Options checked(PlanOptions o) {
  o.model = completed(o.model);
  check(o.step);
  check(o.update);
  return o;
}

Options checked(TokenizeOptions o) {
  require(o.threads >= 0, "--threads", static_cast<double>(o.threads), "at least 0");
  if (o.end.empty()) throw cleave::ValueError("--end is empty; it must be the text of a token");
  return o;
}

}  // namespace

std::variant<Options, int> parse_command_line(int argc, char** argv) {
  CLI::App app("Trains a GPT, on one device or split over many by a plan.", "gpt");
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  TrainOptions train;
  GenerateOptions generate;
  PlanOptions plan;
  TokenizeOptions tokenize;
  ReportOptions report;
  CLI::App* t = app.add_subcommand("train", "train a model on text");
  CLI::App* g = app.add_subcommand("generate", "let a trained model write");
  CLI::App* p = app.add_subcommand("plan", "print a plan, or explain what it does on a mesh of any size");
  CLI::App* k = app.add_subcommand("tokenize", "turn text into a token file, with a vocabulary read or learned");
  CLI::App* r = app.add_subcommand("report", "one page of HTML about one or more runs, from their logs");
  add_train_options(*t, train);
  add_report(*r, report);
  add_generate(*g, generate);
  add_plan(*p, plan);
  add_tokenize(*k, tokenize);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 1; }
  if (k->parsed()) return Options(checked(tokenize));
  train.vocab_given = t->count("--vocab") > 0;
  if (t->parsed()) return Options(checked(train));
  if (r->parsed()) return Options(report);
  return g->parsed() ? checked(generate) : checked(plan);
}

}  // namespace gpt
