#!/usr/bin/env python3
"""Values and gradients of the public functions, by PyTorch in f64 on the CPU: writes goldens.txt beside this file.

Needs `pip install torch numpy`; run it only to change the cases. One record per case:

    case NAME
    TENSOR DTYPE [SIZES] VALUE VALUE ...

Inputs are multiples of 2^-10, so that their decimals are short and exact; `y` is the result, `cotangent` a fixed
cotangent of it, `grad_X` the gradient of sum(cotangent * y) for input X.
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20240601)
lines = []


def normal(*shape, scale=1.0):
    x = np.round(rng.standard_normal(shape) * scale * 1024) / 1024
    return torch.tensor(x, requires_grad=True)


def positive(*shape):
    x = np.round(rng.uniform(0.5, 2.0, shape) * 1024) / 1024
    return torch.tensor(x, requires_grad=True)


def index(high, *shape):
    return torch.tensor(rng.integers(0, high, shape))


def write(name, t):
    t = torch.as_tensor(t).detach()
    dtype = {torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}[t.dtype]
    values = t.flatten().tolist()
    text = " ".join(repr(float(v)) if dtype == "f64" else str(int(v)) for v in values)
    lines.append(f"{name} {dtype} [{', '.join(map(str, t.shape))}] {text}".rstrip())


def case(name, fn, **inputs):
    lines.append(f"case {name}")
    for key, t in inputs.items():
        write(key, t)
    y = fn(*inputs.values())
    write("y", y)
    wanted = [(k, t) for k, t in inputs.items() if torch.is_tensor(t) and t.requires_grad]
    if not (y.requires_grad and wanted):
        return
    c = torch.tensor(np.round(rng.standard_normal(tuple(y.shape)) * 1024) / 1024)
    write("cotangent", c)
    grads = torch.autograd.grad(y, [t for _, t in wanted], c, allow_unused=True)
    for (key, t), g in zip(wanted, grads):
        write("grad_" + key, torch.zeros_like(t) if g is None else g)


def unary():
    for name, fn in [("exp", torch.exp), ("expm1", torch.expm1), ("sin", torch.sin), ("cos", torch.cos),
                     ("tanh", torch.tanh), ("erf", torch.erf), ("sigmoid", torch.sigmoid), ("silu", F.silu),
                     ("softplus", F.softplus), ("relu", F.relu), ("abs", torch.abs), ("square", torch.square)]:
        case(name, fn, x=normal(3, 5, scale=2.0))
    for name, fn in [("log", torch.log), ("log1p", torch.log1p), ("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt),
                     ("reciprocal", torch.reciprocal)]:
        case(name, fn, x=positive(3, 5))
    case("gelu", F.gelu, x=normal(3, 5, scale=2.0))
    case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x=normal(3, 5, scale=2.0))
    case("pow_scalar", lambda x: x ** 2.5, x=positive(3, 5))
    case("clamp", lambda x: torch.clamp(x, -0.5, 0.75), x=normal(3, 5))


def binary():
    case("div", torch.div, a=normal(3, 5), b=positive(5))
    case("pow", torch.pow, a=positive(3, 5), b=normal(3, 1))
    case("maximum", torch.maximum, a=normal(3, 5), b=normal(3, 5))
    a = normal(3, 4)
    case("minimum_ties", torch.minimum, a=a, b=torch.where(torch.arange(4) % 2 == 0, a, a + 1).detach().requires_grad_())
    case("remainder", torch.remainder, a=normal(3, 5, scale=3.0).detach(), b=normal(5).detach())
    case("floor_divide", torch.floor_divide, a=normal(3, 5, scale=3.0).detach(), b=normal(5).detach())
    case("where", lambda a, b: torch.where(torch.tensor([True, False, True, True, False]), a, b), a=normal(3, 5), b=normal(5))


def reductions():
    case("sum", lambda x: x.sum((0, 2)), x=normal(2, 3, 4))
    case("mean", lambda x: x.mean(1, keepdim=True), x=normal(2, 3, 4))
    case("var", lambda x: x.var((1, 2)), x=normal(2, 3, 4))
    case("var_biased", lambda x: x.var(1, correction=0), x=normal(3, 5))
    case("prod", lambda x: x.prod(1), x=positive(3, 5).detach())
    case("logsumexp", lambda x: torch.logsumexp(x, (0, 2)), x=normal(2, 3, 4))
    case("logsumexp_large", lambda x: torch.logsumexp(x, 1), x=normal(2, 3, scale=1000.0))
    for p, name in [(1, "norm1"), (2, "norm2"), (3, "norm3")]:
        case(name, lambda x, p=p: torch.linalg.vector_norm(x, p, 1), x=normal(3, 5))
    case("norm_all", lambda x: torch.linalg.vector_norm(x, 2), x=normal(3, 5))
    case("norm_inf", lambda x: torch.linalg.vector_norm(x, float("inf"), 1), x=normal(3, 5))
    x = torch.tensor([[1.0, 3.0, 3.0, -2.0], [5.0, 5.0, 5.0, 5.0], [0.0, -1.0, 0.0, 0.0]], requires_grad=True)
    case("amax_ties", lambda x: x.amax(1), x=x)
    case("amin_ties", lambda x: x.amin((0, 1)), x=x)
    case("argmax", lambda x: x.argmax(1), x=x.detach())


def products():
    case("matmul_batched", torch.matmul, a=normal(2, 1, 3, 4), b=normal(3, 4, 2))
    case("matmul_vector", torch.matmul, a=normal(4), b=normal(2, 4, 3))
    case("linear", F.linear, x=normal(2, 3, 4), weight=normal(5, 4), bias=normal(5))


def rows():
    case("softmax", lambda x: F.softmax(x, 1), x=normal(2, 5, 3, scale=3.0))
    case("log_softmax", lambda x: F.log_softmax(x, -1), x=normal(4, 7, scale=3.0))
    case("layer_norm", lambda x, w, b: F.layer_norm(x, (3, 4), w, b, 1e-5), x=normal(2, 3, 4), weight=positive(3, 4), bias=normal(3, 4))
    case("layer_norm_plain", lambda x: F.layer_norm(x, (7,), eps=1e-3), x=normal(5, 7))
    case("layer_norm_offset", lambda x: F.layer_norm(x, (7,)), x=(normal(2, 7) + 1e6).detach().requires_grad_())
    case("rms_norm", lambda x, w: F.rms_norm(x, (7,), w, 1e-6), x=normal(5, 7), weight=positive(7))


def indexing():
    case("embedding", F.embedding, ids=index(6, 2, 5), weight=normal(6, 3))
    case("gather", lambda x, i: x.gather(1, i), x=normal(3, 5), index=index(5, 3, 4))
    case("index_select", lambda x, i: x.index_select(1, i), x=normal(3, 5), index=torch.tensor([4, 0, 0, 2]))


def losses():
    target = index(7, 5)
    some = target.clone()
    some[1] = some[3] = -100
    for reduction in ("mean", "sum", "none"):
        case(f"cross_entropy_{reduction}", lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r), x=normal(5, 7, scale=2.0), target=some)
        case(f"cross_entropy_smooth_{reduction}", lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r, label_smoothing=0.1),
             x=normal(5, 7, scale=2.0), target=some)
    case("cross_entropy_ignore_2", lambda x, t: F.cross_entropy(x, t, ignore_index=2), x=normal(5, 7), target=torch.tensor([2, 0, 2, 6, 1]))
    case("cross_entropy_dims", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.2), x=normal(2, 4, 3), target=index(4, 2, 3))
    case("cross_entropy_large", F.cross_entropy, x=normal(3, 4, scale=1000.0), target=index(4, 3))
    z = 0.01
    case("cross_entropy_z", lambda x, t: (F.cross_entropy(x, t, reduction="none") + z * (t >= 0) * x.logsumexp(1) ** 2).sum() / (t >= 0).sum(),
         x=normal(5, 7), target=some)


def linear_losses():
    global rng
    shared, rng = rng, np.random.default_rng(7)  # numbers of its own: the others' stay what they are
    some = torch.tensor([[3, -100, 0], [6, 6, 2]])

    def rows(x, w, t, **options):
        return F.cross_entropy((x @ w.T).flatten(0, 1), t.flatten(), **options)

    case("linear_cross_entropy_mean", rows, x=normal(2, 3, 4), weight=normal(7, 4), target=some)
    case("linear_cross_entropy_smooth", lambda x, w, t: rows(x, w, t, reduction="sum", label_smoothing=0.1), x=normal(2, 3, 4), weight=normal(7, 4),
         target=some)
    case("linear_cross_entropy_z", lambda x, w, t: rows(x, w, t, reduction="none").view(2, 3) + 0.01 * (t >= 0) * (x @ w.T).logsumexp(-1) ** 2,
         x=normal(2, 3, 4, scale=3.0), weight=normal(7, 4), target=some)
    rng = shared


def attention():
    def sdpa(**options):
        return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask[0] if mask else None, **options)

    case("attention", sdpa(), q=normal(2, 3, 5, 4), k=normal(2, 3, 6, 4), v=normal(2, 3, 6, 2))
    case("attention_causal", sdpa(is_causal=True), q=normal(1, 2, 5, 4), k=normal(1, 2, 5, 4), v=normal(1, 2, 5, 4))
    case("attention_grouped", sdpa(is_causal=True, enable_gqa=True), q=normal(2, 6, 3, 4), k=normal(2, 2, 3, 4), v=normal(2, 2, 3, 4))
    case("attention_scale", sdpa(scale=0.3), q=normal(3, 4, 2), k=normal(3, 4, 2), v=normal(3, 4, 2))
    mask = torch.tensor(rng.random((5, 6)) < 0.6)
    mask[:, 0] = True
    case("attention_bool_mask", sdpa(), q=normal(1, 2, 5, 4), k=normal(1, 2, 6, 4), v=normal(1, 2, 6, 4), mask=mask)
    case("attention_additive_mask", sdpa(), q=normal(2, 2, 5, 4), k=normal(2, 2, 6, 4), v=normal(2, 2, 6, 4), mask=normal(2, 1, 5, 6).detach())


def rotary():
    """Su et al. 2021: pair i of position t is rotated by t * base^(-2i/D)."""
    def rope(x, base, offset, interleaved):
        t, d = x.shape[-2], x.shape[-1]
        angle = (torch.arange(t) + offset)[:, None] * base ** (-2 * torch.arange(d // 2) / d)
        cos, sin = angle.cos(), angle.sin()
        a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :d // 2], x[..., d // 2:])
        p, q = a * cos - b * sin, b * cos + a * sin
        return torch.stack((p, q), -1).flatten(-2) if interleaved else torch.cat((p, q), -1)

    case("rope", lambda x: rope(x, 10000.0, 0, False), x=normal(2, 3, 5, 6))
    case("rope_interleaved", lambda x: rope(x, 10000.0, 0, True), x=normal(3, 5, 4))
    case("rope_offset", lambda x: rope(x, 500.0, 7, False), x=normal(3, 4))


def optimizers():
    """Five steps; the gradients of every step are given, the parameter after every step is recorded."""
    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
        "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
        "adamw_defaults": lambda p: torch.optim.AdamW(p, lr=0.001),
    }
    for name, make in kinds.items():
        p = normal(2, 3).detach().requires_grad_()
        opt = make([p])
        lines.append(f"case optim_{name}")
        write("p0", p)
        for step in range(1, 6):
            g = normal(2, 3).detach()
            write(f"g{step}", g)
            p.grad = g
            opt.step()
            write(f"p{step}", p)


class Written(torch.optim.Optimizer):
    """Papers' formulas, parameter by parameter, where PyTorch has no such optimizer or computes in 16 bits."""

    def __init__(self, p, rule):
        super().__init__(p, {})
        self.rule = rule

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            s = self.state[p]
            s["t"] = s.get("t", 0) + 1
            self.rule(p, p.grad, s)


