"""What is not a step in PyTorch: state.py update, state.py checkpoint."""

import os
import sys
import tempfile
import time

import gpt
import safetensors.torch
import torch

ELEMENTS = 1 << 24


def least(n, call):
    best = float("inf")
    for _ in range(n):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def update():
    torch.set_num_threads(1)
    for name, count in (("large", 1), ("small", 1 << 13)):
        weights = [torch.nn.Parameter(torch.randn(ELEMENTS // count)) for _ in range(count)]
        for w in weights:
            w.grad = torch.full_like(w, 0.5)
        step = torch.optim.AdamW(weights, lr=1e-3, fused=True).step
        gpt.report("pytorch eager", "update", f"adamw {name} f32", least(10, step) / ELEMENTS * 1e9, "ns")


def checkpoint():
    tensors = {f"w{i}": torch.full((2048, 4096), 0.5) for i in range(32)}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        path = os.path.join(folder, "model.safetensors")

        def save():
            if os.path.exists(path):
                os.remove(path)
            safetensors.torch.save_file(tensors, path)
            with open(path, "rb") as file:
                os.fsync(file.fileno())

        def load():
            for name, value in safetensors.torch.load_file(path).items():
                tensors[name].copy_(value)

        gpt.report("safetensors", "checkpoint", "save 1", least(2, save) * 1e3, "ms")
        gpt.report("safetensors", "checkpoint", "load 1", least(2, load) * 1e3, "ms")


{"update": update, "checkpoint": checkpoint}[sys.argv[1]]()
