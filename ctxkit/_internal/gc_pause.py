"""A context manager that pauses the garbage collector."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the garbage collector while many objects are created, and restore its state afterwards.

    Otherwise it would traverse all objects again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