def lion(w, g, s, lr=0.01, b1=0.8, b2=0.95, decay=0.1):
    m = s.get("m", torch.zeros_like(w))
    w.sub_(lr * (torch.sign(b1 * m + (1 - b1) * g) + decay * w))
    s["m"] = b2 * m + (1 - b2) * g


def lamb(w, g, s, lr=0.1, b1=0.8, b2=0.95, eps=1e-6, decay=0.1):
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    r = (s["m"] / (1 - b1 ** s["t"])) / ((s["v"] / (1 - b2 ** s["t"])).sqrt() + eps) + decay * w
    w.sub_(lr * w.norm() / r.norm() * r)


def adafactor(w, g, s, b1=0.9, d=0.5):
    b2 = 1 - s["t"] ** -0.8
    sq = g * g + 1e-30
    s["r"] = b2 * s.get("r", 0) + (1 - b2) * sq.mean(-1, keepdim=True)
    s["c"] = b2 * s.get("c", 0) + (1 - b2) * sq.mean(-2, keepdim=True)
    u = g / (s["r"] @ s["c"] / s["r"].mean(-2, keepdim=True)).sqrt()
    u = u / max(1.0, (u * u).mean().sqrt().item() / d)
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * u
    w.sub_(max(1e-3, (w * w).mean().sqrt().item()) * min(1e-2, s["t"] ** -0.5) * s["m"])


