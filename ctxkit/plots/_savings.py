"""What each compaction saved: the size before, the size after, and what it put in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.frames import compactions
from ctxkit.plots.axes import Axes, Trace
from ctxkit.plots.chart import Chart
from ctxkit.plots.words import noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session import Session


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


def savings_data(session: Session) -> tuple[Saving, ...]:
    """Return each compaction of a session with its sizes; None where the log cannot tell."""
    found = compactions.rows([session])
    names = ("compaction", "call", "tokens_before", "tokens_after", "summary_tokens", "tokens_source")
    words = zip(*(found[n] for n in ("kind", "method", "trigger")), strict=True)
    told = [" · ".join(w for w in row if w) for row in words]
    rows = zip(*(found[n] for n in names), told, strict=True)
    return tuple(
        Saving(k, call, before, after, new, what, source) for k, call, before, after, new, source, what in rows
    )


@noted
def savings(session: Session) -> Chart:
    """Chart the window before and after each compaction, and how much of the latter the compaction itself put in."""
    return _chart(session.id, savings_data(session))


def _chart(name: str, data: Sequence[Saving]) -> Chart:
    def hover(k: int) -> str:
        one = data[k]
        sizes = f"{_size(one.before)} → {_size(one.after)} tokens ({one.source})"
        return f"compaction {one.number}, {_where(one)}\n{sizes}\nput in {_size(one.put_in)}\n{one.what}"

    places = [s.number for s in data]
    columns = (("before", [s.before for s in data]), ("after", [s.after for s in data]))
    traces = [Trace(name=n, x=places, y=y, kind="bar", look=i, hover=hover) for i, (n, y) in enumerate(columns)]
    new = [s.put_in for s in data]
    traces.append(Trace(name="put in, part of after", x=places, y=new, kind="bar", look=3, hover=hover))
    axes = Axes(x="compaction", y="tokens", traces=tuple(traces) if data else (), whole=True)
    known = [1 - s.after / s.before for s in data if s.before and s.after is not None]
    mean = f" On average {sum(known) / len(known):.0%} was saved." if known else ""
    return Chart(
        title=f"Savings of the compactions of {name}",
        caption=f"{len(data)} compactions: tokens in the window before and after.{mean}",
        drawing=axes,
        head=("compaction", "call", "before", "after", "saved", "put in", "what", "source"),
        rows=tuple(map(_row, data)),
    )


def _row(one: Saving) -> tuple[str, ...]:
    saved = f"{1 - one.after / one.before:.0%}" if one.before and one.after is not None else "unknown"
    call = "" if one.call is None else str(one.call)
    return (str(one.number), call, *map(_size, one[2:4]), saved, _size(one.put_in), one.what, one.source or "unknown")


def _where(one: Saving) -> str:
    return "after the last call" if one.call is None else f"before call {one.call}"


def _size(n: int | None) -> str:
    return "unknown" if n is None else f"{n:,}"
