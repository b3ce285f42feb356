"""One row of a board: a session in figures, small enough that ten thousand are read at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.frames.per_session import rows
from ctxkit.metrics.accounts import accounts
from ctxkit.metrics.misses import misses
from ctxkit.metrics.thrash import thrash
from ctxkit.readers.reader_names import read_all
from ctxkit.redaction import redact
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

POINTS = 24
"""Points of a sparkline."""


class Tallied(msgspec.Struct, frozen=True, gc=False):
    """One session. What its log cannot say is None."""

    id: str
    title: str
    path: str
    started: float | None
    project: str | None
    tool: str
    model: str | None
    agent: str
    parent: str | None
    calls_n: int
    turns_n: int
    usd: float | None
    """Its own calls and summaries, without those of subagents."""
    peak: int | None
    """The largest prompt, in tokens."""
    compactions_n: int | None
    misses_n: int | None
    """Calls that did not find in the cache what the one before had put there."""
    thrash: bool | None
    errors_n: int | None
    """Calls and tools that failed."""
    spark: tuple[int, ...] = ()
    """Sizes of its prompts: the largest of each of at most 24 stretches."""


def tallied(session: Session, path: str = "") -> Tallied:
    """Return the row of a session; `path`: the file that it was read from, if it does not say."""
    row = {name: values[0] for name, values in rows([session]).items()}
    bill = accounts(session)
    whole = not (bill.unpriced_n or bill.unpriced_summaries_n)
    usd = bill.total_usd if whole else None
    found = misses(session) if session.has_cache else ()
    failed = row["tool_errors_n"], row["failed_calls_n"]
    held = thrash(session) if session.edits and session.calls else None
    return Tallied(
        id=line(session.id, 200),
        title=line(redact(title_of(session, 200)), 120),
        path=path or session.path_ or "",
        started=row["ts"],
        project=row["project"],
        tool=line(session.product or session.format, 40),
        model=None if row["model"] is None else line(row["model"], 60),
        agent=line(session.agent, 40),
        parent=session.parent,
        calls_n=len(session.calls),
        turns_n=row["turns_n"],
        usd=usd if usd is not None or session.has_usage else row["cost_usd"],
        peak=row["peak_tokens"],
        compactions_n=row["compactions_n"],
        misses_n=sum(m is not None and m.kind != "cold_start" for m in found)
        if session.has_cache
        else None,
        thrash=None if held is None else held.thrash,
        errors_n=None if failed[0] is None else sum(n or 0 for n in failed),
        spark=_spark(session),
    )


def family(session: Session) -> Iterator[Session]:
    """Yield a session and those of its subagents that lie in the same file."""
    yield session
    for child in session.children:
        if child.path_ in (None, session.path_):
            yield from family(child)


def opened(row: Tallied) -> Session:
    """Return the session of a row, read from its file.

    Raises:
        BadArguments: its file holds it no more.
        ReadError: the file cannot be read.
    """
    for session in read_all(row.path, progress=False):
        for each in family(session):
            if line(each.id, 200) == row.id:
                return each
    raise BadArguments(
        f"{row.path!r} does not hold the session {row.id!r} any more: make the board again."
    )


def _spark(session: Session) -> tuple[int, ...]:
    usages = (c.message.usage for c in session.calls if c.message.kind != "turn")
    sizes = [n for u in usages if u is not None and (n := u.prompt_tokens)]
    step = -(-len(sizes) // POINTS) or 1
    return tuple(max(sizes[i : i + step]) for i in range(0, len(sizes), step))
