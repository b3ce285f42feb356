"""The runs of The Complexity Trap as a tidy frame: the same tasks under several policies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.faces import listed

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__all__ = ["COLUMNS", "read"]
__dir__ = listed(__all__)

COLUMNS = {
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


class Named(NamedTuple):
    """What the name of an experiment says."""

    model: str
    policy: str
    setting: str
    small: bool
    """True for a run over 50 tasks that was named so."""


def named(experiment: str) -> Named:
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
    return Named(model, policy, setting, "verified_50" in experiment)


def read(path: Path) -> pd.DataFrame:
    """Return the runs of the published table, one row a task and run (see `COLUMNS`).

    A run without a turn or without a token is one that failed before it began; it is left out. (36
    of the masked runs of Gemini 2.5 Flash are such, with one turn each: counted in, masks would
    seem to make runs shorter.)
    """
    import pandas as pd

    raw = pd.read_csv(path)
    told = {name: named(name) for name in raw["experiment"].unique()}
    again = {n._replace(small=True) for n in told.values() if not n.small}
    names: Any = raw["experiment"]
    out = pd.DataFrame(
        {
            "scaffold": raw["scaffold"],
            **{
                f: names.map({k: getattr(v, f) for k, v in told.items()}) for f in Named._fields[:3]
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
