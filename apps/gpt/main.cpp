// gpt train | generate | plan: see options.cpp, or --help.
#include <cleave/dist/launch.h>

#include <cstdio>
#include <exception>

#include "gpt/explain.h"
#include "gpt/generate.h"
#include "gpt/options.h"
#include "gpt/train.h"

int main(int argc, char** argv) {
  try {
    auto parsed = gpt::parse_command_line(argc, argv);
    if (const int* code = std::get_if<int>(&parsed)) return *code;
    const gpt::Options& options = std::get<gpt::Options>(parsed);
    if (const auto* plan = std::get_if<gpt::PlanOptions>(&options)) {
      std::fputs(gpt::plan_text(*plan).c_str(), stdout);
      return 0;
    }
    return cleave::dist::launch(argc, argv, [&](cleave::dist::World& world) {
      if (const auto* train = std::get_if<gpt::TrainOptions>(&options)) return gpt::train(world, *train);
      gpt::generate(std::get<gpt::GenerateOptions>(options));
    });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpt: %s\n", e.what());
    return 1;
  }
}
