"""How many planted faults the tests notice: stored runs, and faults that change no behaviour.

`python -m benchmarks.mutation_testing ... --keep` adds its run to `fault_figures.json` and
rewrites the section of docs/benchmarks.md. `equivalent_faults.json` lists faults that change no
behaviour, each with its reason: they are not run and do not count.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.tests_by_line import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.mutation_testing import Outcome

EQUIVALENT_FAULTS = ROOT / "benchmarks/equivalent_faults.json"
FIGURES = ROOT / "benchmarks/fault_figures.json"
PAGE = ROOT / "docs/benchmarks.md"
HEADING = "## Single faults that the tests notice"
ABOUT = """
`make mutants` plants single faults (a comparison, a constant, a dropped statement and so on), drawn
by the seed from the lines that tests reach. A fault is noticed if a test recorded for its line
fails with it and passes without it. Equivalent faults do not change what the code does (reasons in
`benchmarks/equivalent_faults.json`) and do not count in the share. For undecided faults, time ran
out before all these tests had run; they count as not noticed. The range is Wilson's 95 % interval
for the share among all lines of the package. The first and last run of each package:
"""
COLUMNS = (
    *("package", "run", "date", "seed", "tests recorded", "faults", "noticed", "equivalent"),
    *("not noticed", "undecided", "share", "range"),
)
Z = 1.96
"""Standard deviations of a 95 % interval."""


@dataclass(frozen=True)
class FaultFigures:
    """One run of `make mutants` over a package."""

    package: str
    seed: int
    date: str
    tests: int
    """Tests whose lines were recorded."""
    faults: int
    noticed: int
    equivalent: int
    survived: int
    """Faults that no test noticed, or reaches."""
    undecided: int
    """Faults whose time was up before all tests had run."""

    @classmethod
    def count(
        cls, package: str, seed: int, tests: int, outcomes: Iterable[Outcome]
    ) -> FaultFigures:
        """Count the outcomes of the faults of a package."""
        verdicts = [outcome.verdict for outcome in outcomes if outcome.package == package]
        noticed = sum(verdict in {"noticed", "timed out"} for verdict in verdicts)
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        return cls(
            *(package, seed, today, tests, len(verdicts), noticed),
            equivalent=verdicts.count("equivalent"),
            survived=verdicts.count("survived") + verdicts.count("no test"),
            undecided=verdicts.count("survived so far"),
        )

    def get_share(self) -> tuple[float, float, float]:
        """Return the share of faults noticed, of those not equivalent, and its interval."""
        n = self.noticed + self.survived + self.undecided
        if not n:
            return float("nan"), 0.0, 1.0
        share, spread = self.noticed / n, Z**2 / n
        middle = share + spread / 2
        half = (spread * (share * (1 - share) + spread / 4)) ** 0.5
        return share, (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def read_equivalent_faults() -> dict[tuple[str, str, str], str]:
    """Return the reason of each equivalent fault, by file, statement and changed statement."""
    faults = json.loads(EQUIVALENT_FAULTS.read_text(encoding="utf-8"))
    return {(fault["file"], fault["before"], fault["after"]): fault["reason"] for fault in faults}


def read_figures() -> list[FaultFigures]:
    """Return the stored runs, by package, the first before the last."""
    if not FIGURES.exists():
        return []
    return [FaultFigures(**row) for row in json.loads(FIGURES.read_text(encoding="utf-8"))]


def store_figures(new: Sequence[FaultFigures]) -> None:
    """Add runs to the stored ones, and rewrite the page's section.

    Of each package, only the first and the last run are stored.
    """
    runs = [*read_figures(), *new]
    first_and_last = {}
    for run in runs:
        first = first_and_last.setdefault(run.package, [run, run])[0]
        first_and_last[run.package] = [first, run]
    stored = [run for _, pair in sorted(first_and_last.items()) for run in dict.fromkeys(pair)]
    rows = ",\n".join(json.dumps(asdict(run)) for run in stored)
    FIGURES.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8").split(HEADING)[0].rstrip()
    PAGE.write_text(f"{page}\n\n{format_section()}", encoding="utf-8")


def format_section() -> str:
    """Return the section of the page of benchmarks; empty if no run is stored."""
    figures = read_figures()
    if not figures:
        return ""
    rows = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    for i, run in enumerate(figures):
        is_first = i == 0 or figures[i - 1].package != run.package
        share, low, high = run.get_share()
        cells = (
            *(run.package, "first" if is_first else "last", run.date, run.seed),
            *(f"{run.tests:,}", run.faults, run.noticed, run.equivalent),
            *(run.survived, run.undecided),
            *(f"{share:.0%}", f"{low:.0%} to {high:.0%}"),
        )
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return f"{HEADING}\n{ABOUT}\n" + "\n".join(rows) + "\n"
