"""The table: what is compared with what, and what is to be reached."""

import dataclasses
import math

SLOWER = 1.05  # what counts as not slower, of two measured apart


@dataclasses.dataclass
class Row:
    point: int  # groups the rows
    what: str
    ours: tuple  # (by, name, case)
    against: list = dataclasses.field(default_factory=list)  # the least of these; none: the figure itself counts
    target: float = math.inf  # at most; inf: none set
    others: list = dataclasses.field(default_factory=list)  # more (ours, against), of which the worst counts


def cleave(name, case=""):
    return ("cleave", name, case)


def pytorch(name, case, modes=("eager", "compile")):
    return [(f"pytorch {mode}", name, case) for mode in modes]


def training_rows():
    for w, torch, bound in (("W1", 0.75, 1.4), ("W2", 0.80, 1.4), ("W3", 0.80, 1.4)):
        case = f"{w} f32 1x1"
        step = cleave("step", case)
        yield Row(1, f"step {w} f32, 1 core / PyTorch", step, pytorch("step", case), torch)
        yield Row(1, f"step {w} f32, 1 core / matmuls alone", step, [("oneDNN", "matmuls", f"{w} f32")], bound)
        yield Row(1, f"step {w} f32, 1 core / JAX", step, [("jax jit", "step", case)], 1)
    for w in ("W1", "W2", "W3"):
        case = f"{w} bf16 1x1"
        step = cleave("step", case)
        yield Row(2, f"step {w} bf16, 1 core / PyTorch", step, pytorch("step", case), 0.55)
        yield Row(2, f"step {w} bf16, 1 core / matmuls alone", step, [("oneDNN", "matmuls", f"{w} bf16")])
        yield Row(2, f"step {w} bf16 / f32", step, [cleave("step", f"{w} f32 1x1")])
    yield Row(2, "held-out loss after 300 steps, bf16 / f32", cleave("held_out", "bf16"), [cleave("held_out", "f32")],
              1.01)


def attention_rows():
    for w, target in (("W1", 0.5), ("W2", 0.5), ("T4096", 0.85)):
        case = f"{w} f32"
        yield Row(3, f"attention {w} / PyTorch", cleave("attention", case), [("pytorch eager", "attention", case)], target)
    yield Row(3, "attention's memory, T = 32768 / 16384", cleave("attention.memory", "T=32768 f32"),
              [cleave("attention.memory", "T=16384 f32")], 2.1)
    yield Row(3, "attention T = 32768, one head", cleave("attention", "T=32768 f32"))


def dispatch_rows():
    for case, target, by, ratio in (("plain", 250, "libtorch", 1), ("tape", 400, "libtorch", 1),
                                    ("distributed", 900, "dtensor", 1)):
        yield Row(4, f"f32[16] + f32[16], {case}", cleave("dispatch", case), [], target)
        yield Row(4, f"f32[16] + f32[16], {case} / {by}", cleave("dispatch", case), [(by, "dispatch", case)], ratio)
    yield Row(4, "ten multiplications, sum, backward / libtorch", cleave("dispatch", "ten_backward"),
              [("libtorch", "dispatch", "ten_backward")], 0.25)


def rank_rows():
    for backend in ("threads", "mpi"):
        for plan in ("tp", "tp_sp", "dp"):
            step = cleave("step", f"W2 f32 {backend} {plan} 2x1")
            what = f"W2 on 2 {backend} ranks, {plan}"
            yield Row(5, f"{what} / 1 core", step, [cleave("step", "W2 f32 1x1")], 0.60)
            yield Row(5, f"{what} / 1 rank, 2 threads", step, [cleave("step", "W2 f32 1x2")], 1.05)
    for plan in ("tp", "tp_sp"):
        yield Row(5, f"W2 on 2 ranks, {plan} / DTensor", cleave("step", f"W2 f32 threads {plan} 2x1"),
                  [("dtensor", "step", "W2 f32 tp 2x1")], 1)
    yield Row(5, "W2, 1 rank, 2 threads / PyTorch", cleave("step", "W2 f32 1x2"),
              [("pytorch eager", "step", "W2 f32 1x2")], 1)


SIZES = {"1 KB": 1 << 10, "8 KB": 1 << 13, "64 KB": 1 << 16, "1 MB": 1 << 20, "8 MB": 1 << 23, "64 MB": 1 << 26,
         "256 MB": 1 << 28}
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def collective(by, kind, backend, ranks, size):
    return (by, "collectives", f"{kind} {backend} {ranks} {SIZES[size]}")


def size_of(key):
    """"64 KB" of the key of a collective."""
    return next(name for name, count in SIZES.items() if str(count) == key[2].split()[-1])


