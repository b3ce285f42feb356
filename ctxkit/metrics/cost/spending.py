"""`ctxkit.spend`: the bill of a session, or of several together."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, overload

from ctxkit._internal.formatting import (
    NO_MATHJAX,
    escape_html,
    format_usd,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.tables import TEXT_COLOR_CSS
from ctxkit.formats.session_arguments import as_sessions
from ctxkit.metrics.cost.bill_splits import BillPart
from ctxkit.metrics.cost.session_spend import SPLITS, BillSplits, Spend
from ctxkit.session.titles import get_project_name, get_start_day, make_unique_titles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from ctxkit.formats.session_arguments import SessionsLike
    from ctxkit.session.session import Session

_SESSION_WAYS: dict[str, Callable[[Session], str | None]] = {
    "day": get_start_day,
    "project": get_project_name,
    "format": lambda session: session.format,
}
"""Splits of several sessions by a property of the session."""
_MAX_ROWS = 10


class SessionsSpend(BillSplits):
    """The cost of several sessions and its splits. Every split adds up to `total_usd`."""

    ways: ClassVar[Mapping[str, str]] = {
        "session": "by session",
        "day": "by the day on which a session began",
        "project": "by project",
        "format": "by format",
        **SPLITS,
    }

    def __init__(self, sessions: Sequence[Session]) -> None:
        nested = {id(child) for s in sessions for child in _iter_descendants(s)}
        self.sessions = [s for s in sessions if id(s) not in nested]
        self.spends = [Spend(s) for s in self.sessions]

    @cached_property
    def total_usd(self) -> float | None:
        """All dollars that have a price, subagents and summaries included; None without any."""
        costs = [usd for s in self.spends if (usd := s.total_usd) is not None]
        return sum(costs) if costs else None

    @cached_property
    def cost_usd(self) -> float | None:
        """Dollars of calls and summaries without subagents; None where a part has no price."""
        costs = [s.cost_usd for s in self.spends]
        return None if None in costs else sum(usd for usd in costs if usd is not None)

    def by(self, way: str) -> list[BillPart]:
        """Split the bill one way.

        Args:
            way: session, day, project, format, or a way of a single session; by turn, the parts of
                different sessions are separate.

        Returns:
            The parts with name, dollars and number of calls or results, the largest first.

        Raises:
            BadArguments: there is no such way.
        """
        self._check_way(way)
        sums = defaultdict[str, float](float)
        counts = defaultdict[str, int](int)
        for name, part in self._iter_parts(way):
            sums[name] += part.usd
            counts[name] += part.n
        rows = [BillPart(name, usd, counts[name]) for name, usd in sums.items()]
        return sorted(rows, key=lambda r: -r.usd)

    def _iter_parts(self, way: str) -> Iterator[tuple[str, BillPart]]:
        titles = make_unique_titles(self.sessions)
        of_session = _SESSION_WAYS.get(way)
        for title, spent in zip(titles, self.spends, strict=True):
            whole = BillPart(title, spent.total_usd or 0.0, len(spent.session.calls))
            if way == "session":
                yield title, whole
            elif of_session is not None:
                yield sanitize_line(of_session(spent.session) or "unknown", 80), whole
            else:
                for part in spent.by(way) if spent.total_usd is not None else ():
                    yield f"{title}, {part.name}" if way == "turn" else part.name, part

    @property
    def sentences(self) -> list[str]:
        """The total and its limits, in sentences."""
        total, n = self.total_usd, pluralize(len(self.sessions), "session")
        if total is None:
            return [f"No dollars are known of {n}."]
        children_usd = sum(usd for s in self.spends for _, usd in s.children)
        out = [f"{format_usd(total)} in {n}, summaries and subagents included."]
        if children_usd:
            out.append(f"{format_usd(children_usd)} of it are those of subagents.")
        unknown = sum(s.total_usd is None for s in self.spends)
        partial = sum(s.cost_usd is None for s in self.spends) - unknown
        if unknown:
            out.append(f"{pluralize(unknown, 'session')} without a price add nothing to it.")
        if partial:
            out.append(
                f"{pluralize(partial, 'session')} with calls or summaries without a price count as"
                " far as there is one."
            )
        return out

    def to_text(self) -> str:
        """Return the display as lines of text, 80 columns wide."""
        lines = list(self.sentences)
        if self.total_usd is not None:
            for way in ("session", "cache", "tool"):
                lines += ["", self.table(way, _MAX_ROWS).to_text()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape_html(s, 600)}</li>" for s in self.sentences)
        tables = "".join(
            f"<details{' open' if way == 'session' else ''}><summary>{title}</summary>"
            f"{self.table(way).to_html(high=340, sorts=False)}</details>"
            for way, title in self.ways.items()
            if self.total_usd is not None
        )
        return (
            f'<div class="ctxkit-spend {NO_MATHJAX}" style="{TEXT_COLOR_CSS}"><ul>{items}</ul>'
            f"{tables}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        return {"text/plain": self.to_text(), "text/html": self._repr_html_()}

    def __repr__(self) -> str:
        return self.to_text()


def _iter_descendants(session: Session) -> Iterable[Session]:
    for child in session.children:
        yield child
        yield from _iter_descendants(child)


@overload
def spend(sessions: Session | PathLike[str]) -> Spend: ...
@overload
def spend(sessions: SessionsLike) -> Spend | SessionsSpend: ...
def spend(sessions: SessionsLike) -> Spend | SessionsSpend:
    """Break down the cost of a session, or of several, by turn, tool, file, cache and more.

    The dollars of a call are attributed to the messages of its prompt, cached tokens at the price
    of a read and new ones at that of a write, so every split adds up to the bill. Dollars come from
    the log, else from usage times the price table; replays are billed as by `compare`.

    Args:
        sessions: a session, the path of a log, or a list of messages; or several sessions, or a
            folder. A session that is also a subagent of another session counts once.

    Returns:
        The breakdown. It displays as sentences and tables; `by` and `frame` return one split.

    Raises:
        BadArguments: the argument is no session.

    Example:
        >>> import ctxkit as ck
        >>> bill = ck.spend(ck.samples.path("billing"))
        >>> round(bill.total_usd, 2)
        3.29
        >>> abs(sum(part.usd for part in bill.by("tool")) - bill.total_usd) < 1e-6
        True
        >>> both = ck.spend([ck.samples.path("billing"), ck.samples.path("chat")])
        >>> [part.name for part in both.by("format")]
        ['native']
    """
    chosen = as_sessions(sessions)
    if len(chosen) == 1:
        return Spend(chosen[0])
    return SessionsSpend(chosen)