def muon(w, g, s, lr=0.02, mu=0.9, decay=0.1):
    s["b"] = mu * s.get("b", 0) + g
    x = g + mu * s["b"]
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / x.norm()
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    w.mul_(1 - lr * decay).sub_(lr * max(1, w.shape[0] / w.shape[1]) ** 0.5 * (x.T if tall else x))


def more_optimizers():
    """As `optimizers`, for parameters of several shapes."""
    kinds = {
        "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5), (2, 3)),
        "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, weight_decay=0.1), (2, 3)),
        "rmsprop_momentum": (lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9), (2, 3)),
        "rmsprop_centered": (lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.5, centered=True), (2, 3)),
        "rmsprop_both": (lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.5, momentum=0.9, centered=True), (2, 3)),
        "adafactor": (lambda p: torch.optim.Adafactor(p, lr=0.01, eps=(1e-30, 1e-3), weight_decay=0.1), (3, 4)),
        "adafactor_batch": (lambda p: torch.optim.Adafactor(p, lr=0.8, eps=(1e-30, 1e-3)), (2, 3, 4)),
        "adafactor_vector": (lambda p: torch.optim.Adafactor(p, lr=0.01, eps=(1e-30, 1e-3)), (5,)),
        "adafactor_momentum": (lambda p: Written(p, adafactor), (3, 4)),
        "lion": (lambda p: Written(p, lion), (2, 3)),
        "lamb": (lambda p: Written(p, lamb), (2, 3)),
        "muon_wide": (lambda p: Written(p, muon), (3, 5)),
        "muon_tall": (lambda p: Written(p, muon), (5, 3)),
    }
    for name, (make, shape) in kinds.items():
        p = normal(*shape).detach().requires_grad_()
        opt = make([p])
        lines.append(f"case optim_{name}")
        write("p0", p)
        for step in range(1, 6):
            g = normal(*shape).detach()
            write(f"g{step}", g)
            p.grad = g
            opt.step()
            write(f"p{step}", p)


