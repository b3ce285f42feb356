"""Make the committed tables from published runs: `python -m ctxkit.studies` (`make studies`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import CtxkitError
from ctxkit.metrics import elongation
from ctxkit.studies import behaviour, floors, masks, runs
from ctxkit.studies.sources import COMPLEXITY_TRAP, MASKED, source
from ctxkit.studies.tables import FOLDER, write

if TYPE_CHECKING:
    import pandas as pd

TRAP = """Derived from the runs of The Complexity Trap (arXiv 2508.21433, MIT):
github.com/Recursive-Safeguarding/the-complexity-trap, commit 1b07dec, auxiliary-data."""
AGENT = """Derived from SWE-agent's runs of June 2024 (MIT) on SWE-bench Verified:
github.com/UKGovernmentBEIS/inspect_ai, commit 2b9870e, 20240620_sweagent_claude3.5sonnet."""
_SMALL = 50
"""Tasks of a side experiment, which is no study of its own, unless there is no other."""


def make(root: Path | None = None, out: Path = FOLDER, turns: Path | None = None) -> list[Path]:
    """Write the tables and return their paths.

    Args:
        root: the folder of published runs; None: `CTXKIT_STUDIES`, or beside `CTXKIT_SESSIONS`.
        out: the folder to write to.
        turns: the file of how much longer runs were; None: the kit's own.
    """
    trap = runs.read(source(COMPLEXITY_TRAP, root))
    found, again = behaviour.cells(trap), floors.repeats(trap)
    made = {
        "masks": (masks.measured(source(MASKED, root)), AGENT),
        "ratios": (found, TRAP),
        "floors": (floors.floors([pair for _, pair in again]), TRAP),
        "repeats": (floors.seen(again), TRAP),
    }
    for name, (frame, said) in made.items():
        write(out / f"{name}.csv", frame, said)
    path = turns or Path(elongation.__file__ or "").with_name("elongation.csv")
    write(path, longer(found), f"{TRAP}\nTurns after / turns before: `make studies`.")
    return [*(out / f"{name}.csv" for name in made), path]


def longer(found: pd.DataFrame) -> pd.DataFrame:
    """Return what `metrics.elongation` goes by: the main experiments, and all that were hybrid."""
    kept = found[(found["tasks"] > _SMALL) | (found["after"] == "hybrid")]
    columns = ["before", "after", "family", "scaffold", "model", "tasks", "turns", "turns_error"]
    return kept[columns].rename(columns={"turns": "ratio", "turns_error": "error"})


if __name__ == "__main__":
    try:
        for path in make():
            print(path)  # noqa: T201  a script
    except CtxkitError as error:
        sys.exit(str(error))
