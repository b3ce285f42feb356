"""Usage in the five-hour and weekly spans of a subscription, by session and by cause."""

# A call counts at its time with its dollars by list price, because no log shows what a plan counts.
# Its dollars are split by purpose: the reply, reading the cache, writing tokens again after a cache
# miss (with the cause of `cache_misses`), and new input. The parts add up to the call's price. The
# fullest span of a given length ends at a call, so one pass with two pointers finds it.

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_percent,
    format_usd,
    pluralize,
    sanitize_line,
    wrap_lines,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.tables import TERMINAL_COLUMNS, Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.cost.bill_splits import describe_resend_cause
from ctxkit.session.titles import get_title
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import ModelCall, Session


__all__ = ["CallCostByCause", "SubscriptionUsageReport", "UsageSpan", "limits"]
__dir__ = make_dunder_dir(__all__)

SPANS = {"five hours": 5 * 3_600.0, "week": 7 * 86_400.0}
"""Lengths of the spans that subscriptions limit, in seconds."""
_SHOWN_SESSIONS = 4
_COLUMNS = (
    Column("used by", "session, or what was paid for", number=False, firm=True),
    Column("5 h: last", "the five hours up to the newest call"),
    Column("5 h: fullest", "the five hours that used most"),
    Column("week: last", "the week up to the newest call"),
    Column("week: fullest", "the week that used most"),
)
UNKNOWN = (
    "Not in any log: the plan's limit and how it weighs models and cached tokens, so these are"
    " shares of what was used and not of what is allowed; use of the same plan in a browser or on"
    " another machine; and when a span of the provider's began, which may not roll."
)


class CallCostByCause(NamedTuple):
    """The dollars of one call at list prices, by purpose."""

    time: float
    session: str
    """The title of its session, without secrets."""
    usd_by_cause: dict[str, float]

    @property
    def usd(self) -> float:
        """All dollars of the call."""
        return sum(self.usd_by_cause.values())


class UsageSpan(NamedTuple):
    """Usage in a span of time."""

    start: float
    """Seconds since 1970."""
    end: float
    """The time of its last call, in seconds since 1970."""
    usd: float
    calls_n: int
    by_session: dict[str, float]
    """Dollars by session, the largest first."""
    by_cause: dict[str, float]


def limits(sessions: SessionsLike) -> SubscriptionUsageReport:
    """Report the usage in the five-hour and weekly spans of a subscription, by session and cause.

    Dollars are at list prices: a measure of use, not a bill. Subagents count with their session.

    Args:
        sessions: recorded sessions with usage and times, or a folder of them.

    Returns:
        For five hours and for a week, the span that ends at the newest call and the fullest span.
        It prints as sentences and a table.

    Raises:
        BadArguments: no call has usage, a time and a price.

    Example:
        >>> import ctxkit as ck
        >>> report = ck.metrics.limits(ck.samples.path("billing"))
        >>> report.last["five hours"].usd <= report.fullest["five hours"].usd
        True
    """
    calls, left_out = list[CallCostByCause](), 0
    for session in as_sessions(sessions):
        uses, skipped = list_call_costs(session)
        calls += uses
        left_out += skipped
    if not calls:
        raise BadArguments("No call of these sessions has usage, a time and a price.")
    calls.sort(key=lambda c: c.time)
    end = calls[-1].time
    return SubscriptionUsageReport(
        last={name: _sum_span([c for c in calls if c.time > end - s]) for name, s in SPANS.items()},
        fullest={name: _sum_span(_find_fullest(calls, s)) for name, s in SPANS.items()},
        left_out=left_out,
    )


def list_call_costs(session: Session) -> tuple[list[CallCostByCause], int]:
    """Return the costs of the calls of a session and its subagents, and how many are left out."""
    title = sanitize_line(get_title(session), 60) or "without a title"
    out, left_out = list[CallCostByCause](), 0
    for part in _walk(session):
        misses = find_cache_misses(part) if part.has_cache else ()
        lost_by_call = {m.call: (m.kind, max(m.missed_tokens, 0)) for m in misses if m is not None}
        for call in part.calls:
            usd_by_cause = _split_call(call, part.model, lost_by_call.get(call.index))
            if usd_by_cause is None or call.message.time is None:
                left_out += 1
            else:
                out.append(CallCostByCause(call.message.time, title, usd_by_cause))
    return out, left_out


def _walk(session: Session) -> Iterable[Session]:
    yield session
    for child in session.children:
        yield from _walk(child)


def _split_call(
    call: ModelCall, model: str | None, lost: tuple[str, int] | None
) -> dict[str, float] | None:
    """Return the dollars of a call by cause; None without usage or a price."""
    usage = call.message.usage
    prices = price(call.message.model or model, at=call.message.time)
    if usage is None or prices is None or prices.cost_usd(usage) is None:
        return None
    prompt, read = usage.prompt_tokens or 0, usage.cache_read_tokens or 0
    split = prices.split_usd(usage)
    rest_usd = max(split.prompt - split.read, 0.0)
    out = {"replies": split.output, "reading the cache": split.read}
    if lost is not None and prompt > read:
        kind, tokens = lost
        again = rest_usd * min(tokens / (prompt - read), 1.0)
        out[describe_resend_cause(kind)] = again
        rest_usd -= again
    return {**out, "new in the prompt": rest_usd}


