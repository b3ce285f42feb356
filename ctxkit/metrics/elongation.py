"""Runs that a summary makes longer: what a score would be if agents then took more calls than the record.

A replay keeps the recorded trajectory. Real runs do not: with summaries by a model the runs of The Complexity Trap
(Qwen3-Coder, SWE-bench Verified) took 70.1 turns, with masked tool results 61.0: 15 % more. How much it is elsewhere no
log says, so it is a parameter, and figures made with it are estimated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COMPLEXITY_TRAP", "elongated"]

COMPLEXITY_TRAP = 0.15
"""Of the turns of a run with masked results."""
_COUNTS = ("calls_n", "prompt_tokens", "fresh_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
_DOLLARS = ("input_usd", "output_usd")


def elongated(runs: pd.DataFrame, share: float = COMPLEXITY_TRAP) -> pd.DataFrame:
    """Return rows of scores with the runs that wrote summaries longer by a share: calls, tokens and dollars.

    The record itself, runs without summaries, peaks, cuts and losses stay as they are; `source` becomes `estimated`.

    Args:
        runs: what `sweep` or `compare` returned.
        share: how much longer; 0: as recorded.

    Raises:
        BadArguments: the share is below 0, or these are no scores.
    """
    import pandas as pd

    if not isinstance(runs, pd.DataFrame) or "summary_tokens" not in runs.columns:
        raise BadArguments(f"Give what sweep or compare returned, not {type(runs).__name__}.")
    if not share >= 0:
        raise BadArguments(f"A run gets longer by a share of 0 or more, not {share!r}.")
    out = pd.DataFrame(runs).copy()
    longer = ((out["summary_tokens"].fillna(0) > 0) & (out["rules"] != "recorded")).to_numpy(dtype=bool)
    if not share or not longer.any():
        return out
    for name in _COUNTS:
        out.loc[longer, name] = (out.loc[longer, name].astype("Float64") * (1 + share)).round().astype("Int64")
    for name in _DOLLARS:
        out.loc[longer, name] = out.loc[longer, name] * (1 + share)
    parts: Any = out.loc[longer, [*_DOLLARS, "summaries_usd"]]
    out.loc[longer, "cost_usd"] = parts.sum(axis=1, skipna=False).astype("Float64")
    out.loc[longer, "source"] = "estimated"
    return out
