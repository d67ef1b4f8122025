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


def measure(group, rounds, results, failed):
    """Runs the jobs in turns; adds to `results`, by (by, name, case), the least over the rounds, and to `failed`."""
    found = {}
    for turn in range(rounds):
        for job in group:
            if job.once and turn or job.label in failed:
                continue
            print(f"[{turn + 1}/{rounds}] {job.label}", file=sys.stderr, flush=True)
            try:
                lines = job.run()
            except (jobs.JobFailed, subprocess.TimeoutExpired) as error:
                print(f"FAILED: {error}", file=sys.stderr)
                failed.append(job.label)
                continue
            for r in lines:
                key = (r["by"], r["name"], r["case"])
                if key not in found or r["value"] < found[key]["value"]:
                    found[key] = r
    results |= found


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


def save(path, about, results):
    rows = [dict(zip(("what", *table.HEAD[1:]), line.cells())) for line in table.lines(results)]
    path.write_text(json.dumps({"about": about, "rows": rows, "results": list(results.values())}, indent=1) + "\n")


def main():
    o = arguments()
    python = machine.peers_python() if o.peers else None
    groups = jobs.groups(python, o.quick)
    every = [n for n in groups if n not in jobs.ON_DEMAND and not (o.quick and n in jobs.SLOW)]
    about, results, failed = machine.description(python), {}, []
    if o.add and o.out.exists():
        results = {(r["by"], r["name"], r["case"]): r for r in json.loads(o.out.read_text())["results"]}
    for name in o.only or every:
        measure(list(groups[name]()), o.rounds or (1 if o.quick else 3), results, failed)
        save(o.out, about, results)  # after each group: a run takes half an hour

    lines = list(table.lines(results))
    print(", ".join(f"{k}: {v}" for k, v in about.items()))
    print(table.text(lines))
    print(f"{sum(line.reached == 'yes' for line in lines)} targets reached, "
          f"{sum(line.reached == 'no' for line in lines)} not")
    for label in failed:
        print(f"not measured, it failed: {label}")
    if o.write_docs:
        write_docs(about, results, lines)
    return 1 if failed else 0


sys.exit(main())