def _find_fullest(calls: Sequence[CallCostByCause], seconds: float) -> list[CallCostByCause]:
    """Return the calls in the fullest span of a length; the calls must be ordered by time."""
    first, usd, best, ends = 0, 0.0, -1.0, (0, 0)
    for last, call in enumerate(calls):
        usd += call.usd
        while call.time - calls[first].time >= seconds:
            usd -= calls[first].usd
            first += 1
        if usd > best:
            best, ends = usd, (first, last + 1)
    return list(calls[slice(*ends)])


def _sum_span(calls: Sequence[CallCostByCause]) -> UsageSpan:
    by_session, by_cause = Counter[str](), Counter[str]()
    for call in calls:
        by_session[call.session] += call.usd  # type: ignore[assignment]
        by_cause.update(call.usd_by_cause)
    return UsageSpan(
        calls[0].time,
        calls[-1].time,
        sum(c.usd for c in calls),
        len(calls),
        dict(by_session.most_common()),
        dict(by_cause.most_common()),
    )


class SubscriptionUsageReport(NamedTuple):
    """Usage in the spans that subscriptions limit."""

    last: dict[str, UsageSpan]
    """The span that ends at the newest call, by the name of its length."""
    fullest: dict[str, UsageSpan]
    left_out: int
    """Calls without usage, a time or a price."""

    @property
    def answer(self) -> str:
        """The usage in the fullest five hours, in one sentence."""
        span = self.fullest["five hours"]
        session, usd = next(iter(span.by_session.items()))
        cause, cause_usd = next(iter(span.by_cause.items()))
        begun = datetime.fromtimestamp(span.start, UTC).strftime("%Y-%m-%d %H:%M")
        return (
            f"The fullest five hours, from {begun} UTC, used {format_usd(span.usd)} at list prices:"
            f" {_share(usd, span)} by “{session}”, {_share(cause_usd, span)} for"
            f" {cause.replace('again:', 'writing again after')}."
        )

    @property
    def spans(self) -> tuple[UsageSpan, ...]:
        """The spans in the order of the table's columns."""
        return tuple(s for name in SPANS for s in (self.last[name], self.fullest[name]))

    @property
    def table(self) -> Table:
        """Shares of each span by session, then by cause."""
        spans = self.spans
        top = [Cell("all, in dollars"), *(Cell(format_usd(s.usd), s.usd) for s in spans)]
        sessions = dict.fromkeys(n for s in spans for n in list(s.by_session)[:_SHOWN_SESSIONS])
        causes = Counter[str]()
        for span in spans:
            causes.update(span.by_cause)
        rows = [tuple(top)]
        rows += [
            (Cell(sanitize_line(f"“{n}", 29) + "”"), *(_cell(s.by_session, n, s) for s in spans))
            for n in sessions
        ]
        rows += [
            (Cell(sanitize_line(n, 30)), *(_cell(s.by_cause, n, s) for s in spans))
            for n, _ in causes.most_common()
        ]
        return Table(_COLUMNS, tuple(rows))

    def sentences(self) -> tuple[str, ...]:
        """Return the limits of the figures as sentences."""
        out = [UNKNOWN]
        if self.left_out:
            out.append(
                f"{pluralize(self.left_out, 'call')} without usage, a time or a price left out."
            )
        return tuple(out)

    def to_text(self) -> str:
        """Return the answer, the table and its limits as lines of 80 columns."""
        lines = [*wrap_lines(self.answer, TERMINAL_COLUMNS), "", self.table.to_text(), ""]
        return "\n".join(
            [*lines, *(w for s in self.sentences() for w in wrap_lines(s, TERMINAL_COLUMNS))]
        )

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape_html(s, 600)}</p>" for s in self.sentences())
        answer = f"<p><strong>{escape_html(self.answer, 600)}</strong></p>"
        table = self.table.to_html(is_sortable=False)
        return f'<div class="{NO_MATHJAX}">{answer}{table}{notes}</div>'

    def to_dict(self) -> dict[str, Any]:
        """Return the spans as plain values."""
        return {
            "last": {n: s._asdict() for n, s in self.last.items()},
            "fullest": {n: s._asdict() for n, s in self.fullest.items()},
            "left_out": self.left_out,
        }


def _share(usd: float, span: UsageSpan) -> str:
    return format_percent(usd / span.usd) if span.usd else "all"


def _cell(usd_by_name: dict[str, float], name: str, span: UsageSpan) -> Cell:
    usd = usd_by_name.get(name)
    if usd is None:
        return Cell("")
    return Cell(_share(usd, span), usd / span.usd if span.usd else 0.0)
