"""Waiting for a summariser no longer than it may take."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from ctxkit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.summarisers import Passage


def within(seconds: float, maker: Callable[[Passage], Any], passage: Passage) -> Any:
    """Return what a summariser makes within a time limit.

    Raises:
        ModelError: it took longer. Its thread is left to end by itself, and what it says then is
            not used.
    """
    answer: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def run() -> None:
        try:
            answer.put((True, maker(passage)))
        except Exception as error:  # noqa: BLE001  raised again by who waits
            answer.put((False, error))

    Thread(target=run, daemon=True, name="ctxkit-summary").start()
    try:
        good, value = answer.get(timeout=seconds)
    except Empty:
        raise ModelError(f"The summary took longer than {seconds:g} s.") from None
    if good:
        return value
    raise value
