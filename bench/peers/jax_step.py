"""JAX: jax_step.py WORKLOAD STEPS: the same step under jit, f32, one thread."""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np

workload, steps = sys.argv[1], int(sys.argv[2])
w = json.loads((pathlib.Path(__file__).parent.parent / "workloads.json").read_text())["gpt"][workload]
V, L, C, H, T, B = (w[k] for k in ("vocab", "layers", "dim", "heads", "seq", "batch"))

random = np.random.default_rng(0)


def linear(n_in, n_out):
    return {"w": random.normal(0, 0.02, (n_in, n_out)).astype("f"), "b": np.zeros(n_out, "f")}


def norm():
    return {"w": np.ones(C, "f"), "b": np.zeros(C, "f")}


parameters = {
    "token": random.normal(0, 0.02, (V, C)).astype("f"),
    "position": random.normal(0, 0.02, (T, C)).astype("f"),
    "blocks": [{"norm1": norm(), "qkv": linear(C, 3 * C), "out": linear(C, C), "norm2": norm(),
                "up": linear(C, 4 * C), "down": linear(4 * C, C)} for _ in range(L)],
    "norm": norm(),
    "head": random.normal(0, 0.02, (C, V)).astype("f"),
}
parameters = jax.tree.map(jnp.asarray, parameters)


def layer_norm(p, x):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["w"] + p["b"]


def apply(p, x):
    return x @ p["w"] + p["b"]


def block(p, x):
    q, k, v = jnp.moveaxis(apply(p["qkv"], layer_norm(p["norm1"], x)).reshape(B, T, 3, H, C // H), 2, 0)
    x = x + apply(p["out"], jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(B, T, C))
    return x + apply(p["down"], jax.nn.gelu(apply(p["up"], layer_norm(p["norm2"], x)), approximate=True))


def loss(p, ids):
    x = p["token"][ids[:, :-1]] + p["position"]
    for b in p["blocks"]:
        x = block(b, x)
    logits = layer_norm(p["norm"], x) @ p["head"]
    chosen = jnp.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def adamw(p, g, m, v, t):
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    p = p - 1e-3 * (m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.95**t)) + 1e-8) + 0.1 * p)
    return p, m, v


def step(p, m, v, t, ids):
    g = jax.grad(loss)(p, ids)
    size = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1, 1 / (size + 1e-6)), g)
    out = jax.tree.map(lambda *x: adamw(*x, t), p, g, m, v)
    return tuple(jax.tree.map(lambda _, o, i=i: o[i], p, out) for i in range(3))


step = jax.jit(step, donate_argnums=(0, 1, 2))
m = jax.tree.map(jnp.zeros_like, parameters)
v = jax.tree.map(jnp.zeros_like, parameters)
times = []
for t in range(1, steps + 2):
    ids = jnp.asarray(random.integers(0, V, (B, T + 1)))
    begin = time.perf_counter()
    parameters, m, v = jax.block_until_ready(step(parameters, m, v, float(t), ids))
    times.append(time.perf_counter() - begin)
print(json.dumps({"by": "jax jit", "name": "step", "case": f"{workload} f32 1x1",
                  "value": min(times[1:]) * 1e3, "unit": "ms"}))
