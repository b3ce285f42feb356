"""One row of a board: a session in figures, and its table cells."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.formatting_and_sanitizing import (
    MISSING,
    format_count,
    format_tokens,
    format_usd,
    sanitize_line,
)
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.formats.reading import read_all
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.compaction_outcomes import thrash
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.per_session import rows
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ctxkit.session.session import Session


# 9999-12-31T23:59:59 UTC, the last second that `datetime` can hold.
_LAST = 253_402_300_799
GROUPINGS: dict[str, Callable[[BoardRow], str]] = {
    "day": lambda r: format_day(r.started),
    "project": lambda r: r.project or "no project",
    "tool": lambda r: r.tool,
    "model": lambda r: r.model or "no model",
    "agent": lambda r: r.agent,
}
"""Columns by which sessions are grouped."""
BOARD_HEADS = (
    Column("#", "its number: board.open(number) reads it"),
    Column(
        "session", "its title, else what was asked first; id and file when pointed at", number=False
    ),
    Column("day", "when it began, UTC", number=False),
    Column("calls", "requests to a model", spare=True),
    Column("cost", "dollars, compactions included, subagents apart"),
    Column("peak", "the largest prompt, in tokens"),
    Column("", "sizes of its prompts", number=False, spare=True),
    Column("compactions", "compactions"),
    Column("misses", "calls that did not find the cache that was there", spare=True),
    Column("errors", "calls and tools that failed", spare=True),
    Column("project", "the folder that it worked in", number=False, spare=True),
    Column("tool", "the program that wrote the log", number=False, spare=True),
    Column("model", "", number=False, spare=True),
)
GROUP_HEADS = (
    Column("sessions", "without subagents, whose cost is in the next column"),
    Column("cost", "dollars of those that have a price"),
    Column("peak", "the largest prompt of all"),
    Column("compactions", "compactions"),
    Column("misses", "calls that did not find the cache that was there"),
    Column("thrashing", "sessions whose compactions did not pay", spare=True),
    Column("errors", "calls and tools that failed"),
)


def make_row_cells(number: int, row: BoardRow) -> tuple[Cell, ...]:
    """Return a row as cells under `BOARD_HEADS`.

    Args:
        number: number of the row, from 1.
        row: the row.

    Returns:
        A cell with text and sort key for each of `BOARD_HEADS`.
    """
    compactions = format_count(row.compactions_n) + " thrashes" * bool(row.is_thrashing)
    return (
        Cell(format_count(number), float(number)),
        Cell(row.title, None, f"id {row.id} · {row.path}"),
        Cell(format_day(row.started), row.started),
        Cell(format_count(row.calls_n), float(row.calls_n)),
        Cell(format_usd(row.usd), row.usd),
        Cell(format_tokens(row.peak), _float_or_none(row.peak)),
        Cell("", None, "", "", _sparkline_svg(row.spark)),
        Cell(compactions, _float_or_none(row.compactions_n), "", "bad" * bool(row.is_thrashing)),
        Cell(format_count(row.misses_n), _float_or_none(row.misses_n)),
        Cell(format_count(row.errors_n), _float_or_none(row.errors_n)),
        Cell(row.project or ""),
        Cell(row.tool),
        Cell(row.model or ""),
    )


def limit_table_rows(table: Table, rows: int) -> Table:
    """Return the first rows of a table, and a note on how many more there are.

    Args:
        table: the table.
        rows: number of rows to keep.
    """
    more = len(table.rows) - rows
    legend = f"and {format_count(more)} more" if more > 0 else ""
    return replace(table, rows=table.rows[:rows], legend=legend)


def make_group_sum_cells(name: str, rows: list[BoardRow]) -> tuple[Cell, ...]:
    """Return the sums of some rows as cells.

    Args:
        name: name of the group, such as a project or a model.
        rows: its sessions.

    Returns:
        Cells for the columns of a board that is grouped; a sum without any known value is empty.
    """
    usd, sessions_n = _sum_present(r.usd for r in rows), count_main_sessions(rows)
    peak = max((r.peak for r in rows if r.peak is not None), default=None)
    sums = [
        _sum_present(getattr(r, c) for r in rows)
        for c in ("compactions_n", "misses_n", "is_thrashing", "errors_n")
    ]
    return (
        Cell(name),
        Cell(format_count(sessions_n), float(sessions_n)),
        Cell(format_usd(usd), usd),
        Cell(format_tokens(peak), _float_or_none(peak)),
        *(Cell(format_count(n), n) for n in sums),
    )


def _sum_present(values: Iterable[float | None]) -> float | None:
    present = [v for v in values if v is not None]
    return float(sum(present)) if present else None


def _float_or_none(value: float | None) -> float | None:
    return None if value is None else float(value)


def format_day(at: float | None) -> str:
    """Return the day of a time, UTC."""
    if at is None or not 0 <= at < _LAST:
        return MISSING
    # Many rows share a day; the cached function formats each day once.
    return _local_date(int(at) // 86_400)


@cache
def _local_date(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")


def _sparkline_svg(sizes: tuple[int, ...]) -> str:
    """Return sizes as a small picture."""
    if not sizes:
        return ""
    top, step = max(sizes) or 1, 80 / max(len(sizes) - 1, 1)
    # The view box is 80 x 18 and y grows downwards: the largest size is at 2, zero at 17.
    points = " ".join(f"{i * step:.0f},{17 - 15 * n / top:.0f}" for i, n in enumerate(sizes))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 80 18" width="80" height="18"'
        f' aria-hidden="true"><polyline points="{points}" fill="none" stroke="#3a93cc"'
        ' stroke-width="1.5"/></svg>'
    )


SPARKLINE_POINTS = 24
"""Points of a sparkline."""


class BoardRow(msgspec.Struct, frozen=True, gc=False):
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
    is_thrashing: bool | None
    errors_n: int | None
    """Calls and tools that failed."""
    spark: tuple[int, ...] = ()
    """Sizes of its prompts: the largest of each of at most 24 stretches."""

    @property
    def is_subagent(self) -> bool:
        """True for a subagent's session; a session that continues another one is none."""
        return self.parent is not None and self.agent != "main"


