"""What every preset refuses before it makes rules."""

from __future__ import annotations

from ctxkit.errors import BadArguments


def room_to_cut(window: int | None, reserve: int, keep: int) -> None:
    """Refuse a window in which a compaction frees nothing.

    Raises:
        BadArguments: the reserve leaves no room, or what is kept fills what is left.
    """
    if window is None:
        return
    if window <= reserve:
        raise BadArguments(
            f"A window of {window:,} tokens with {reserve:,} held free leaves no room: every call would be over it. "
            "Give a larger context_window or a smaller reserve."
        )
    if window - reserve <= keep:
        raise BadArguments(
            f"A compaction at {window - reserve:,} tokens that keeps {keep:,} frees nothing: "
            "the trigger must lie above what is kept."
        )
