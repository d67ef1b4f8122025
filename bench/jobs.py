"""What is run: groups of jobs. A job is a function that gives a list of results
{"by", "name", "case", "value", "unit"}; the jobs of a group take turns, so that noise hits all alike."""

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import tempfile
import time

import machine

ENVIRONMENT = {
    "TORCHINDUCTOR_CACHE_DIR": str(machine.BUILD / "peers" / "inductor"),
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}

TUNED_MPI = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
             "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "262144"]
# No page is given back to the system, and none is fetched twice.
TUNED_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184",
                "MALLOC_TOP_PAD_": "1073741824"}


@dataclasses.dataclass
class Job:
    label: str
    run: callable
    once: bool = False  # in the first round only: too long, or not noisy


class JobFailed(Exception):
    pass


@contextlib.contextmanager
def foreign_load():
    """One busy process that is none of ours."""
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def lines_of(command, environment=None, timeout=600):
    started = {"BENCH_START": repr(time.monotonic())}
    environment = {**os.environ, **ENVIRONMENT, **(environment or {}), **started}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)
    if done.returncode:
        raise JobFailed((done.stderr or done.stdout).strip()[-2000:])
    return done.stdout.splitlines()


def program(command, environment=None, once=False, load=False):
    """A program that prints its results."""
    command = [str(word) for word in command]

    def run():
        with foreign_load() if load else contextlib.nullcontext():
            return [json.loads(line) for line in lines_of(command, environment) if line.startswith("{")]

    return Job(" ".join(command).replace(str(machine.ROOT) + "/", ""), run, once)


def ours(name, *arguments, **how):
    return program([machine.BIN / f"bench_{name}", *arguments], **how)


def seconds_of(command, **how):
    start = time.monotonic()
    lines_of([str(word) for word in command], **how)
    return time.monotonic() - start


def compile_include():
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "user.cpp")
        with open(source, "w") as file:
            file.write("#include <cleave/cleave.h>\nint main() {}\n")
        value = seconds_of(["g++", "-std=c++20", "-O2", "-I", machine.BUILD / "include", "-c", source, "-o",
                            os.path.join(folder, "user.o")])
    return [{"by": "cleave", "name": "start.include", "case": "", "value": value, "unit": "s"}]