def adafactor_plain(w, g, s, lr=0.05, b2_decay=-0.5, eps1=1e-12, d=1.0):
    """Neither a relative step nor one that is scaled by the parameter."""
    b2 = 1 - s["t"] ** b2_decay
    sq = g * g + eps1
    s["r"] = b2 * s.get("r", 0) + (1 - b2) * sq.mean(-1, keepdim=True)
    s["c"] = b2 * s.get("c", 0) + (1 - b2) * sq.mean(-2, keepdim=True)
    u = g / (s["r"] @ s["c"] / s["r"].mean(-2, keepdim=True)).sqrt()
    w.sub_(lr * u / max(1.0, (u * u).mean().sqrt().item() / d))


def lamb_raw(w, g, s, lr=0.1, b1=0.9, b2=0.999, eps=1e-6):
    """Moments as they are, of weights that start as zeros: the first ratio of norms is 1."""
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    r = s["m"] / (s["v"].sqrt() + eps)
    ratio = w.norm() / r.norm() if w.norm() > 0 and r.norm() > 0 else 1
    w.sub_(lr * ratio * r)


def torch_muon(p, **options):
    """PyTorch's, which rounds to bf16 before it iterates, without that."""
    opt = torch.optim.Muon(p, **options)
    step = opt.step

    def exact():
        rounded, torch.bfloat16 = torch.bfloat16, torch.float64
        step()
        torch.bfloat16 = rounded

    opt.step = exact
    return opt