def count_main_sessions(rows: Iterable[BoardRow]) -> int:
    """Count the rows that are sessions of their own, as `ctxkit list` does."""
    return sum(not row.is_subagent for row in rows)


def make_board_row(session: Session, path: str = "") -> BoardRow:
    """Return the row of a session; `path`: the file that it was read from, if it does not say.

    Args:
        session: read whole.
        path: path of its file, where the session does not have one.

    Returns:
        The row: counts, dollars and peak in tokens; texts are sanitised.
    """
    row = {name: values[0] for name, values in rows([session]).items()}
    misses = find_cache_misses(session) if session.has_cache else ()
    thrash_result = thrash(session) if session.edits and session.calls else None
    return BoardRow(
        id=sanitize_line(session.id, 200),
        title=sanitize_line(get_title(session, 200), 120),
        path=path or session.path_ or "",
        started=row["ts"],
        project=row["project"],
        tool=sanitize_line(session.product or session.format, 40),
        model=None if row["model"] is None else sanitize_line(row["model"], 60),
        agent=sanitize_line(session.agent, 40),
        parent=session.parent,
        calls_n=len(session.calls),
        turns_n=row["turns_n"],
        usd=row["cost_usd"],
        peak=row["peak_tokens"],
        compactions_n=row["compactions_n"],
        misses_n=sum(m is not None and m.kind != "cold_start" for m in misses)
        if session.has_cache
        else None,
        is_thrashing=None if thrash_result is None else thrash_result.is_thrashing,
        errors_n=row["errors_n"],
        spark=_sparkline_points(session),
    )


def iter_sessions_in_same_file(session: Session) -> Iterator[Session]:
    """Yield a session and those of its subagents that are in the same file.

    Args:
        session: one that was read from a file.

    Yields:
        The session, then each subagent without a file of its own.
    """
    yield session
    for child in session.children:
        if child.path_ in (None, session.path_):
            yield from iter_sessions_in_same_file(child)


def read_session_of_row(row: BoardRow) -> Session:
    """Return the session of a row, read from its file.

    Args:
        row: row of a board.

    Returns:
        The session with that id, which may be a subagent's in the same file.

    Raises:
        BadArguments: its file holds it no more.
        ReadError: the file cannot be read.
    """
    for session in read_all(row.path, progress=False):
        for each in iter_sessions_in_same_file(session):
            if sanitize_line(each.id, 200) == row.id:
                return each
    raise BadArguments(
        f"{row.path!r} does not hold the session {row.id!r} any more: make the board again."
    )


def _sparkline_points(session: Session) -> tuple[int, ...]:
    # An entry of a whole turn adds up several prompts and is no size of one.
    usages = (c.message.usage for c in session.calls if c.message.kind != "turn")
    sizes = [n for u in usages if u is not None and (n := u.prompt_tokens)]
    # Ceiling division: stretches of equal length, at most `SPARKLINE_POINTS` of them.
    step = -(-len(sizes) // SPARKLINE_POINTS) or 1
    return tuple(max(sizes[i : i + step]) for i in range(0, len(sizes), step))


@register_view_values("board")
def _read_figures(session: Session) -> dict[str, Any]:
    row = make_board_row(session)
    return {
        "cost_usd": row.usd,
        "peak_tokens": row.peak,
        "compactions_n": row.compactions_n,
        "calls_n": row.calls_n,
        "turns_n": row.turns_n,
        "errors_n": row.errors_n,
        **({} if row.is_thrashing is None else {"is_thrashing": row.is_thrashing}),
    }
