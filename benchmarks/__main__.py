"""Run every `bench_*.py` of this folder in a process of its own and write the table
`docs/benchmarks.md`.

`python -m benchmarks` runs all; `python -m benchmarks readers tokens` only those, and prints the
table without writing. `readme` comes first: what a person types, on real logs, against an earlier
tree (`CTXKIT_EARLIER`).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.mutation_scores import format_section

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "benchmarks.md"
SECONDS = 1800
_RUN = """
import importlib, json, os, sys
benchmark = importlib.import_module(sys.argv[1])
if hasattr(os, "sched_setaffinity") and not getattr(benchmark, "PARALLEL", False):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print("\\n@rows " + json.dumps(benchmark.run()))
"""
"""Cores differ, on some machines by half: both sides of a ratio stay on one, unless a module is
`PARALLEL`.
"""
_HEAD = """# Benchmarks

Written by `make bench`. A row is a ratio of median CPU times between ctxkit and a named peer in one process on one core
(two where processes are compared), once both results are equal. On another machine, figures differ more than ratios. The
rows of `readme` are commands on real logs, against an earlier ctxkit (`CTXKIT_EARLIER`) or a limit of time.
{where}

| benchmark | what | ours | peer | unit | ratio | goal | |
| --- | --- | ---: | ---: | --- | ---: | --- | --- |
"""


def list_benchmarks(wanted: list[str]) -> list[str]:
    """Return the names of the benchmark modules, all or those that were asked for."""
    known = sorted(p.stem for p in HERE.glob("bench_*.py"))
    unknown = [w for w in wanted if f"bench_{w}" not in known]
    if unknown:
        sys.exit(
            f"No benchmark is called {', '.join(unknown)}; there is:"
            f" {', '.join(k[6:] for k in known)}."
        )
    found = [k for k in known if not wanted or k[6:] in wanted]
    return sorted(found, key=lambda k: k != "bench_user_calls")


def measure(benchmark: str) -> list[dict] | str:
    """Return the rows of one module, run in a fresh process, or the last line of what
    went wrong.
    """
    command = [sys.executable, "-c", _RUN, f"benchmarks.{benchmark}"]
    try:
        done = subprocess.run(
            command,
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env=os.environ,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {SECONDS} s"
    rows = [line[6:] for line in done.stdout.splitlines() if line.startswith("@rows ")]
    if done.returncode or not rows:
        return (done.stderr.strip().splitlines() or ["it printed no rows"])[-1]
    return json.loads(rows[-1])


def goal(row: dict) -> str:
    """Return the goal of a row as `<= 4` or `>= 8`; one that is a bare number is a bound in the
    ratio's direction.

    A ratio of ours to the peer's shall be small, one of the peer's to ours large. `and ours <= 0.1`
    bounds the figure.
    """
    told = row.get("goal")
    if not isinstance(told, (int, float)):
        return str(told or "").replace("≤", "<=").replace("≥", ">=")
    ours, peer, ratio = row["ours"], row["peer"], row["ratio"]
    small = abs(ratio - ours / peer) <= abs(ratio - peer / ours)
    return f"{'<=' if small else '>='} {told:,}"


def holds(row: dict) -> bool | None:
    """Whether a row keeps its goal: that of its ratio, and of its figure where one is named; None
    without a goal.
    """
    kept = [_kept(row, clause) for clause in goal(row).split(" and ")]
    return None if None in kept else all(kept)


def _kept(row: dict, clause: str) -> bool | None:
    which = "ours" if clause.startswith("ours ") else "ratio"
    sign, _, bound = clause.removeprefix("ours ").partition(" ")
    try:
        limit, value = float(bound.replace(",", "")), float(row[which])
    except (TypeError, ValueError):
        return None
    return {"<=": value <= limit, "<": value < limit, ">=": value >= limit, ">": value > limit}.get(
        sign
    )


def line(benchmark: str, row: dict) -> str:
    """Return a row of the table."""
    said = {True: "holds", False: "**missed**", None: ""}[holds(row)]
    cells = (
        benchmark[6:],
        row["name"],
        _number(row["ours"]),
        _number(row["peer"]),
        row["unit"],
        _number(row["ratio"]),
    )
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in (*cells, goal(row), said)) + " |"


def _number(value: object) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:,.0f}"
        if isinstance(value, (int, float))
        else str(value)
    )


def where() -> str:
    """Return on what the figures were measured."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    return f"Measured {day} with Python {python} on {system}, {os.cpu_count()} cores."


def main(wanted: list[str]) -> int:
    """Run, print, write; 1 where a goal was missed or a benchmark broke."""
    lines, broken, missed = [], [], 0
    for benchmark in list_benchmarks(wanted):
        print(f"{benchmark} ...", file=sys.stderr, flush=True)
        rows = measure(benchmark)
        if isinstance(rows, str):
            broken.append(f"* {benchmark} could not be measured: {rows}")
            continue
        lines += [line(benchmark, row) for row in rows]
        missed += sum(holds(row) is False for row in rows)
    text = (
        _HEAD.format(where=where())
        + "\n".join(lines)
        + ("\n\n" + "\n".join(broken) if broken else "")
        + "\n"
    )
    print(text)
    if not wanted:
        section = format_section()
        TABLE.write_text(text + (f"\n{section}" if section else ""), encoding="utf-8")
    return 1 if broken or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
