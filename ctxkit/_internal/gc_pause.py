"""A context manager that pauses the garbage collector."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def pause_gc() -> Iterator[None]:
    """Keep the collector from walking over all objects again and again while more are made.

    What lies in circles is found right after it; who has turned the collector off finds it off.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
