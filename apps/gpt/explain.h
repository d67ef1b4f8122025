// gpt plan: what a plan does to a model, on a mesh of any size, without data.
#pragma once
#include <string>

#include "gpt/options.h"

namespace gpt {

/// The plan as TOML; or, if options.explain, for each module the layouts of its parameters, inputs and outputs and the
/// redistributions with their bytes and reasons, then the totals of one step: as rank 0 of the mesh sees them.
std::string plan_text(const PlanOptions& options);

}  // namespace gpt
