"""Whether compactions still pay: what each saved, against the share below which a guard calls it
thrashing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit.display.amounts import counted
from ctxkit.errors import BadArguments
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted
from ctxkit.plots.drawn_compactions import cuts_of
from ctxkit.plots.palette import STOP
from ctxkit.plots.traces import Limit, Mark, Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.readers.given import GivenAll
    from ctxkit.session import Session

_MARKS = 40


class Try(NamedTuple):
    """A compaction, or one that was due and held back."""

    call: int
    saved: float | None
    """Share that it saved, negative where the window grew; None for one that did not happen."""
    why: str
    """Of one that was held back: by which guard and why."""


class ThrashFigure(NamedTuple):
    """What the chart shows."""

    session: str
    tries: tuple[Try, ...]
    min_savings: float
    window: int
    by: str
    closes: int | None
    """The compaction after which such a guard allows no more; None where it never closes."""


def thrash_data(
    of: GivenAll | pd.DataFrame,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> ThrashFigure:
    """Return what each compaction saved, those that were held back, and where the guard would
    close.

    Raises:
        BadArguments: `by` is neither tokens nor messages; or it is neither one session nor a
            frame of its compactions.
    """
    if by not in ("tokens", "messages"):
        raise BadArguments(f"plots.thrash counts by 'tokens' or 'messages', not by {by!r}.")
    column = "token_savings" if by == "tokens" else "message_savings"
    cuts = cuts_of(of, ("call", column), "thrash")
    if len(cuts.names) > 1:
        raise BadArguments(
            f"plots.thrash draws one session, for a guard counts within one; {len(cuts.names)} were"
            " given: draw them one by one."
        )
    calls, shares = cuts.columns["call"], cuts.columns[column]
    n = (
        len(cuts.sessions[0].calls)
        if cuts.sessions
        else max((c for c in calls if c is not None), default=-1) + 1
    )
    tries = [(n if c is None else c, s) for c, s in zip(calls, shares, strict=True)]
    held = [(each.call, each.why) for session in cuts.sessions for each in held_back(session)]
    return thrash_of(cuts.title, tries, held, min_savings, window, by)


def thrash_of(  # noqa: PLR0917  what is tried, then the guard
    name: str,
    tries: Sequence[tuple[int, float | None]],
    held: Sequence[tuple[int, str]],
    min_savings: float,
    window: int,
    by: str,
) -> ThrashFigure:
    """Return what the chart shows, of compactions (call, share saved) and of those that were held
    back (call, why).
    """
    done = [Try(call, share, "") for call, share in tries]
    back = [Try(call, None, why) for call, why in held]
    end = closes([share for _, share in tries], min_savings, window)
    return ThrashFigure(name, (*done, *back), min_savings, window, by, end)


@noted
def thrash(
    of: GivenAll | pd.DataFrame,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> Chart:
    """Chart the share that each compaction saved, against a guard's threshold.

    Args:
        of: a recorded session or a replay, which also knows what its guards held back; or a frame
            of one session's compactions, which does not.
        min_savings: share below which a compaction counts as fruitless (fuseraft's default is
            0.10).
        window: so many fruitless ones in a row close the guard (fuseraft's default is 10).
        by: whether the share is of tokens, as the bill counts, or of messages, as fuseraft does.
    """
    return thrash_chart(thrash_data(of, min_savings=min_savings, window=window, by=by))


def held_back(session: Session) -> list[Try]:
    """Return the compactions that a replay's own guards held back."""
    told: Any = session.details.get("replay")
    held = told.get("held") if isinstance(told, dict) else None
    rows = [h for h in held if isinstance(h, dict)] if isinstance(held, list) else []
    return [
        Try(int(h["call"]), None, f"{h.get('guard')}: {h.get('why')}")
        for h in rows
        if isinstance(h.get("call"), int)
    ]


def closes(shares: Sequence[float | None], least: float, window: int) -> int | None:
    """Return the compaction after which an anti-thrash guard allows no more; None: it stays open.

    So many in a row that each saved less close it; 0 turns it off, and a share that is not known
    begins the row anew. The widget has the same rule in the browser.
    """
    low = 0
    if not least:
        return None
    for i, share in enumerate(shares):
        low = low + 1 if share is not None and share < least else 0
        if window and low >= window:
            return i
    return None


def thrash_chart(data: ThrashFigure) -> Chart:
    """Return the chart of what was tried, against a guard."""
    done = [t for t in data.tries if t.saved is not None]
    held = [t for t in data.tries if t.saved is None and t.why]
    low = [t for t in done if t.saved is not None and t.saved < data.min_savings]

    def trace(name: str, rows: list[Try], look: int, kind: Literal["line", "points"]) -> Trace:
        def hover(k: int) -> str:
            one = rows[k]
            return f"before call {one.call}\n{one.why or f'saved {one.saved:.1%} of {data.by}'}"

        places, heights = [t.call for t in rows], [t.saved or 0 for t in rows]
        return Trace(name=name, x=places, y=heights, kind=kind, look=look, hover=hover)

    traces = [trace("saved", done, 0, "line")]
    traces += [trace(f"below {data.min_savings:.0%}", low, 1, "points")] if low else []
    traces += [trace("held back", held, 5, "points")] if held else []
    closing = (
        () if data.closes is None else (Mark(x=data.tries[data.closes].call, label="guard closes"),)
    )
    axes = Axes(
        x="call",
        y=f"share of {data.by} saved",
        traces=tuple(traces) if data.tries else (),
        limits=(Limit(y=data.min_savings, label=f"least {data.min_savings:.0%}", colour=STOP),),
        marks=closing,
        y_share=True,
    )
    return Chart(
        title=f"Do the compactions of {data.session} pay?",
        caption=_caption(data, len(done), len(low), len(held)),
        drawing=axes,
        head=("call", "saved", "verdict"),
        rows=tuple(_row(t, data.min_savings) for t in sorted(data.tries, key=lambda t: t.call)),
    )


def _caption(data: ThrashFigure, done: int, low: int, held: int) -> str:
    end = "stays open" if data.closes is None else f"closes after compaction {data.closes}"
    guard = f"a guard of {data.window} in a row {end}"
    return (
        f"{counted(done, 'compaction')}, {low} saved less than {data.min_savings:.0%} of"
        f" {data.by}; {held}"
        f" held back; {guard}."
    )


def _row(one: Try, least: float) -> tuple[str, ...]:
    if one.saved is None:
        return (str(one.call), "", one.why or "the log does not tell")
    return (str(one.call), f"{one.saved:.1%}", "too little" if one.saved < least else "pays")
