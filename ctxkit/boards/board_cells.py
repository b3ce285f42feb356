"""The rows of a board as cells: of a session, and of several that are put together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from ctxkit.display.amounts import MISSING, dollars, number, tokens
from ctxkit.display.sheets import Box, Heading, Tabular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.boards.tallied import Tallied

_LAST = 253_402_300_799
WAYS: dict[str, Callable[[Tallied], str]] = {
    "day": lambda r: day_of_row(r.started),
    "project": lambda r: r.project or "no project",
    "tool": lambda r: r.tool,
    "model": lambda r: r.model or "no model",
    "agent": lambda r: r.agent,
}
"""How sessions are put together."""
HEADS = (
    Heading("#", "its number: board.open(number) reads it"),
    Heading(
        "session", "its title, else what was asked first; id and file when pointed at", number=False
    ),
    Heading("day", "when it began, UTC", number=False),
    Heading("calls", "requests to a model", spare=True),
    Heading("spend", "dollars, compactions included, subagents apart"),
    Heading("peak", "the largest prompt, in tokens"),
    Heading("", "sizes of its prompts", number=False, spare=True),
    Heading("cuts", "compactions"),
    Heading("misses", "calls that did not find the cache that was there", spare=True),
    Heading("errors", "calls and tools that failed", spare=True),
    Heading("project", "the folder that it worked in", number=False, spare=True),
    Heading("tool", "the program that wrote the log", number=False, spare=True),
    Heading("model", "", number=False, spare=True),
)
GROUPED = (
    Heading("sessions"),
    Heading("spend", "dollars of those that have a price"),
    Heading("peak", "the largest prompt of all"),
    Heading("cuts", "compactions"),
    Heading("misses", "calls that did not find the cache that was there"),
    Heading("thrash", "sessions whose compactions did not pay", spare=True),
    Heading("errors", "calls and tools that failed"),
)


def row_of(i: int, r: Tallied) -> tuple[Box, ...]:
    """Return a row as cells under `HEADS`."""
    cuts = number(r.compactions_n) + " thrashes" * bool(r.thrash)
    return (
        Box(number(i), float(i)),
        Box(r.title, None, f"id {r.id} · {r.path}"),
        Box(day_of_row(r.started), r.started),
        Box(number(r.calls_n), float(r.calls_n)),
        Box(dollars(r.usd), r.usd),
        Box(tokens(r.peak), _float(r.peak)),
        Box("", None, "", "", _spark(r.spark)),
        Box(cuts, _float(r.compactions_n), "", "bad" * bool(r.thrash)),
        Box(number(r.misses_n), _float(r.misses_n)),
        Box(number(r.errors_n), _float(r.errors_n)),
        Box(r.project or ""),
        Box(r.tool),
        Box(r.model or ""),
    )


def first(table: Tabular, rows: int) -> Tabular:
    """Return the dearest rows of sums."""
    more = len(table.rows) - rows
    legend = f"and {number(more)} more" if more > 0 else ""
    return replace(table, rows=table.rows[:rows], legend=legend)


def group_of(name: str, rows: list[Tallied]) -> tuple[Box, ...]:
    """Return the sums of some rows as cells."""
    usd = _sum(r.usd for r in rows)
    peak = max((r.peak for r in rows if r.peak is not None), default=None)
    sums = [
        _sum(getattr(r, c) for r in rows)
        for c in ("compactions_n", "misses_n", "thrash", "errors_n")
    ]
    return (
        Box(name),
        Box(number(len(rows)), float(len(rows))),
        Box(dollars(usd), usd),
        Box(tokens(peak), _float(peak)),
        *(Box(number(n), n) for n in sums),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(sum(known)) if known else None


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def day_of_row(at: float | None) -> str:
    """Return the day of a time, UTC."""
    if at is None or not 0 <= at < _LAST:
        return MISSING
    return _date(int(at) // 86_400)


@cache
def _date(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")


def _spark(sizes: tuple[int, ...]) -> str:
    """Return sizes as a small picture."""
    if not sizes:
        return ""
    top, step = max(sizes) or 1, 80 / max(len(sizes) - 1, 1)
    points = " ".join(f"{i * step:.0f},{17 - 15 * n / top:.0f}" for i, n in enumerate(sizes))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 80 18" width="80" height="18"'
        f' aria-hidden="true"><polyline points="{points}" fill="none" stroke="#3a93cc"'
        ' stroke-width="1.5"/></svg>'
    )
