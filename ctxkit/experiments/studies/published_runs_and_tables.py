"""Published runs of The Complexity Trap as a tidy frame, and the committed tables that are derived
from published data.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


__all__ = [
    "COMPLEXITY_TRAP",
    "MASKED_TRAJECTORIES",
    "RUN_COLUMNS",
    "find_published_file",
    "find_studies_folder",
    "list_table_names",
    "read_published_runs",
    "table",
]
__dir__ = make_dunder_dir(__all__)


RUN_COLUMNS = {
    "scaffold": "sweagent or openhands",
    "model": "as the experiment names it, in short",
    "policy": "raw, mask, summary or hybrid",
    "setting": "M: turns kept whole; N: turns summarised at once",
    "repeat": "True for the second run of a setting, over 50 tasks",
    "task": "SWE-bench Verified's id",
    "turns": "calls of the run",
    "usd": "dollars of the run, summaries with them",
    "tokens": "tokens of all prompts: mean prompt x turns",
    "output": "mean tokens of a reply",
    "summaries": "summaries written",
    "solved": "1 where the task was solved",
}
_MODELS = (
    ("gemini-2.5-flash", r"gemini-2\.5-flash_maxiter"),
    ("gemini-2.5-flash, thinking", r"gemini_2\.5_flash_thinking"),
    ("gemini-2.5-flash", r"gemini_2\.5_flash-"),
    ("qwen3-coder-480b", r"Qwen3-Coder_480B"),
    ("qwen3-32b, thinking", r"Qwen3-32B_thinking"),
    ("qwen3-32b", r"qwen3-32b-"),
)
_DEFAULT_M = 10
"""Whole observations of runs whose name does not state M."""


class ExperimentNameFields(NamedTuple):
    """Fields that the name of an experiment encodes."""

    model: str
    policy: str
    setting: str
    small: bool
    """True where the name marks a run over 50 tasks."""


def parse_experiment_name(experiment: str) -> ExperimentNameFields:
    """Parse the name of an experiment.

    Raises:
        BadArguments: its model or policy is unknown.
    """
    model = next((m for m, form in _MODELS if re.search(form, experiment)), None)
    window = re.search(r"(?:masking-|_)M_(\d+)", experiment)
    chunk = re.search(r"N_(\d+)_M", experiment)
    keeps = f"M={window[1] if window else _DEFAULT_M}"
    if "obs_masking" in experiment and chunk:
        policy, setting = "hybrid", f"N={chunk[1]} {keeps}"
    elif "summar" in experiment and chunk:
        policy, setting = "summary", f"N={chunk[1]} {keeps}"
    elif "masking" in experiment or "baseline_N_1" in experiment:
        policy, setting = "mask", keeps
    else:
        policy, setting = "raw" if "raw" in experiment else "", ""
    if model is None or not policy:
        raise BadArguments(f"The experiment {experiment!r} names no model or policy that is known.")
    return ExperimentNameFields(model, policy, setting, "verified_50" in experiment)


def read_published_runs(path: Path) -> pd.DataFrame:
    """Read the published table, one row per task and run (see `RUN_COLUMNS`).

    Runs without turns or tokens failed before they started and are left out. (36 masked runs of
    Gemini 2.5 Flash have one turn and no tokens; with them masks would seem to shorten runs.)
    """
    import pandas as pd

    raw = pd.read_csv(path)
    parsed = {name: parse_experiment_name(name) for name in raw["experiment"].unique()}
    repeated = {n._replace(small=True) for n in parsed.values() if not n.small}
    names: Any = raw["experiment"]
    out = pd.DataFrame(
        {
            "scaffold": raw["scaffold"],
            **{
                f: names.map({k: getattr(v, f) for k, v in parsed.items()})
                for f in ExperimentNameFields._fields[:3]
            },
            "repeat": names.map({k: v.small and v in repeated for k, v in parsed.items()}),
            "task": raw["instance_id"],
            "turns": raw["turn_count"],
            "usd": raw["cost"],
            "tokens": raw["turn_count"] * raw["mean_prompt_tokens"],
            "output": raw["mean_completion_tokens"],
            "summaries": raw["summary_count"],
            "solved": raw["outcome"],
        }
    )
    return out[(out["turns"] > 0) & (out["tokens"] > 0)].reset_index(drop=True)


COMPLEXITY_TRAP = "complexity-trap/experiment_instance_costs_combined.csv"
"""One row a task and run: github.com/Recursive-Safeguarding/the-complexity-trap, commit 1b07dec,
`auxiliary-data/`, MIT. Paper: The Complexity Trap, arXiv 2508.21433."""
MASKED_TRAJECTORIES = "sweagent-masked"
"""Trajectories of SWE-agent (June 2024, Claude 3.5 Sonnet) on SWE-bench Verified, run with the last
five observations shown: github.com/UKGovernmentBEIS/inspect_ai, commit 2b9870e,
`benchmarks/swe_bench/resources/tests/20240620_sweagent_claude3.5sonnet/trajs`, MIT."""


def find_studies_folder() -> Path | None:
    """Return the folder that `CTXKIT_STUDIES` names, else `studies` beside `CTXKIT_SESSIONS`."""
    named, sessions = (os.environ.get(f"CTXKIT_{n}") for n in ("STUDIES", "SESSIONS"))
    if not named and not sessions:
        return None
    folder = Path(named) if named else Path(sessions or "").resolve().parent / "studies"
    return folder if folder.is_dir() else None


def find_published_file(name: str, root: Path | None = None) -> Path:
    """Return a file or folder of published runs.

    Args:
        name: `COMPLEXITY_TRAP` or `MASKED_TRAJECTORIES`.
        root: the folder that holds both; None: the result of `find_studies_folder`.

    Returns:
        The path; it exists.

    Raises:
        BadArguments: the file or folder does not exist.
    """
    root = root or find_studies_folder()
    source = None if root is None else root / name
    if source is None or not source.exists():
        raise BadArguments(f"Set CTXKIT_STUDIES to a folder that holds {name}.")
    return source


TABLES_FOLDER = Path(__file__).parent / "tables"
SEPARATOR = ";"
_DIGITS = "%.5g"
"""Format of numbers that are not whole."""


def list_table_names() -> list[str]:
    """Return the names of the committed tables."""
    return sorted(p.stem for p in TABLES_FOLDER.glob("*.csv"))


def table(name: str) -> pd.DataFrame:
    """Read a committed table.

    Args:
        name: `masks` (columns: `mask_token_errors_and_visibility_exams.MASK_COLUMNS`), or, of the
            module `policy_ratios_and_noise_floors`, `ratios` (`RATIO_COLUMNS`), `floors`
            (`FLOOR_COLUMNS`) or `repeats` (`measure_repeat_ratios`).

    Returns:
        The table; ``frame.attrs["source"]`` names the origin of its figures.

    Raises:
        BadArguments: there is no table of that name.

    Example:
        >>> from ctxkit.experiments.studies.published_runs_and_tables import table
        >>> list(table("floors").columns)
        ['figure', 'tasks', 'floor']
    """
    import pandas as pd

    if name not in list_table_names():
        raise BadArguments(f"No table is called {name!r}.{did_you_mean(name, list_table_names())}")
    path = TABLES_FOLDER / f"{name}.csv"
    head = [t[2:] for t in path.read_text(encoding="utf-8").splitlines() if t.startswith("# ")]
    frame = pd.read_csv(path, sep=SEPARATOR, comment="#", keep_default_na=False, na_values=[""])
    frame.attrs["source"] = " ".join(head)
    return frame


def write_table(path: Path, frame: pd.DataFrame, source: str) -> None:
    """Write a table as CSV with its source as comment lines, five digits per number.

    Args:
        path: the file; an existing one is replaced.
        frame: the table.
        source: lines that go before it.
    """
    body = frame.to_csv(index=False, sep=SEPARATOR, float_format=_DIGITS, lineterminator="\n")
    path.write_text("".join(f"# {line}\n" for line in source.splitlines()) + body, encoding="utf-8")
