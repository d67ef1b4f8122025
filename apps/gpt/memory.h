// What a training step takes of each rank's memory, found by a dry run of it on Device::Meta.
#pragma once
#include <cleave/dist/launch.h>
#include <cleave/nn/memory_plan.h>

#include <string>

#include "gpt/options.h"

namespace gpt {

/// The memory of rank `rank` of `ranks` in training with these options, from before the model is built to the end of
/// the second step, behind which no step takes more. Runs the trainer itself, on Device::Meta in a simulated world:
/// nothing is computed, nothing read, no random number drawn. Throws what the trainer throws for a plan that does not
/// fit, and OutOfMemoryError never.
cleave::nn::MemoryPlan planned_memory(const TrainOptions& options, int ranks, int rank = 0);

/// The table that `gpt plan --memory` prints: of rank 0, which holds the largest blocks. Throws ValueError without a
/// mesh.
std::string memory_text(const TrainOptions& options);

/// A line on rank 0's stdout before training begins.
void print_memory_plan(const cleave::dist::World& world, const TrainOptions& options);

}  // namespace gpt