def options_of_optimizers():
    global rng
    rng = np.random.default_rng(11)
    kinds = {
        "muon_torch": (lambda p: torch_muon(p, lr=0.02, weight_decay=0.1, momentum=0.95), (4, 3)),
        "muon_torch_adamw_rate": (lambda p: torch_muon(p, lr=0.02, weight_decay=0, momentum=0.9, nesterov=False, ns_steps=3,
                                                       adjust_lr_fn="match_rms_adamw"), (3, 5)),
        "muon_torch_coefficients": (lambda p: torch_muon(p, lr=0.1, ns_coefficients=(2.0, -1.5, 0.5), ns_steps=8), (3, 3)),
        "adafactor_plain": (lambda p: Written(p, adafactor_plain), (4, 3)),
        "lamb_raw": (lambda p: Written(p, lamb_raw), (2, 3)),
        "sgd_all": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, weight_decay=0.2, nesterov=True), (5,)),
        "sgd_damped_decay": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.2), ()),
        "rmsprop_all": (lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.7, eps=1e-3, weight_decay=0.1, momentum=0.5, centered=True), (7,)),
        "adagrad_eps": (lambda p: torch.optim.Adagrad(p, lr=0.1, eps=0.1), (2, 3)),
        "adam_betas_0": (lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.0, 0.0)), (2, 3)),
    }
    for name, (make, shape) in kinds.items():
        p = (torch.zeros(shape) if name == "lamb_raw" else normal(*shape).detach()).requires_grad_()
        record_steps(name, make([p]), {"p": p})


def record_steps(name, opt, parameters, schedule=None, steps=5):
    lines.append(f"case optim_{name}")
    for key, p in parameters.items():
        write(f"{key}0", p)
    for step in range(1, steps + 1):
        for key, p in parameters.items():
            p.grad = normal(*p.shape).detach()
            write(f"g{step}" if key == "p" else f"{key}_g{step}", p.grad)
        opt.step()
        for key, p in parameters.items():
            write(f"{key}{step}", p)
        if schedule:
            schedule.step()


def schedules():
    """Two groups, each its options; both under PyTorch's schedules."""
    rates = torch.optim.lr_scheduler

    def two(kind, a, b):
        p, q = normal(2, 3).detach().requires_grad_(), normal(4).detach().requires_grad_()
        return {"p": p, "q": q}, kind([{"params": [p], **a}, {"params": [q], **b}])

    named, opt = two(torch.optim.AdamW, dict(lr=0.05, weight_decay=0.2), dict(lr=0.02, weight_decay=0.0, betas=(0.5, 0.9)))
    record_steps("groups_constant", opt, named)
    named, opt = two(torch.optim.SGD, dict(lr=0.1, momentum=0.9), dict(lr=0.3))
    record_steps("groups_linear", opt, named, rates.LinearLR(opt, start_factor=0.25, end_factor=1.0, total_iters=3))
    named, opt = two(torch.optim.AdamW, dict(lr=0.1, weight_decay=0.2), dict(lr=0.1, weight_decay=0.0))
    record_steps("groups_warmup_cosine", opt, named,
                 rates.SequentialLR(opt, [rates.LinearLR(opt, start_factor=1 / 3, total_iters=2), rates.CosineAnnealingLR(opt, T_max=4, eta_min=0.01)], [3]),
                 steps=7)


for group in (unary, binary, reductions, products, rows, indexing, losses, linear_losses, attention, rotary, optimizers, more_optimizers, options_of_optimizers, schedules):
    group()
head = f"# Made by make_goldens.py with Python {sys.version.split()[0]}, PyTorch {torch.__version__}, NumPy {np.__version__}."
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens.txt")
with open(path, "w") as f:
    f.write("\n".join([head] + lines) + "\n")
print(f"{path}: {len(lines)} lines")
