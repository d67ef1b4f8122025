"""What the figures were measured on, and the programs that are measured."""

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
BIN = BUILD / "bin"
PEERS = ROOT / "bench" / "peers"


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def cpu_flags():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_tile")
    return [f for f in wanted if f" {f}" in text]


def description(python):
    about = {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load": f"{os.getloadavg()[0]:.1f} before",  # of others: above 0.5 the figures are not worth much
        "instructions": cpu_flags(),
        "compiler": output("g++", "--version").splitlines()[0],
        "cleave": output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
    }
    if shutil.which("mpirun"):
        about["mpi"] = output("mpirun", "--version").splitlines()[0]
    if python:
        code = ("import json, importlib.metadata as m; "
                "print(json.dumps({n: m.version(n) for n in ('torch', 'jax', 'numpy')}))")
        about |= json.loads(output(python, "-c", code))
    return about


def peers_python():
    """The interpreter that has the peers: $CLEAVE_PEERS_PYTHON, or one of our own in build/peers, made at first use."""
    given = os.environ.get("CLEAVE_PEERS_PYTHON")
    if given:
        return given
    folder, wanted = BUILD / "peers" / "venv", (PEERS / "requirements.txt").read_text()
    python, installed = folder / "bin" / "python", folder / "requirements.txt"
    if not installed.exists() or installed.read_text() != wanted:
        print("installing the peers into build/peers (several GB)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", PEERS / "requirements.txt"], check=True)
        installed.write_text(wanted)
    return str(python)


def compiled_peer(name, compiler, flags):
    """A C++ peer in build/peers, compiled if its source is newer."""
    source, program = PEERS / f"{name}.cpp", BUILD / "peers" / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(exist_ok=True)
        subprocess.run([compiler, "-std=c++20", "-O2", source, "-o", program, *flags], check=True)
    return str(program)


def libtorch(python):
    code = ("import torch.utils.cpp_extension as e, torch; "
            "print(*['-isystem' + p for p in e.include_paths()], "
            "f'-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}', "
            "*[f'-L{p} -Wl,-rpath,{p}' for p in e.library_paths()], '-ltorch', '-ltorch_cpu', '-lc10')")
    return compiled_peer("libtorch", "g++", output(python, "-c", code).split())


def open_mpi():
    return compiled_peer("open_mpi", "mpicxx", [])


def curve(letter):
    """The workloads of one curve: "T" over the length of the sequence, "D" over the width of the model."""
    names = json.loads((ROOT / "bench" / "workloads.json").read_text())["gpt"]
    return [n for n in names if n.startswith(letter)]
