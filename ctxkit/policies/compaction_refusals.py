"""Refusals: why a compaction that was tried left the history as it was."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.history.history import History


_REFUSALS: ContextVar[list[str] | None] = ContextVar("ctxkit_refusals", default=None)


@contextmanager
def collect_refusals() -> Iterator[list[str]]:
    """Collect the reasons for which policies refuse a result inside the block, in order."""
    refusals: list[str] = []
    token = _REFUSALS.set(refusals)
    try:
        yield refusals
    finally:
        _REFUSALS.reset(token)


def describe_not_smaller(was: History, new: History) -> str:
    """Return the reason for refusing a result that is not smaller, with both sizes as counted."""
    return (
        f"after it the prompt would have {new.tokens:,} tokens, before it {was.tokens:,} (both as"
        " counted here)"
    )


def keep_if_smaller(was: History, new: History) -> History:
    """Return the new history if it has fewer tokens, else the one before; note a refusal."""
    if new.tokens < was.tokens:
        return new
    refusals = _REFUSALS.get()
    if refusals is not None and new is not was:
        refusals.append(describe_not_smaller(was, new))
    return was
