"""Which settings matter: each is tried at the ends of its range, as the others stand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit.errors import CtxkitError
from ctxkit.widgets.knobs import Knob

if TYPE_CHECKING:
    from ctxkit.widgets.knobs import Choice, Knobs
    from ctxkit.widgets.trials import Trial, Trials

SECONDS = 1.2
"""What all trying may take of the processor; settings that it does not reach count as unknown."""


class Effect(NamedTuple):
    """What turning one setting can do."""

    name: str
    tokens: float | None
    """Largest mean change of a prompt's tokens at its ends; None: none was seen, and not all were
    tried.
    """


def effects(trials: Trials, knobs: Knobs, summary: int) -> list[Effect]:
    """Return the effect of each setting, the largest first, then unknown ones, then none."""
    was = _sizes(trials.at(knobs.make({}), summary))
    end = time.process_time() + SECONDS
    found = dict[str, float].fromkeys((one.name for one in knobs.all), 0.0)
    left = {one.name: len(_ends(one)) for one in knobs.all}
    tries = [(isinstance(one, Knob), i, one.name, value)
             for one in knobs.all for i, value in enumerate(_ends(one))]  # fmt: skip
    for _, _, name, value in sorted(
        tries, key=lambda t: t[:2]
    ):  # words, then one end of each number
        if time.process_time() > end:
            break
        left[name] -= 1
        try:
            now = _sizes(trials.at(knobs.make({name: value}), summary))
        except CtxkitError:  # an end that cannot work says nothing
            continue
        found[name] = max(found[name], float(np.abs(now - was).mean()) if len(was) else 0.0)
    every = [
        Effect(name, tokens or (None if left[name] else 0.0)) for name, tokens in found.items()
    ]
    return sorted(every, key=lambda e: (e.tokens == 0, e.tokens is None, -(e.tokens or 0)))


def _ends(one: Knob | Choice) -> list[object]:
    every = (one.low, one.high) if isinstance(one, Knob) else one.options
    return [value for value in every if value != one.value]


def _sizes(trial: Trial) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([n or 0 for n in trial.prompts], np.float64)
