// gpt train | generate | plan | tokenize | report: see options.cpp, or --help.
#include <cleave/dist/launch.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "gpt/explain.h"
#include "gpt/generate.h"
#include "gpt/options.h"
#include "gpt/report.h"
#include "gpt/restart.h"
#include "gpt/run_checkpoints.h"
#include "gpt/train.h"

namespace {

int launch_training(int argc, char** argv, const gpt::TrainOptions& options) {
  return cleave::dist::launch(argc, argv, [&](cleave::dist::World& world) { gpt::train(world, options); });
}

int run_training(int argc, char** argv, gpt::TrainOptions options) {
  if (options.safety.restarts == 0) return launch_training(argc, argv, options);
  return gpt::run_with_restarts(
      options.safety.restarts, [&] { return gpt::newest_checkpoint(options.safety.checkpoints); },
      [&](bool resumed) {
        if (resumed) options.safety.resume = "auto";
        return launch_training(argc, argv, options);
      });
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error with a message, as on a full disk
  try {
    auto parsed = gpt::parse_command_line(argc, argv);
    if (const int* code = std::get_if<int>(&parsed)) return *code;
    const gpt::Options& options = std::get<gpt::Options>(parsed);
    if (const auto* plan = std::get_if<gpt::PlanOptions>(&options)) {
      std::fputs(gpt::plan_text(*plan).c_str(), stdout);
      return 0;
    }
    if (const auto* tokenize = std::get_if<gpt::TokenizeOptions>(&options)) {
      gpt::TokenizeSummary summary = gpt::tokenize(*tokenize);
      std::printf("%s; %s and %s\n", to_string(summary).c_str(), tokenize->out.c_str(), summary.tokenizer.c_str());
      return 0;
    }
    if (const auto* report = std::get_if<gpt::ReportOptions>(&options)) {
      gpt::write_report(report->logs, report->output);
      std::printf("wrote %s\n", report->output.c_str());
      return 0;
    }
    if (const auto* train = std::get_if<gpt::TrainOptions>(&options)) return run_training(argc, argv, *train);
    return cleave::dist::launch(argc, argv,
                                [&](cleave::dist::World&) { gpt::generate(std::get<gpt::GenerateOptions>(options)); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpt: %s\n", e.what());
    return 1;
  }
}
