// Options that several subcommands share, and how a value that does not fit is reported.
#pragma once
#include <CLI/CLI.hpp>

#include "gpt/options.h"

namespace gpt {

void add_model_options(CLI::App& app, Config& config);
void add_step_options(CLI::App& app, StepOptions& options);
void add_update_options(CLI::App& app, UpdateOptions& options);
void add_placement_options(CLI::App& app, std::string& mesh, std::string& plan);

void add_train_options(CLI::App& app, TrainOptions& options);
/// With the model's config completed. Throws ValueError naming the option.
TrainOptions checked(TrainOptions options);

/// Throw ValueError naming the option.
void check(const StepOptions& options);
void check(const UpdateOptions& options);

/// Throws ValueError "--option is value; it must be range" unless ok.
void require(bool ok, const char* option, double value, const char* range);

}  // namespace gpt
