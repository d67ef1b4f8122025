"""The GPT of apps/gpt in PyTorch, and what the PyTorch peers share."""

import json
import pathlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORKLOADS = json.loads((pathlib.Path(__file__).parent.parent / "workloads.json").read_text())


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        # Apart, so that tensor parallelism can split each by heads.
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, seq, dim = x.shape
        head = dim // self.heads
        y = self.norm1(x)
        q, k, v = (f(y).view(batch, seq, -1, head).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, -1)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class FusedBlock(Block):
    """One product for queries, keys and values: what is fastest on one device."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        del self.q, self.k, self.v
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        batch, seq, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, seq, dim)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab, layers, dim, heads, seq, block=FusedBlock):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList([block(dim, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build(name, block=FusedBlock):
    """A model, its batch size, and its vocabulary."""
    torch.manual_seed(0)
    sizes = dict(WORKLOADS["gpt"][name])
    batch = sizes.pop("batch")
    return Gpt(**sizes, block=block), batch, sizes["vocab"], sizes["seq"]


def groups(model):
    """The parameters, those that are split (DTensors) apart: no operation of PyTorch takes both."""
    parameters = list(model.parameters())
    split = [p for p in parameters if type(p.data) is not torch.Tensor]
    whole = [p for p in parameters if type(p.data) is torch.Tensor]
    return [g for g in (whole, split) if g]


def optimizer(model):
    return torch.optim.AdamW([{"params": g} for g in groups(model)], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def step(forward, model, update, ids, dtype="f32"):
    """Seconds of forward, backward, clip and update."""
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
        loss = F.cross_entropy(forward(ids[:, :-1]).transpose(1, 2).float(), ids[:, 1:])
    loss.backward()
    for group in groups(model):
        torch.nn.utils.clip_grad_norm_(group, 1.0)
    update.step()
    update.zero_grad()
    return time.perf_counter() - start


def report(by, name, case, value, unit):
    print(json.dumps({"by": by, "name": name, "case": case, "value": value, "unit": unit}), flush=True)
