"""`plots.user_rules`: the prompts that held each rule that the user stated, one line per rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.user_rule_loss_and_breaches import trace_user_rules
from ctxkit.plots.chart import Chart, add_session_notes
from ctxkit.plots.xy_figure import Trace, VerticalMark, XyDrawing
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.user_rule_loss_and_breaches import UserRuleTimeline, UserRuleTimelines
    from ctxkit.session.session import Session

MAX_RULES = 40
"""Rules that are drawn: those that went out of sight first."""
_MAX_MARKS = 40


@accepts_session
@add_session_notes
def user_rules(session: Session) -> Chart:
    """Chart which prompts stated each rule of the user, with the compactions.

    Args:
        session: a session, a replay, or the path of a log.

    Returns:
        The chart; its table has a row for each rule, with its number in the chart.

    Example:
        >>> import ctxkit as ck
        >>> [row[3] for row in ck.plots.user_rules(ck.samples.path("billing")).rows]
        ['compaction 0', 'compaction 0', 'stands', 'stands', 'stands']
    """
    trace = trace_user_rules(session)
    fates, marks = trace.fates, trace.compaction_calls
    ordered = sorted(fates, key=lambda fate: (fate.removed_by is None, fate.stated_call))[
        :MAX_RULES
    ]
    is_acted_against = any(fate.against is not None for fate in ordered)
    columns = 6 if is_acted_against else 5
    return Chart(
        title=f"The user's rules in {get_title(session)}",
        caption=_describe(trace, len(fates) - len(ordered)),
        drawing=XyDrawing(
            x="call",
            y="",
            y_ticks=tuple(f"{i} {sanitize_line(f.rule, 300)}" for i, f in enumerate(ordered, 1)),
            traces=_make_traces(ordered),
            marks=tuple(VerticalMark(x=call - 0.5) for call in marks)
            if len(marks) <= _MAX_MARKS
            else (),
        ),
        head=(
            "rule",
            "in the user's words",
            "stated at call",
            "stood until",
            "last in sight",
            "against it",
        )[:columns],
        rows=tuple(_make_row(i + 1, fate)[:columns] for i, fate in enumerate(ordered)),
        shown=MAX_RULES,
    )


def _describe(trace: UserRuleTimelines, omitted: int) -> str:
    more = f" {omitted} more are not drawn." if omitted else ""
    return f"{trace.answer} A line runs while the prompts state the rule, in any words.{more}"


def _make_traces(fates: Sequence[UserRuleTimeline]) -> tuple[Trace, ...]:
    # One trace for all rules: a gap (None) parts the spans, so that the legend has one entry.
    xs, ys = list[float](), list[float | None]()
    for i, fate in enumerate(fates):
        for start, stop in fate.spans:
            xs += [start, max(stop - 1, start), stop]
            ys += [i + 1, i + 1, None]
    acts = [
        (fate.against_call, i + 1) for i, fate in enumerate(fates) if fate.against_call is not None
    ]
    traces = [Trace(name="in sight", x=xs, y=ys, marked=False)]
    if acts:
        calls, rows = zip(*acts, strict=True)
        traces.append(Trace(name="acted against", x=calls, y=rows, kind="points", look=1))
    return tuple(traces)


def _make_row(number: int, fate: UserRuleTimeline) -> tuple[str, ...]:
    until = "stands" if fate.removed_by is None else f"compaction {fate.removed_by}"
    last = "" if fate.in_sight else f"call {fate.last_call}"
    against = "" if fate.against is None else f"call {fate.against_call}: {redact(fate.against)}"
    rule = sanitize_line(fate.rule, 300)
    return (str(number), rule, str(fate.stated_call), until, last, against)
