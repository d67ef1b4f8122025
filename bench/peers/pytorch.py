"""PyTorch on one process: pytorch.py step WORKLOAD DTYPE eager|compile THREADS STEPS
                           pytorch.py attention WORKLOAD CALLS"""

import os
import sys
import time

import gpt
import torch
import torch.nn.functional as F
from memory import peak_bytes


def step(workload, dtype, mode, threads, steps):
    torch.set_num_threads(int(threads))
    bare = peak_bytes()  # with torch imported
    model, batch, vocab, seq = gpt.build(workload)
    update = gpt.optimizer(model)
    forward = torch.compile(model) if mode == "compile" else model
    case, by = f"{workload} {dtype} 1x{threads}", f"pytorch {mode}"
    times = []
    for i in range(int(steps) + 1):
        ids = torch.randint(0, vocab, (batch, seq + 1))
        times.append(gpt.step(forward, model, update, ids, dtype))
        if i == 0 and "BENCH_START" in os.environ:
            gpt.report(by, "start.first_step", case, time.monotonic() - float(os.environ["BENCH_START"]), "s")
    best = min(times[1:])
    gpt.report(by, "step", case, best * 1e3, "ms")
    gpt.report(by, "step.token", case, best / (batch * seq) * 1e6, "us")
    gpt.report(by, "step.peak", case, (peak_bytes() - bare) * 1e-6, "MB")


def attention(workload, calls):
    torch.set_num_threads(1)
    w = gpt.WORKLOADS["attention"][workload]
    shape = (w["batch"], w["heads"], w["seq"], w["head_dim"])
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    cotangent = torch.randn(shape)
    best = float("inf")
    for _ in range(int(calls)):
        start = time.perf_counter()
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(cotangent)
        q.grad = k.grad = v.grad = None
        best = min(best, time.perf_counter() - start)
    gpt.report("pytorch eager", "attention", f"{workload} f32", best * 1e3, "ms")


{"step": step, "attention": attention}[sys.argv[1]](*sys.argv[2:])
