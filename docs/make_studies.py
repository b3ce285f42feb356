"""Make the committed tables of `ck.studies` from published runs: `make studies`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import CtxkitError
from ctxkit.experiments.studies import (
    mask_token_errors_and_visibility_exams,
    policy_ratios_and_noise_floors,
    published_runs_and_tables,
)
from ctxkit.experiments.studies.published_runs_and_tables import (
    COMPLEXITY_TRAP,
    MASKED_TRAJECTORIES,
    TABLES_FOLDER,
    find_published_file,
    write_table,
)
from ctxkit.metrics import run_elongation_from_studies

if TYPE_CHECKING:
    import pandas as pd

TRAP_SOURCE = """Derived from the runs of The Complexity Trap (arXiv 2508.21433, MIT):
github.com/Recursive-Safeguarding/the-complexity-trap, commit 1b07dec, auxiliary-data."""
AGENT_SOURCE = """Derived from SWE-agent's runs of June 2024 (MIT) on SWE-bench Verified:
github.com/UKGovernmentBEIS/inspect_ai, commit 2b9870e, 20240620_sweagent_claude3.5sonnet."""
_MIN_TASKS = 50
"""Tasks above which an experiment is a main study; hybrids have smaller ones only."""


def write_tables(
    root: Path | None = None, folder: Path = TABLES_FOLDER, elongation_file: Path | None = None
) -> list[Path]:
    """Write the tables and return their paths.

    Args:
        root: the folder of published runs; None: `CTXKIT_STUDIES`, or beside `CTXKIT_SESSIONS`.
        folder: the folder to write to.
        elongation_file: the file of elongation factors; None: the package's own.
    """
    runs = published_runs_and_tables.read_published_runs(find_published_file(COMPLEXITY_TRAP, root))
    ratios, repeats = (
        policy_ratios_and_noise_floors.compare_policies(runs),
        policy_ratios_and_noise_floors.pair_first_and_second_runs(runs),
    )
    tables = {
        "masks": (
            mask_token_errors_and_visibility_exams.measure_runs_under_masks(
                find_published_file(MASKED_TRAJECTORIES, root)
            ),
            AGENT_SOURCE,
        ),
        "ratios": (ratios, TRAP_SOURCE),
        "floors": (
            policy_ratios_and_noise_floors.estimate_noise_floors([pair for _, pair in repeats]),
            TRAP_SOURCE,
        ),
        "repeats": (policy_ratios_and_noise_floors.measure_repeat_ratios(repeats), TRAP_SOURCE),
    }
    for name, (frame, source) in tables.items():
        write_table(folder / f"{name}.csv", frame, source)
    elongation_path = elongation_file or Path(run_elongation_from_studies.__file__ or "").with_name(
        "elongation.csv"
    )
    write_table(
        elongation_path,
        select_elongation_rows(ratios),
        f"{TRAP_SOURCE}\nTurns after / turns before: `make studies`.",
    )
    return [*(folder / f"{name}.csv" for name in tables), elongation_path]


def select_elongation_rows(ratios: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `metrics.run_elongation_from_studies`: ratios of turns in main studies and of hybrids."""
    main_studies = ratios[(ratios["tasks"] > _MIN_TASKS) | (ratios["after"] == "hybrid")]
    columns = ["before", "after", "family", "scaffold", "model", "tasks", "turns", "turns_error"]
    return main_studies[columns].rename(columns={"turns": "ratio", "turns_error": "error"})


if __name__ == "__main__":
    try:
        for path in write_tables():
            print(path)  # noqa: T201  a script
    except CtxkitError as error:
        sys.exit(str(error))
