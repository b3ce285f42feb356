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

SECONDS = 0.6
"""What the trying may take in all; settings that it does not reach count as unknown."""


class Effect(NamedTuple):
    """What turning one setting can do."""

    name: str
    tokens: float | None
    """Largest change of a prompt's tokens at either end, averaged over the calls; None: not tried."""


def effects(trials: Trials, knobs: Knobs, summary: int) -> list[Effect]:
    """Return the effect of each setting, the largest first, unknown ones next, those without last."""
    was = _sizes(trials.at(knobs.make({}), summary))
    end = time.perf_counter() + SECONDS
    found = []
    for one in knobs.all:
        most: float | None = None
        for value in _ends(one):
            if time.perf_counter() > end:
                break
            try:
                now = _sizes(trials.at(knobs.make({one.name: value}), summary))
            except CtxkitError:  # an end that cannot work says nothing
                continue
            most = max(most or 0.0, float(np.abs(now - was).mean()) if len(was) else 0.0)
        found.append(Effect(one.name, most))
    order = {id(e): -1.0 if e.tokens == 0 else 0.5 if e.tokens is None else 1 + e.tokens for e in found}
    return sorted(found, key=lambda e: -order[id(e)])


def _ends(one: Knob | Choice) -> list[object]:
    every = (one.low, one.high) if isinstance(one, Knob) else one.options
    return [value for value in every if value != one.value]


def _sizes(trial: Trial) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([n or 0 for n in trial.prompts], np.float64)
