// The optimizer that gpt train --optimizer names.
#pragma once
#include <cleave/optim/optimizer.h>

#include <memory>

#include "gpt/model.h"
#include "gpt/options.h"

namespace gpt {

/// With usual options for GPTs: matrices decay, biases and norms do not. Throws ValueError for another name.
std::unique_ptr<cleave::optim::Optimizer> make_optimizer(const Gpt& model, const UpdateOptions& options);

}  // namespace gpt
