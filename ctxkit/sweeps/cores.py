"""The cores of this machine for a sweep that takes long, started where that pays and is safe."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOKED_AT = 1.0
"""Seconds of work after which it is asked how long the rest will take."""
LOOKS = 0.01
"""Seconds between two looks: the time of a process takes as long to ask for as a hundredth of a
short run."""
WORTH = 4.0
"""Seconds that the rest must take: a worker needs one or two to begin."""


class CorePace:
    """How long what is left will take, by the work of what is done so far.

    The first run reads the log for all others, so only those after it tell; and what other
    programs do on this machine, or a model that is waited for, makes no work.
    """

    def __init__(self, total: int) -> None:
        self._begin, self._total, self._done = process_time(), total, 0
        self._start: float | None = None
        self._next = 0.0

    def took(self, weight: int) -> None:
        """Say that a run is done."""
        self._total -= weight
        if self._start is None:
            self._start = process_time()
        else:
            self._done += weight

    @property
    def is_slow(self) -> bool:
        """True where the rest is worth a start of workers."""
        if monotonic() < self._next:
            return False
        self._next, now = monotonic() + LOOKS, process_time()
        if self._start is None or not self._done or now - self._begin < LOOKED_AT:
            return False
        return (now - self._start) / self._done * self._total > WORTH


def pool(travels: Sequence[Any]) -> ProcessPoolExecutor | None:
    """Return a pool with a worker a core; None where there is one core, or a pool is not safe.

    A worker begins with the file of the program that started it: a script that is not written for
    that would run again, so it is for notebooks and consoles alone. What was made in them (a
    function of one's own) cannot travel either.

    Args:
        travels: what the workers will be sent.
    """
    n = cores()
    if n < 2 or not at_a_prompt() or not _can_travel(travels):
        return None
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=spawn, initializer=_deaf)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def at_a_prompt() -> bool:
    """Say whether this is a notebook or a console, and no worker of somebody's."""
    main = sys.modules.get("__main__")
    typed = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    return typed and multiprocessing.parent_process() is None


def _can_travel(travels: Sequence[Any]) -> bool:
    try:
        return b"__main__" not in pickle.dumps(travels, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  whatever a user's object raises, it stays here
        return False


def _deaf() -> None:
    """Let an interrupt reach the process that waits, not its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
