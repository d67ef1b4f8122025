// All public headers.
#pragma once

#include <cleave/core/allocator.h>
#include <cleave/core/device.h>
#include <cleave/core/dtype.h>
#include <cleave/core/error.h>
#include <cleave/core/half.h>
#include <cleave/core/kernel.h>
#include <cleave/core/observer.h>
#include <cleave/core/parallel.h>
#include <cleave/core/random.h>
#include <cleave/core/shape.h>
#include <cleave/core/tensor.h>
#include <cleave/core/tensor_impl.h>
#include <cleave/core/type.h>
#include <cleave/core/view.h>

#include <cleave/dist/ambient.h>
#include <cleave/dist/communicator.h>
#include <cleave/dist/launch.h>
#include <cleave/dist/layout.h>
#include <cleave/dist/mesh.h>
#include <cleave/dist/observer.h>
#include <cleave/dist/redistribution.h>

#include <cleave/autograd/grad_mode.h>
#include <cleave/autograd/gradcheck.h>
#include <cleave/autograd/observer.h>
#include <cleave/autograd/redistribute.h>
#include <cleave/autograd/sync.h>

#include <cleave/ops/activation.h>
#include <cleave/ops/attention.h>
#include <cleave/ops/binary.h>
#include <cleave/ops/cast.h>
#include <cleave/ops/creation.h>
#include <cleave/ops/cross_entropy.h>
#include <cleave/ops/dropout.h>
#include <cleave/ops/host.h>
#include <cleave/ops/index.h>
#include <cleave/ops/inplace.h>
#include <cleave/ops/join.h>
#include <cleave/ops/linear_cross_entropy.h>
#include <cleave/ops/matmul.h>
#include <cleave/ops/normalization.h>
#include <cleave/ops/observer.h>
#include <cleave/ops/op.h>
#include <cleave/ops/reduce.h>
#include <cleave/ops/rope.h>
#include <cleave/ops/softmax.h>
#include <cleave/ops/unary.h>
#include <cleave/ops/view.h>

#include <cleave/nn/attention.h>
#include <cleave/nn/buffer.h>
#include <cleave/nn/build.h>
#include <cleave/nn/custom_shard.h>
#include <cleave/nn/init.h>
#include <cleave/nn/layers.h>
#include <cleave/nn/list.h>
#include <cleave/nn/module.h>
#include <cleave/nn/module_base.h>
#include <cleave/nn/observer.h>
#include <cleave/nn/parameter.h>
#include <cleave/nn/plan.h>
#include <cleave/nn/profile.h>
#include <cleave/nn/recompute.h>
#include <cleave/nn/shard.h>
#include <cleave/nn/value_and_grad.h>

#include <cleave/optim/adam.h>
#include <cleave/optim/clip.h>
#include <cleave/optim/optimizer.h>
#include <cleave/optim/schedule.h>
#include <cleave/optim/sgd.h>
