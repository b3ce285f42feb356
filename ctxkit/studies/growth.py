"""The size of a run's prompts under another policy, by a growth model that is stated.

The published runs have totals alone, so a run is taken to grow evenly: its prompt at call `t` is
`first + (t - 1) (reply + result)`, where `reply` is its own mean output, `first` the smallest
prompts of that scaffold, and `result` follows from its own mean prompt. On the same calls (open
loop, as a replay does it)

- a mask of the last `M` results makes each older one a line of `LINE` tokens;
- a summary takes the oldest `N` turns away each time that `M + N` stand whole, and puts `SUMMARY`
  tokens in the place of all that was taken before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.faces import listed

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["LINE", "SUMMARY", "first_prompt", "foretold", "masked", "plain", "summarised"]
__dir__ = listed(__all__)

LINE = 12
"""Tokens of the line in the place of a masked result."""
SUMMARY = 800
"""Tokens of a summary."""
_SMALLEST = 0.01
"""Share of the runs whose mean prompt is taken to be smaller than a first prompt."""


def first_prompt(raw: pd.DataFrame) -> float:
    """Return the tokens of a first prompt: what one mean prompt in a hundred is below."""
    return float((raw["tokens"] / raw["turns"]).quantile(_SMALLEST))


def plain(turns: int, first: float, step: float) -> NDArray[Any]:
    """Return the prompt of each call where nothing is taken away."""
    grown: NDArray[Any] = step * np.arange(turns)
    return first + grown


def masked(turns: int, first: float, reply: float, result: float, keep: int) -> NDArray[Any]:
    """Return the prompt of each call under a mask of all but the last `keep` results."""
    before: NDArray[Any] = np.arange(turns)
    whole = np.minimum(before, keep)
    out: NDArray[Any] = first + reply * before + result * whole + LINE * (before - whole)
    return out


def summarised(turns: int, first: float, step: float, keep: int, chunk: int) -> NDArray[Any]:
    """Return the prompt of each call where `chunk` turns are summarised once `keep` more stand."""
    before: NDArray[Any] = np.arange(turns)
    times: NDArray[Any] = np.maximum(before - keep, 0) // chunk
    out: NDArray[Any] = first + SUMMARY * (times > 0) + step * (before - chunk * times)
    return out


def foretold(raw: pd.DataFrame, policy: str, setting: str, first: float) -> NDArray[Any]:
    """Return for each raw run the tokens of all its prompts under a policy, its calls as they were.

    Args:
        raw: runs without management, as `runs.read` gives them.
        policy: mask, summary or hybrid (the mask within what the summaries leave).
        setting: such as ``"N=21 M=10"``.
        first: tokens of the first prompt.
    """
    told = {k: int(v) for k, v in re.findall(r"([NM])=(\d+)", setting)}
    keep, chunk = told["M"], told.get("N", 0)

    def total(turns: int, tokens: int, reply: float) -> float:
        start = min(first, tokens / turns)
        step = 2 * (tokens / turns - start) / max(turns - 1, 1)
        said = min(reply, step)
        mask = masked(turns, start, said, step - said, keep)
        if policy == "mask":
            return float(mask.sum())
        short = summarised(turns, start, step, keep, chunk)
        return float((short if policy == "summary" else np.minimum(short, mask)).sum())

    rows = zip(raw["turns"].tolist(), raw["tokens"].tolist(), raw["output"].tolist(), strict=True)
    return np.array([total(*row) for row in rows])
