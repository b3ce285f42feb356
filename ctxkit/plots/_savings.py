"""What each compaction saved: the size before, the size after, and what it put in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.display.amounts import counted
from ctxkit.plots.axes import Axes
from ctxkit.plots.chart import Chart
from ctxkit.plots.chart_words import noted, size
from ctxkit.plots.drawn_compactions import cuts_of
from ctxkit.plots.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.plots.drawn_compactions import Cuts
    from ctxkit.readers.given import GivenAll


class Saving(NamedTuple):
    """One compaction."""

    number: int
    call: int | None
    """The first call that was shown its outcome."""
    before: int | None
    after: int | None
    put_in: int | None
    """Tokens of summaries and shortened messages that it put in; part of `after`."""
    what: str
    """Kind, method and trigger."""
    source: str | None
    session: str = ""


_SIZES = ("compaction", "call", "tokens_before", "tokens_after", "summary_tokens")
_WORDS = ("kind", "method", "trigger")


def savings_data(of: GivenAll | pd.DataFrame) -> tuple[Saving, ...]:
    """Return each compaction with its sizes; None where the log cannot tell.

    Raises:
        BadArguments: it is neither sessions nor a frame of compactions.
    """
    return _data(_cuts(of))


def _cuts(of: GivenAll | pd.DataFrame) -> Cuts:
    return cuts_of(of, (*_SIZES, *_WORDS, "tokens_source"), "savings")


def _data(cuts: Cuts) -> tuple[Saving, ...]:
    found = cuts.columns
    words = zip(*(found[n] for n in _WORDS), strict=True)
    told = [" · ".join(w for w in row if w) for row in words]
    columns = [*(found[n] for n in _SIZES), told, found["tokens_source"], found["session"]]
    return tuple(Saving(*row) for row in zip(*columns, strict=True))


@noted
def savings(of: GivenAll | pd.DataFrame) -> Chart:
    """Chart the window before and after each compaction, and how much of the latter the compaction
    itself put in.

    Args:
        of: a session, several (their compactions stand one after the other), or a frame with one
            row a compaction.

    Raises:
        BadArguments: it is neither sessions nor a frame of compactions.
    """
    cuts = _cuts(of)
    return savings_chart(cuts.title, _data(cuts), several=len(cuts.names) > 1)


def savings_chart(name: str, data: Sequence[Saving], *, several: bool) -> Chart:
    """Return the chart of compactions; `several`: of several sessions, one after the other."""

    def hover(k: int) -> str:
        one = data[k]
        sizes = f"{size(one.before)} → {size(one.after)} tokens ({one.source})"
        which = f"{one.session}\n" if several else ""
        return (
            f"{which}compaction {one.number}, {_where(one)}\n{sizes}\nput in"
            f" {size(one.put_in)}\n{one.what}"
        )

    places = [k if several else s.number for k, s in enumerate(data)]
    columns = (
        ("put in", [_put(s) for s in data], 3),
        ("kept", [None if s.after is None else s.after - (_put(s) or 0) for s in data], 0),
        ("saved", [_saved(s) for s in data], 1),
    )
    traces = [
        Trace(name=n, x=places, y=y, kind="bar", look=look, hover=hover) for n, y, look in columns
    ]
    axes = Axes(
        x="compaction",
        y="tokens in the window before",
        traces=tuple(traces) if data else (),
        whole=True,
        stacked=True,
    )
    known = [1 - s.after / s.before for s in data if s.before and s.after is not None]
    mean = f" On average {sum(known) / len(known):.0%} was saved." if known else ""
    return Chart(
        title=f"Savings of the compactions of {name}",
        caption=(
            f"{counted(len(data), 'compaction')}: of the tokens in the window before, what was kept"
            f" and saved; what was put in is part of what is there after.{mean}"
        ),
        drawing=axes,
        head=("session",) * several
        + ("compaction", "call", "before", "after", "saved", "put in", "what", "source"),
        rows=tuple((s.session,) * several + _row(s) for s in data),
    )


def _put(one: Saving) -> int | None:
    """Return what it put in, as far as it is part of what was there after."""
    if one.put_in is None or one.after is None:
        return None
    return min(one.put_in, one.after)


def _saved(one: Saving) -> int | None:
    """Return what it saved; nothing where the window grew."""
    if one.before is None or one.after is None:
        return None
    return max(one.before - one.after, 0)


def _row(one: Saving) -> tuple[str, ...]:
    saved = "unknown"
    if one.before and one.after is not None:
        saved = f"{1 - one.after / one.before:.0%}"
    call = "" if one.call is None else str(one.call)
    told = (one.what, one.source or "unknown")
    return (str(one.number), call, *map(size, one[2:4]), saved, size(one.put_in), *told)


def _where(one: Saving) -> str:
    return "after the last call" if one.call is None else f"before call {one.call}"
