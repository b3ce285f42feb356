"""Made sessions with a cache split, call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builders import assistant, session, user

from ctxkit.session import Usage

if TYPE_CHECKING:
    from ctxkit.session import Session


MODEL = "claude-sonnet-4-5"


def reply(prompt: int, read: int = 0, *, time: float | None = None, **more: Any):
    usage = Usage(cache_read_tokens=read, cache_write_tokens=prompt - read, output_tokens=100)
    return assistant(
        "ok", usage=more.pop("usage", usage), model=more.pop("model", MODEL), time=time, **more
    )


def fresh(prompt: int, read: int = 0) -> Usage:
    """The usage of a provider that bills no writes."""
    return Usage(input_tokens=prompt - read, cache_read_tokens=read, output_tokens=100)


def growing(n: int = 12, *, step: float = 10.0, own: str = "grown") -> Session:
    """A talk of n turns; each call reads what the one before had."""
    log, before = [], 0
    for i in range(n):
        log += [user(time=step * i + 1), reply(20_000 + 500 * i, before, time=step * i + 2)]
        before = 20_000 + 500 * i
    return session(*log, id=own, format="claude-code", version="2.1.0", model=MODEL)
