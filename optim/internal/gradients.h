// What clipping, loss scaling and checks of gradients share.
#pragma once
#include <vector>

#include <cleave/autograd/grad_mode.h>
#include <cleave/core/cpu/reduce.h>
#include <cleave/core/tensor.h>
#include <cleave/dist/ambient.h>
#include <cleave/dist/communicator.h>

namespace cleave::optim::detail {

/// The reduction of all elements of a plain block, in f64; 0 without elements in memory.
double reduced(cpu::Reduce kind, const Tensor& block);

/// The gradients there are, synced, each leaf once.
std::vector<Tensor> gradients(const std::vector<Tensor>& leaves);

/// The ranks that hold parts of these tensors: those of the one mesh if it has all ranks, else all ranks of the world.
/// Null if none is distributed.
dist::Communicator* common_ranks(const std::vector<Tensor>& tensors);

/// Work on gradients: off the tape, with plain new tensors, counted as the optimizer's.
struct Scopes {
  NoGrad off;
  dist::UseMesh plain{nullptr};
  dist::PhaseScope phase{"optimizer"};
};

}  // namespace cleave::optim::detail
