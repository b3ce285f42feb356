"""Run every `bench_*.py` of this folder in a process of its own and write the table
`docs/benchmarks.md`.

`python -m benchmarks` runs all; `python -m benchmarks readers tokens` only those, and prints the
table without writing. `user_calls` runs first: calls of a user on real logs, against an earlier
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

FOLDER = Path(__file__).parent
TABLE = FOLDER.parent / "docs" / "benchmarks.md"
TIMEOUT_SECONDS = 1800
_RUN_SCRIPT = """
import importlib, json, os, sys
benchmark = importlib.import_module(sys.argv[1])
if hasattr(os, "sched_setaffinity") and not getattr(benchmark, "PARALLEL", False):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print("\\n@rows " + json.dumps(benchmark.run()))
"""
"""Runs a module on one core unless it is `PARALLEL`, because cores differ, on some machines by half."""
_HEAD = """# Benchmarks

`make bench` writes this page: each row has the median CPU times of ctxkit and a named peer, and their ratio, in one process
on one core (two where processes are compared), after both gave equal results. On another machine, ratios differ less.
The rows of `user_calls` are commands on real logs, compared with an earlier ctxkit (`CTXKIT_EARLIER`) or a time limit.
{where}

| benchmark | what | ours | peer | unit | ratio | goal | |
| --- | --- | ---: | ---: | --- | ---: | --- | --- |
"""


def list_benchmarks(names: list[str]) -> list[str]:
    """Return the benchmark modules, all or those of the given names, `bench_user_calls` first."""
    known = sorted(p.stem for p in FOLDER.glob("bench_*.py"))
    unknown = [name for name in names if f"bench_{name}" not in known]
    if unknown:
        sys.exit(
            f"No benchmark is called {', '.join(unknown)}; there is:"
            f" {', '.join(module[6:] for module in known)}."
        )
    selected = [module for module in known if not names or module[6:] in names]
    return sorted(selected, key=lambda module: module != "bench_user_calls")


def measure(module: str) -> list[dict] | str:
    """Return the rows of one module, run in a fresh process, or the last line of its error."""
    command = [sys.executable, "-c", _RUN_SCRIPT, f"benchmarks.{module}"]
    try:
        process = subprocess.run(
            command,
            cwd=FOLDER.parent,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            env=os.environ,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {TIMEOUT_SECONDS} s"
    row_lines = [line[6:] for line in process.stdout.splitlines() if line.startswith("@rows ")]
    if process.returncode or not row_lines:
        return (process.stderr.strip().splitlines() or ["it printed no rows"])[-1]
    return json.loads(row_lines[-1])


def format_goal(row: dict) -> str:
    """Return the goal of a row, as `<= 4` or `>= 8`.

    A goal that is a bare number is an upper bound if the ratio is ours to the peer's, and a lower
    bound if it is the peer's to ours. `and ours <= 0.1` bounds our figure, too.
    """
    goal = row.get("goal")
    if not isinstance(goal, (int, float)):
        return str(goal or "").replace("≤", "<=").replace("≥", ">=")
    ours, peer, ratio = row["ours"], row["peer"], row["ratio"]
    is_upper_bound = abs(ratio - ours / peer) <= abs(ratio - peer / ours)
    return f"{'<=' if is_upper_bound else '>='} {goal:,}"


def is_goal_met(row: dict) -> bool | None:
    """Return whether a row meets all clauses of its goal; None if it has no goal."""
    clauses_met = [_is_clause_met(row, clause) for clause in format_goal(row).split(" and ")]
    return None if None in clauses_met else all(clauses_met)


def _is_clause_met(row: dict, clause: str) -> bool | None:
    figure = "ours" if clause.startswith("ours ") else "ratio"
    sign, _, bound = clause.removeprefix("ours ").partition(" ")
    try:
        limit, value = float(bound.replace(",", "")), float(row[figure])
    except (TypeError, ValueError):
        return None
    return {"<=": value <= limit, "<": value < limit, ">=": value >= limit, ">": value > limit}.get(
        sign
    )


def format_row(module: str, row: dict) -> str:
    """Return a row of the table."""
    verdict = {True: "holds", False: "**missed**", None: ""}[is_goal_met(row)]
    cells = (
        module[6:],
        row["name"],
        _format_number(row["ours"]),
        _format_number(row["peer"]),
        row["unit"],
        _format_number(row["ratio"]),
    )
    return (
        "| "
        + " | ".join(str(c).replace("|", "\\|") for c in (*cells, format_goal(row), verdict))
        + " |"
    )


def _format_number(value: object) -> str:
    return (
        f"{value:,.3g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:,.0f}"
        if isinstance(value, (int, float))
        else str(value)
    )


def describe_machine() -> str:
    """Return the sentence on when and on what machine the figures were measured."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    python, system = platform.python_version(), f"{platform.system()} {platform.machine()}"
    return f"Measured {day} with Python {python} on {system}, {os.cpu_count()} cores."


def main(names: list[str]) -> int:
    """Run benchmarks, print and write the table; return 1 if one failed or missed a goal."""
    lines, broken, missed = [], [], 0
    for module in list_benchmarks(names):
        print(f"{module} ...", file=sys.stderr, flush=True)
        rows = measure(module)
        if isinstance(rows, str):
            broken.append(f"* {module} could not be measured: {rows}")
            continue
        lines += [format_row(module, row) for row in rows]
        missed += sum(is_goal_met(row) is False for row in rows)
    text = (
        _HEAD.format(where=describe_machine())
        + "\n".join(lines)
        + ("\n\n" + "\n".join(broken) if broken else "")
        + "\n"
    )
    print(text)
    if not names:
        section = format_section()
        TABLE.write_text(text + (f"\n{section}" if section else ""), encoding="utf-8")
    return 1 if broken or missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
