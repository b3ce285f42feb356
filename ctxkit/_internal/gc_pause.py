"""A context manager that pauses the garbage collector."""

from __future__ import annotations

import gc


class pause_gc:  # noqa: N801  used like a function
    """Pause the garbage collector while many objects are created, and restore its state afterwards.

    Otherwise it would traverse all objects again and again.
    """

    # Every run of a sweep enters it once: a class is entered faster than a generator.
    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()