def collective_rows():
    for n, us, memcpy in ((2, 1.0, 0.6), (4, 3.0, 1.5)):
        yield Row(6, f"all_reduce 1 KB, {n} thread ranks", collective("cleave", "all_reduce", "threads", n, "1 KB"), [], us)
        yield Row(6, f"all_reduce 64 MB, {n} thread ranks / memcpy",
                  collective("cleave", "all_reduce", "threads", n, "64 MB"),
                  [cleave("collectives", f"memcpy {SIZES['64 MB']}")], memcpy)
    yield Row(6, "barrier, 4 thread ranks", cleave("collectives", "barrier threads 4"), [], 5)
    yield Row(6, "barrier, 4 thread ranks beside a busy process", cleave("collectives", "barrier threads 4 busy"), [], 10)
    for n in (2, 4):
        for kind in KINDS:
            pairs = [(collective("cleave", kind, "mpi", n, size), [collective("open mpi default", kind, "mpi", n, size)])
                     for size in SIZES]
            yield Row(6, f"{kind}, {n} MPI ranks, private buffers / Open MPI, worst size", *pairs[0], SLOWER, pairs[1:])
        for kind in ("all_reduce", "reduce_scatter"):
            for size, by, target in (("64 KB", "default", 0.6), ("1 MB", "default", 0.6), ("64 MB", "tuned", 0.5)):
                yield Row(6, f"{kind} {size}, {n} MPI ranks, shared buffers / Open MPI {by}",
                          collective("cleave", kind, "mpi shared", n, size),
                          [collective(f"open mpi {by}", kind, "mpi", n, size)], target)


def other_rows():
    yield Row(7, "peak memory of a W2 step / PyTorch", cleave("step.peak", "W2 f32 1x1"),
              [("pytorch eager", "step.peak", "W2 f32 1x1")], 0.75)
    for w in ("W1", "W2", "W3"):
        yield Row(7, f"allocations from the system after the second step, {w}", cleave("step.allocations", f"{w} f32 1x1"),
                  [], 0)
    for what in ("ops", "ops and moves"):
        for state in ("warm", "cold"):
            yield Row(9, f"{what}, {state}: 1,024 ranks / 8", cleave("propagation", f"{what} {state} 1024"),
                      [cleave("propagation", f"{what} {state} 8")], 1.3)
    plans = "rank 4, 4 axes"
    yield Row(9, f"worst plan of a redistribution, {plans}, cold", cleave("planning.cold_worst", plans), [], 5)
    yield Row(9, f"plan of a redistribution, {plans}, warm", cleave("planning.warm", plans), [], 300)
    yield Row(10, "start to the end of W1's first step", cleave("start.first_step", "W1 f32 1x2"), [], 0.5)
    yield Row(10, "start to the end of W1's first step / PyTorch", cleave("start.first_step", "W1 f32 1x2"),
              [("pytorch eager", "start.first_step", "W1 f32 1x2")], 1)
    yield Row(10, "compiling a file that includes <cleave/cleave.h>", cleave("start.include"), [], 2.5)
    yield Row(10, "building the library without ccache", cleave("start.build"), [], 240)


def overlap_rows():
    for case, target in (("dp balanced", SLOWER), ("split balanced", SLOWER), ("dp slow link", 1), ("split slow link", 1),
                         ("split skewed", 1)):
        yield Row(11, f"overlap, 2 thread ranks, {case}: on / off", cleave("overlap", f"{case} on"),
                  [cleave("overlap", f"{case} off")], target)


def sharded_rows():
    one, two = "W2 f32 1x1", "W2 f32 threads {} 2x1".format
    for plan, target in (("zero1", 1.05), ("zero2", 1.05), ("zero3", 1.1)):
        yield Row(12, f"W2 on 2 ranks, {plan} / dp", cleave("step", two(plan)), [cleave("step", two("dp"))], target)
        yield Row(12, f"allocator's peak, {plan} / dp", cleave("step.allocator_peak", two(plan)),
                  [cleave("step.allocator_peak", two("dp"))], 1)
    yield Row(12, "W2 on 2 ranks, zero3 / PyTorch's fully_shard", cleave("step", two("zero3")),
              [("fsdp", "step", "W2 f32 zero3 2x1")], 1)
    for what, target in (("recompute 1", 4 / 3), ("loss-chunk 256", 1.15)):
        case = f"{one} {what}"
        yield Row(12, f"W2, {what} / without", cleave("step", case), [cleave("step", one)], target)
        yield Row(12, f"allocator's peak, {what} / without", cleave("step.allocator_peak", case),
                  [cleave("step.allocator_peak", one)], 1)


def state_rows():
    bound = [cleave("update", "memcpy of 28 bytes")]
    for case in ("adamw large f32", "adamw small f32"):
        update = cleave("update", case)
        yield Row(13, f"{case}, per element / moving its bytes", update, bound, 1.2 if "large" in case else math.inf)
        yield Row(13, f"{case}, per element / PyTorch, fused", update, [("pytorch eager", "update", case)], SLOWER)
    yield Row(13, "adamw large bf16, per element / moving the bytes of f32", cleave("update", "adamw large bf16"), bound)
    for what, other in (("save", "plain save"), ("load", "plain load"), ("pause", "plain load")):
        case = cleave("checkpoint", f"{what} 1")
        yield Row(13, f"1 GB, {what} / {other} of a file", case, [cleave("checkpoint", other)])
        if what != "pause":
            yield Row(13, f"1 GB, {what} / safetensors of PyTorch", case, [("safetensors", "checkpoint", f"{what} 1")])
        yield Row(13, f"1 GB, {what}, 2 ranks / 1", cleave("checkpoint", f"{what} 2"), [case], 1)


def all_rows():
    for part in (training_rows, attention_rows, dispatch_rows, rank_rows, collective_rows, other_rows, overlap_rows,
                 sharded_rows, state_rows):
        yield from part()
