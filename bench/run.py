"""scripts/bench: runs the benchmark programs and the peers in turns, and compares."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import jobs
import machine
import plot
import table

PAGE = machine.ROOT / "docs" / "performance.md"


def arguments():
    parse = argparse.ArgumentParser(prog="scripts/bench", description="Measures cleave, beside bounds and peers.")
    parse.add_argument("--peers", action="store_true",
                       help="also PyTorch and JAX: from $CLEAVE_PEERS_PYTHON, or installed into build/peers (several GB)")
    names = list(jobs.groups(None, True))
    parse.add_argument("--only", action="append", choices=names, help="this group; may be repeated")
    parse.add_argument("--quick", action="store_true", help="one round, fewer steps: a look, not a result")
    parse.add_argument("--rounds", type=int, help="rounds of which the least counts (default 3)")
    parse.add_argument("--out", type=pathlib.Path, default=machine.BUILD / "bench.json", help="default build/bench.json")
    parse.add_argument("--add", action="store_true", help="to what --out holds already, in place of what is measured anew")
    parse.add_argument("--write-docs", action="store_true", help="rewrite the tables and plots of docs/performance.md")
    return parse.parse_args()


def measure(names, python, quick, rounds):
    """(by, name, case) -> result, the least over the rounds; and what failed."""
    groups, results, failed = jobs.groups(python, quick), {}, []
    for name in names:
        group = list(groups[name]())
        for turn in range(rounds):
            for job in group:
                if job.once and turn or job.label in failed:
                    continue
                print(f"[{name} {turn + 1}/{rounds}] {job.label}", file=sys.stderr, flush=True)
                try:
                    found = job.run()
                except (jobs.JobFailed, subprocess.TimeoutExpired) as error:
                    print(f"FAILED: {error}", file=sys.stderr)
                    failed.append(job.label)
                    continue
                for r in found:
                    key = (r["by"], r["name"], r["case"])
                    if key not in results or r["value"] < results[key]["value"]:
                        results[key] = r
    return results, failed


def curves(results, letter):
    """Time per token, ours and PyTorch's."""
    size = {"T": "seq", "D": "dim"}[letter]
    sizes = json.loads((machine.ROOT / "bench" / "workloads.json").read_text())["gpt"]
    found = {}
    for by in ("cleave", "pytorch eager"):
        points = [(sizes[w][size], results[by, "step.token", f"{w} f32 1x1"]["value"])
                  for w in machine.curve(letter) if (by, "step.token", f"{w} f32 1x1") in results]
        if points:
            found[by] = points
    return found


def rewrite(text, name, body):
    return re.sub(f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", lambda m: m[1] + body + "\n" + m[2], text, flags=re.S)


def write_docs(about, results, lines):
    page = PAGE.read_text()
    made = ", ".join(f"{k} {v if not isinstance(v, list) else ' '.join(v)}" for k, v in about.items())
    page = rewrite(page, "machine", made)
    page = rewrite(page, "table", table.markdown(lines))
    page = rewrite(page, "collectives", table.collectives(results))
    PAGE.write_text(page)
    for letter, name, label in (("T", "time_over_length", "tokens of a sequence"), ("D", "time_over_width", "width of the model")):
        found = curves(results, letter)
        if found:
            drawing = plot.svg(f"Time of a training step per token, f32, 1 core ({about['cpu']}, {about['date']})", label,
                               "microseconds per token", found)
            (PAGE.parent / f"{name}.svg").write_text(drawing)


def main():
    o = arguments()
    python = machine.peers_python() if o.peers else None
    every = [n for n in jobs.groups(None, True) if n not in jobs.ON_DEMAND and not (o.quick and n in jobs.SLOW)]
    about = machine.description(python)
    results, failed = measure(o.only or every, python, o.quick, o.rounds or (1 if o.quick else 3))
    if o.add and o.out.exists():
        earlier = {(r["by"], r["name"], r["case"]): r for r in json.loads(o.out.read_text())["results"]}
        results = earlier | results
    lines = list(table.lines(results))

    print(", ".join(f"{k}: {v}" for k, v in about.items()))
    print(table.text(lines))
    missed = [line for line in lines if line.reached == "no"]
    print(f"{sum(line.reached == 'yes' for line in lines)} targets reached, {len(missed)} not")
    for label in failed:
        print(f"not measured, it failed: {label}")
    rows = [dict(zip(("what", "ours", "against", "ratio", "target", "reached"), line.cells())) for line in lines]
    o.out.write_text(json.dumps({"about": about, "rows": rows, "results": list(results.values())}, indent=1) + "\n")
    if o.write_docs:
        write_docs(about, results, lines)
    return 1 if failed else 0


sys.exit(main())
