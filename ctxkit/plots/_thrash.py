"""Whether compactions still pay: what each saved, against the share below which a guard calls it thrashing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.frames import compactions
from ctxkit.plots.axes import Axes, Limit, Mark, Trace
from ctxkit.plots.chart import Chart
from ctxkit.plots.palette import STOP
from ctxkit.plots.words import noted

if TYPE_CHECKING:
    from ctxkit.session import Session

_MARKS = 40


class Try(NamedTuple):
    """A compaction, or one that was due and held back."""

    call: int
    saved: float | None
    """Share that it saved, negative where the window grew; None for one that did not happen."""
    why: str
    """Of one that was held back: by which guard and why."""


class Thrash(NamedTuple):
    """What the chart shows."""

    session: str
    tries: tuple[Try, ...]
    min_savings: float
    window: int
    by: str
    closes: int | None
    """The compaction after which a guard of these settings allows no more; None where it never closes."""


def thrash_data(
    session: Session,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> Thrash:
    """Return what each compaction saved, those that were held back, and where the guard would close.

    Raises:
        BadArguments: `by` is neither tokens nor messages.
    """
    if by not in ("tokens", "messages"):
        raise BadArguments(f"plots.thrash counts by 'tokens' or 'messages', not by {by!r}.")
    found = compactions.rows([session])
    n = len(session.calls)
    shares = found["token_savings" if by == "tokens" else "message_savings"]
    done = [Try(n if c is None else c, s, "") for c, s in zip(found["call"], shares, strict=True)]
    return Thrash(session.id, (*done, *_held(session)), min_savings, window, by, _closes(shares, min_savings, window))


@noted
def thrash(
    session: Session,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> Chart:
    """Chart the share that each compaction saved, against a guard's threshold.

    Args:
        session: a recorded session or a replay; a replay also knows what its guards held back.
        min_savings: share below which a compaction counts as fruitless (fuseraft's default is 0.10).
        window: so many fruitless ones in a row close the guard (fuseraft's default is 10).
        by: whether the share is of tokens, as the bill counts, or of messages, as fuseraft does.
    """
    return _chart(thrash_data(session, min_savings=min_savings, window=window, by=by))


def _held(session: Session) -> list[Try]:
    told: Any = session.details.get("replay")
    held = told.get("held") if isinstance(told, dict) else None
    rows = [h for h in held if isinstance(h, dict)] if isinstance(held, list) else []
    return [
        Try(int(h["call"]), None, f"{h.get('guard')}: {h.get('why')}") for h in rows if isinstance(h.get("call"), int)
    ]


def _closes(shares: list[float | None], least: float, window: int) -> int | None:
    low = 0
    for i, share in enumerate(shares):
        low = low + 1 if share is not None and share < least else 0
        if window and low >= window:
            return i
    return None


def _chart(data: Thrash) -> Chart:
    done = [t for t in data.tries if t.saved is not None]
    held = [t for t in data.tries if t.saved is None and t.why]
    low = [t for t in done if t.saved is not None and t.saved < data.min_savings]

    def told(rows: list[Try]) -> Any:
        return lambda k: f"before call {rows[k].call}\n" + (rows[k].why or f"saved {rows[k].saved:.1%} of {data.by}")

    traces = [Trace(name="saved", x=[t.call for t in done], y=[t.saved for t in done], hover=told(done))]
    if low:
        under = f"below {data.min_savings:.0%}"
        traces.append(
            Trace(name=under, x=[t.call for t in low], y=[t.saved for t in low], kind="points", look=1, hover=told(low))
        )
    if held:
        traces.append(
            Trace(
                name="held back", x=[t.call for t in held], y=[0] * len(held), kind="points", look=5, hover=told(held)
            )
        )
    closing = () if data.closes is None else (Mark(x=data.tries[data.closes].call, label="guard closes"),)
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


def _caption(data: Thrash, done: int, low: int, held: int) -> str:
    end = "stays open" if data.closes is None else f"closes after compaction {data.closes}"
    guard = f"a guard of {data.window} in a row {end}"
    return f"{done} compactions, {low} saved less than {data.min_savings:.0%} of {data.by}; {held} held back; {guard}."


def _row(one: Try, least: float) -> tuple[str, ...]:
    if one.saved is None:
        return (str(one.call), "", one.why or "the log does not tell")
    return (str(one.call), f"{one.saved:.1%}", "too little" if one.saved < least else "pays")
