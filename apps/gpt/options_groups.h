// Options that several subcommands share, and how a value that does not fit is reported.
#pragma once
#include <CLI/CLI.hpp>

#include "gpt/options.h"

namespace gpt {

void add_model_options(CLI::App& app, Config& config);
void add_batch_option(CLI::App& app, int64_t& batch);
void add_dtype_option(CLI::App& app, cleave::DType& dtype);
void add_placement_options(CLI::App& app, std::string& mesh, std::string& plan);

void add_train_options(CLI::App& app, TrainOptions& options);
/// With the model's config completed. Throws ValueError naming the option.
TrainOptions checked(TrainOptions options);

/// Throws ValueError "--option is value; it must be range" unless ok.
void require(bool ok, const char* option, double value, const char* range);

}  // namespace gpt
