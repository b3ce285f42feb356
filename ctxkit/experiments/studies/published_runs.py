"""Published runs of The Complexity Trap as a tidy frame, where they lie, and the tables that
ship.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


__all__ = [
    "COMPLEXITY_TRAP",
    "MASKED_TRAJECTORIES",
    "RUN_COLUMNS",
    "find_source",
    "find_studies_folder",
    "list_table_names",
    "read_runs",
    "table",
]
__dir__ = public_dir(__all__)


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
"""Observations that the runs whose name does not say it kept whole."""


class ExperimentName(NamedTuple):
    """What the name of an experiment says."""

    model: str
    policy: str
    setting: str
    small: bool
    """True for a run over 50 tasks that was named so."""


def parse_experiment_name(experiment: str) -> ExperimentName:
    """Return what the name of an experiment says.

    Raises:
        BadArguments: it names a model or a policy that is not known.
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
    return ExperimentName(model, policy, setting, "verified_50" in experiment)


def read_runs(path: Path) -> pd.DataFrame:
    """Return the runs of the published table, one row a task and run (see `COLUMNS`).

    A run without a turn or without a token is one that failed before it began; it is left out. (36
    of the masked runs of Gemini 2.5 Flash are such, with one turn each: counted in, masks would
    seem to make runs shorter.)
    """
    import pandas as pd

    raw = pd.read_csv(path)
    told = {name: parse_experiment_name(name) for name in raw["experiment"].unique()}
    again = {n._replace(small=True) for n in told.values() if not n.small}
    names: Any = raw["experiment"]
    out = pd.DataFrame(
        {
            "scaffold": raw["scaffold"],
            **{
                f: names.map({k: getattr(v, f) for k, v in told.items()})
                for f in ExperimentName._fields[:3]
            },
            "repeat": names.map({k: v.small and v in again for k, v in told.items()}),
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
    found = Path(named) if named else Path(sessions or "").resolve().parent / "studies"
    return found if found.is_dir() else None


def find_source(name: str, root: Path | None = None) -> Path:
    """Return a file or folder of published runs.

    Args:
        name: `COMPLEXITY_TRAP` or `MASKED`.
        root: the folder that holds both; None: as `folder` finds it.

    Raises:
        BadArguments: it is not there.
    """
    root = root or find_studies_folder()
    found = None if root is None else root / name
    if found is None or not found.exists():
        raise BadArguments(f"Set CTXKIT_STUDIES to a folder that holds {name}.")
    return found


TABLES_FOLDER = Path(__file__).parent / "tables"
SEPARATOR = ";"
_DIGITS = "%.5g"
"""Of every number that is no whole one."""


def list_table_names() -> list[str]:
    """Return the names of the tables."""
    return sorted(p.stem for p in TABLES_FOLDER.glob("*.csv"))


def table(name: str) -> pd.DataFrame:
    """Return a table; where its figures come from stands in ``frame.attrs["source"]``.

    Args:
        name: `masks`, `ratios`, `floors` or `repeats`; their columns are told in the module of that
            study (`repeats`: `floors.seen`).

    Raises:
        BadArguments: there is none of that name.
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
    """Write a table with its source; five figures of each number."""
    body = frame.to_csv(index=False, sep=SEPARATOR, float_format=_DIGITS, lineterminator="\n")
    path.write_text("".join(f"# {line}\n" for line in source.splitlines()) + body, encoding="utf-8")
