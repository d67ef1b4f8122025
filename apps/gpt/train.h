// gpt train.
#pragma once
#include <cleave/dist/launch.h>

#include "gpt/options.h"

namespace gpt {

/// Trains on every rank of the world; rank 0 prints, logs and saves. Communicates.
void train(cleave::dist::World& world, const TrainOptions& options);

}  // namespace gpt
