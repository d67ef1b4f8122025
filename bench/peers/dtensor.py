"""PyTorch on DTensors, 2 gloo ranks: dtensor.py dispatch
                                     dtensor.py step WORKLOAD STEPS: tensor parallelism
                                     dtensor.py fsdp WORKLOAD STEPS: fully_shard"""

import os
import sys
import tempfile
import time

import gpt
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from memory import peak_bytes
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def start(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    return init_device_mesh("cpu", (ranks,))


def dispatch(store):
    mesh = start(0, 1, store)
    with torch.no_grad():
        a, b = (distribute_tensor(torch.ones(16), mesh, [Shard(0)]) for _ in range(2))
        best = float("inf")
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(500):
                a + b
            best = min(best, (time.perf_counter() - begin) / 500)
    gpt.report("dtensor", "dispatch", "distributed", best * 1e9, "ns")


def tensor_parallel(model, mesh):
    column, row = ColwiseParallel(), RowwiseParallel()
    for block in model.blocks:
        parallelize_module(block, mesh, {"q": column, "k": column, "v": column, "out": row, "up": column, "down": row})
    parallelize_module(model, mesh, {"token": RowwiseParallel(input_layouts=Replicate()),
                                     "head": ColwiseParallel(output_layouts=Replicate())})


def fully_sharded(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def run(rank, store, what, workload, steps):
    mesh = start(rank, 2, store)
    bare = peak_bytes()
    if what == "step":
        model, batch, vocab, seq = gpt.build(workload, gpt.Block)
        tensor_parallel(model, mesh)
    else:
        model, batch, vocab, seq = gpt.build(workload)
        batch //= 2
        fully_sharded(model, mesh)
    update = gpt.optimizer(model)
    times = []
    for _ in range(steps + 1):
        ids = torch.randint(0, vocab, (batch, seq + 1))
        times.append(gpt.step(model, model, update, ids))
    if rank == 0:
        by, plan = ("dtensor", "tp") if what == "step" else ("fsdp", "zero3")
        gpt.report(by, "step", f"{workload} f32 {plan} 2x1", min(times[1:]) * 1e3, "ms")
        gpt.report(by, "step.peak", f"{workload} f32 {plan} 2x1", (peak_bytes() - bare) * 1e-6, "MB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        if sys.argv[1] == "dispatch":
            dispatch(store)
        else:
            mp.spawn(run, (store, sys.argv[1], sys.argv[2], int(sys.argv[3])), nprocs=2)
    if dist.is_initialized():
        dist.destroy_process_group()
