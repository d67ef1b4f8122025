"""Rows with their figures, as text and as Markdown."""

import dataclasses
import math

import rows


@dataclasses.dataclass
class Line:
    what: str
    row: rows.Row
    ours: float
    unit: str
    against: float | None  # None: an absolute figure
    by: str  # whose figure that is

    @property
    def value(self):
        return self.ours if self.against is None else self.ours / self.against

    @property
    def reached(self):
        return "" if self.row.target == math.inf else "yes" if self.value <= self.row.target else "no"

    def cells(self):
        return [self.what, f"{number(self.ours)} {self.unit}".strip(),
                f"{number(self.against)} ({self.by})" if self.against is not None else "",
                f"{self.value:.2f}" if self.against is not None else "",
                "" if self.row.target == math.inf else target_text(self), self.reached]


def number(x):
    return f"{x:.0f}" if x == 0 or abs(x) >= 100 else f"{x:.3g}"


def target_text(line):
    return f"<= {line.row.target:g}" + ("" if line.against is not None else f" {line.unit}".rstrip())


HEAD = ["", "ours", "against", "ratio", "target", "reached"]


def lines(results):
    """The rows whose figures were measured. `results`: (by, name, case) -> {"value", "unit"}."""
    for row in rows.all_rows():
        found = [line for pair in [(row.ours, row.against), *row.others] if (line := compared(row, *pair, results))]
        if found:
            yield max(found, key=lambda line: line.value)


def compared(row, ours, against, results):
    """A row with its figures; None if they were not measured."""
    theirs = [(results[key]["value"], key[0]) for key in against if key in results]
    if ours not in results or (against and not theirs):
        return None
    value, by = min(theirs) if theirs else (None, "")
    what = row.what + (f" ({rows.size_of(ours)})" if row.others else "")
    return Line(what, row, results[ours]["value"], results[ours]["unit"], value, by)


def text(all_lines):
    cells = [HEAD] + [line.cells() for line in all_lines]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)


def markdown_table(head, body):
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body]])


def markdown(all_lines):
    escape = [[cell.replace("<cleave", "`<cleave").replace("h>", "h>`") for cell in line.cells()] for line in all_lines]
    return markdown_table(["point", *HEAD], [[str(line.row.point), *row] for line, row in zip(all_lines, escape)])


def collectives(results):
    """Microseconds of every collective, size and number of ranks, side by side."""
    head = ["", "bytes", "ranks", "threads", "MPI", "MPI, shared", "Open MPI", "Open MPI tuned", "memcpy"]
    body = []
    for kind in rows.KINDS:
        for size, count in rows.SIZES.items():
            for ranks in (2, 4):
                keys = [*(rows.collective("cleave", kind, how, ranks, size) for how in ("threads", "mpi", "mpi shared")),
                        *(rows.collective(f"open mpi {how}", kind, "mpi", ranks, size) for how in ("default", "tuned")),
                        rows.cleave("collectives", f"memcpy {count}")]
                if keys[0] in results:
                    figures = [number(results[k]["value"]) if k in results else "" for k in keys]
                    body.append([kind, size, str(ranks), *figures])
    return markdown_table(head, body) if body else ""
