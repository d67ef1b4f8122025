#!/usr/bin/env python3
"""Writes reference.safetensors with the reference implementation (pip install safetensors torch), or, given files that
cleave has written, checks that the reference implementation reads the same tensors from them."""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

TENSORS = {
    "embed.weight": torch.arange(15 * 3, dtype=torch.float32).reshape(15, 3) / 7,
    "blocks.0.w": (torch.arange(13, dtype=torch.float32) - 6).to(torch.bfloat16),
    "blocks.0.h": (torch.arange(5, dtype=torch.float32) / 3).to(torch.float16),
    "blocks.10.w": torch.linspace(-1, 1, 7, dtype=torch.float64),
    "mask": torch.tensor([[True, False, True]]),
    "bytes": torch.tensor([0, 1, 255], dtype=torch.uint8),
    "ids": torch.tensor([[1, -2], [3, 2**40]], dtype=torch.int64),
    "ids32": torch.tensor([-(2**31), 7], dtype=torch.int32),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
    "a \"name\" ü": torch.tensor([1.0]),
}

if len(sys.argv) == 1:
    path = Path(__file__).parent / "reference.safetensors"
    save_file(TENSORS, path, metadata={"format": "pt"})
    print(path, path.stat().st_size)
for path in sys.argv[1:]:
    found = load_file(path)
    assert found.keys() == TENSORS.keys(), found.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name
    print(path, "has the same", len(found), "tensors")
