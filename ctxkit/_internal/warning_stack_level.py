"""The `stacklevel` of warnings: which line a warning names."""

from __future__ import annotations

import inspect


def find_stack_level() -> int:
    """Return the `stacklevel` with which a warning names the line that called the kit.

    Call it among the arguments of `warnings.warn`. It is for functions that are reached in several
    ways, so that no fixed number is right.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "ctxkit":
        frame, level = frame.f_back, level + 1
    return level