def build_library():
    with tempfile.TemporaryDirectory() as folder:
        lines_of(["cmake", "-S", str(machine.ROOT), "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                  "-DCMAKE_CXX_COMPILER_LAUNCHER="])
        value = seconds_of(["cmake", "--build", folder, "--target", "cleave"], timeout=3600,
                           environment={"CCACHE_DISABLE": "1"})
    return [{"by": "cleave", "name": "start.build", "case": "", "value": value, "unit": "s"}]


def held_out(dtype):
    def run():
        text = "\n".join(lines_of([str(machine.BIN / "gpt"), "train", "--steps", "300", "--dtype", dtype]))
        value = float(re.search(r"held-out loss ([0-9.]+)", text)[1])
        return [{"by": "cleave", "name": "held_out", "case": dtype, "value": value, "unit": "nats"}]

    return Job(f"gpt train --steps 300 --dtype {dtype}", run, once=True)


class Peers:
    """The jobs of the peers; none without an interpreter that has them."""

    def __init__(self, python):
        self.python = python

    def script(self, name, *arguments, **how):
        return [program([self.python, machine.PEERS / f"{name}.py", *arguments], **how)] if self.python else []

    def pytorch(self, *arguments, **how):
        return self.script("pytorch", *arguments, **how)

    def libtorch(self):
        return [program([machine.libtorch(self.python)])] if self.python else []


def training(peers, dtype, workloads, steps):
    for w in workloads:
        n = steps[w]
        yield from [ours("matmuls", "--workload", w, "--dtype", dtype),
                    ours("step", "--workload", w, "--dtype", dtype, "--threads", 1, "--steps", n)]
        for mode in ("eager", "compile"):
            yield from peers.pytorch("step", w, dtype, mode, 1, n)
        if dtype == "f32":
            yield from peers.script("jax_step", w, 2, once=True)


def ranks(peers, steps):
    def of(*arguments, how=(), **more):
        return program([*how, machine.BIN / "bench_step", "--workload", "W2", "--steps", steps, *arguments], **more)

    yield of("--threads", 1)
    yield of("--threads", 2)
    for plan in ("tp", "tp_sp", "dp"):
        axis = plan.split("_")[0]
        split = ["--mesh", f"{axis}=2", "--plan", plan]
        yield of("--ranks", 2, *split)
        yield of(*split, how=[machine.ROOT / "scripts" / "mpirun", "-n", "2"])
    yield from peers.pytorch("step", "W2", "f32", "eager", 2, steps)
    yield from peers.script("dtensor", "step", "W2", steps)


def sharded(peers, steps):
    """What sharding, recomputation and a loss in chunks cost, and what memory they spare."""
    w2 = ["--workload", "W2", "--steps", steps]
    yield ours("step", *w2, "--threads", 1)
    yield ours("step", *w2, "--threads", 1, "--recompute", 1)
    yield ours("step", *w2, "--threads", 1, "--loss-chunk", 256)
    for plan in ("dp", "zero1", "zero2", "zero3"):
        yield ours("step", *w2, "--ranks", 2, "--mesh", "dp=2", "--plan", plan)
    yield from peers.script("dtensor", "fsdp", "W2", steps)


def collectives():
    mpirun = [machine.ROOT / "scripts" / "mpirun", "-n"]
    for n in (2, 4):
        yield ours("collectives", "--ranks", n)
        yield program([*mpirun, n, machine.BIN / "bench_collectives"])
        yield program([*mpirun, n, machine.open_mpi(), "default"])
        yield program([*mpirun, n, *TUNED_MPI, machine.open_mpi(), "tuned"], environment=TUNED_MALLOC)
        yield ours("collectives", "--ranks", n, "--load", "busy", load=True)


def curves(peers):
    for w in machine.curve("T") + machine.curve("D"):
        yield ours("step", "--workload", w, "--threads", 1, "--steps", 2)
        yield from peers.pytorch("step", w, "f32", "eager", 1, 2)


def groups(python, quick):
    """By name; those of `on_demand` only run when they are named."""
    peers = Peers(python)
    steps = {"W1": 3, "W2": 2, "W3": 3} if quick else {"W1": 10, "W2": 5, "W3": 10}
    workloads = ["W1", "W2", "W3"]
    return {
        "step": lambda: training(peers, "f32", workloads, steps),
        "bf16": lambda: training(peers, "bf16", workloads, steps),
        "held_out": lambda: [held_out("f32"), held_out("bf16")],
        "attention": lambda: [
            job for w in ("W1", "W2", "T4096") for n in [2 if w == "T4096" else 10]
            for job in [ours("attention", "--workload", w, "--calls", n), *peers.pytorch("attention", w, n)]
        ] + [ours("attention", "--workload", "T32768", "--seq", t, "--calls", 1, once=True)
             for t in (1024, 4096, 16384, 32768)],
        "dispatch": lambda: [ours("dispatch"), *peers.libtorch(), *peers.script("dtensor", "dispatch")],
        "ranks": lambda: ranks(peers, steps["W2"]),
        "sharded": lambda: sharded(peers, steps["W2"]),
        "update": lambda: [ours("update"), *peers.script("state", "update")],
        "checkpoint": lambda: [ours("checkpoint"), ours("checkpoint", "--ranks", 2), *peers.script("state", "checkpoint")],
        "collectives": collectives,
        "overlap": lambda: [ours("overlap")],
        "planning": lambda: [ours("growth")],
        "curves": lambda: curves(peers),
        "start": lambda: [ours("step", "--workload", "W1", "--steps", 2), Job("g++ user.cpp", compile_include),
                          *peers.pytorch("step", "W1", "f32", "eager", 2, 2)],
        "build": lambda: [Job("cmake --build", build_library, once=True)],
    }


ON_DEMAND = {"build"}
SLOW = {"held_out"}  # left out by --quick
