"""Error of token estimators against recorded usage, by kind of content and for triggers."""

# Between two calls without an edit the recorded prompt grows by exactly the messages in between, so
# the growth measures their size. A reply's share of it is its output tokens (unless they include
# hidden reasoning); the rest is the messages after the reply. Estimates of the same messages are
# compared with these sizes, summed over all calls.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ctxkit._internal.data_frame_display import AnnotatedTable
from ctxkit._internal.formatting_and_sanitizing import (
    format_change,
    format_percent,
    pluralize,
    quote_line,
)
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.session.messages import Attachment, Message, SizeOnly, Text, Thinking, ToolCall
from ctxkit.tokens import can_count_exactly, get_counter
from ctxkit.tokens.message_sizes_from_recorded_prompts import (
    CountedMessages,
    iter_usage_anchors,
    measure_sizes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.session import ListPrefix, Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes, UsageAnchor
    from ctxkit.tokens.token_counters import TokenCounter

THRESHOLD_SHARES = (0.25, 0.5, 0.75, 0.9)
"""Default thresholds, as shares of the largest recorded prompt."""
_ESTIMATORS = ("chars/4", "pi", "ai", "tyrum", "pulse_coder", "fuseraft")
_ALL_CONTENT = "all content"


@dataclass(frozen=True, kw_only=True)
class EstimatorErrors:
    """Token estimates of one session against the provider's counts; it shows the closest."""

    session: str
    kinds: pd.DataFrame
    """One row per estimator and kind of content: `estimator kind recorded_tokens estimated_tokens
    error samples_n source`. `error` is estimated / recorded - 1: -0.25 is a quarter too low. The
    kind "all content" is the growth of prompts between calls (`source` "recorded"). Sizes of other
    kinds are "derived": a reply has its output tokens, the messages after it the rest of the
    growth. Kinds need not add up to the whole.
    """
    triggers: pd.DataFrame
    """One row per estimator and threshold: `estimator threshold recorded_call estimated_call
    calls_late tokens_at_estimate`: the first call whose prompt reaches the threshold by the
    provider's count and by the estimate, the calls by which a trigger on the estimate fires late,
    and the recorded prompt at that call. Missing: the threshold was never reached.
    """
    calls: pd.DataFrame
    """One row per call with a recorded prompt: `call recorded`, and a column per estimator with the
    estimated prompt, including the part that is not in the log (`fixed`).
    """
    fixed: int | None
    """Tokens of system prompt and tool schemas that are not in the log; equal for all estimators.
    """

    @property
    def estimators(self) -> list[str]:
        """Names of the estimators, in the order of the arguments."""
        return [str(name) for name in self.calls.columns[2:]]

    def error(self, estimator: str, kind: str = _ALL_CONTENT) -> float:
        """Return estimated / recorded - 1; NaN where the session has no sample of that kind.

        Args:
            estimator: name of the estimator.
            kind: kind of content, as in the column `kind` of `kinds`.

        Raises:
            BadArguments: there is no such estimator.
        """
        if estimator not in self.estimators:
            raise BadArguments(
                f"{estimator!r} was not calibrated; there are {', '.join(self.estimators)}."
            )
        errors = self.kinds[(self.kinds["estimator"] == estimator) & (self.kinds["kind"] == kind)][
            "error"
        ]
        return float(errors.iloc[0]) if len(errors) else float("nan")

    def table(self) -> pd.DataFrame:
        """Return the errors with one row per estimator and one column per kind of content."""
        kinds = list(dict.fromkeys(self.kinds["kind"]))
        return self.kinds.pivot_table(
            index="estimator", columns="kind", values="error", sort=False
        ).reindex(columns=kinds)

    @property
    def detail(self) -> pd.DataFrame:
        """Every figure by estimator and kind of content: the frame `kinds`."""
        return self.kinds

    @property
    def display(self) -> AnnotatedTable:
        """The closest estimator in a sentence, above a row per estimator."""
        return _display_calibration(self)

    def __repr__(self) -> str:
        return self.display.to_text()

    def _repr_html_(self) -> str:
        return self.display.to_html()


@accepts_session
def calibrate(
    session: Session,
    estimators: Iterable[str | TokenCounter] | None = None,
    *,
    thresholds: Sequence[int] | None = None,
) -> EstimatorErrors:
    """Measure the error of token estimators against the usage that a session recorded.

    Args:
        session: a session with recorded usage, the path of a log, or a list of messages.
        estimators: counters or their names; None: the estimators of real systems, and the exact
            o200k_base where its vocabulary is installed.
        thresholds: prompt sizes in tokens at which a trigger would fire; None: 25, 50, 75 and 90 %
            of the largest prompt.

    Returns:
        Errors by kind of content, and the calls at which triggers on the estimates would fire.

    Raises:
        BadArguments: no session, a session with fewer than two recorded prompts, or an unknown
            estimator.

    Example:
        >>> import ctxkit as ck
        >>> result = ck.calibrate(ck.samples.path("billing"), ["chars/4"])
        >>> abs(result.error("chars/4")) < 0.5
        True
    """
    counters = [
        get_counter(e) if isinstance(e, str) else e
        for e in estimators or (*_ESTIMATORS, *(["exact"] * can_count_exactly()))
    ]
    slots = CountedMessages(session, counters[0])
    anchors = list(iter_usage_anchors(session, slots))
    if len(anchors) < 2:
        raise BadArguments(
            f"Session {quote_line(session.id)} records fewer than two prompt sizes:"
            " nothing to calibrate against."
        )
    counts = _count_messages(slots, counters)
    sizes = measure_sizes(session, counters[0])
    calls = _tabulate_calls(session, sizes, anchors, counts)
    peak = int(calls["recorded"].max())
    limits = (
        [round(share * peak) for share in THRESHOLD_SHARES] if thresholds is None else thresholds
    )
    limits = list(dict.fromkeys(limits))  # shares of a small prompt can be equal
    return EstimatorErrors(
        session=session.id,
        kinds=_tabulate_kinds(_collect_samples(slots, anchors), counts),
        triggers=_tabulate_triggers(calls, limits),
        calls=calls,
        fixed=sizes.fixed,
    )


class _CountedMessages(NamedTuple):
    """One estimator's counts of a session's messages."""

    name: str
    tokens: dict[int, int]
    """By `id()` of the message."""

    def sum(self, messages: Iterable[Message]) -> int:
        tokens = self.tokens
        return sum([tokens[id(m)] for m in messages])


def _count_messages(
    slots: CountedMessages, counters: Sequence[TokenCounter]
) -> list[_CountedMessages]:
    return [
        _CountedMessages(c.name, {id(m): c.message(m) for m in slots.messages}) for c in counters
    ]


# -- by kind of content ---------------------------------------------------------------------------


class _SizedMessages(NamedTuple):
    """Messages whose total size follows from recorded usage."""

    kind: str
    messages: tuple[Message, ...]
    tokens: int
    source: str


def _collect_samples(slots: CountedMessages, anchors: list[UsageAnchor]) -> list[_SizedMessages]:
    samples: list[_SizedMessages] = []
    for anchor in anchors:
        growth = anchor.prompt - anchor.before
        if anchor.kind != "growth" or growth <= 0:
            continue
        messages = tuple(slots.messages[i] for i in anchor.slots)
        samples.append(_SizedMessages(_ALL_CONTENT, messages, growth, "recorded"))
        samples += _split_growth(messages, growth)
    return samples


def _split_growth(messages: tuple[Message, ...], growth: int) -> list[_SizedMessages]:
    """Split growth into a reply's output tokens and the rest; empty where reasoning is hidden."""
    replies = [m for m in messages if m.role == "assistant"]
    usage = replies[0].usage if len(replies) == 1 else None
    if (
        usage is None
        or not usage.output_tokens
        or usage.reasoning_tokens
        or _has_hidden_reasoning(replies[0])
    ):
        return []
    rest = tuple(m for m in messages if m is not replies[0])
    samples = [
        _SizedMessages(_reply_kind(replies[0]), tuple(replies), usage.output_tokens, "derived")
    ]
    if rest and growth > usage.output_tokens:
        roles = {m.role for m in rest}
        kind = (
            {"tool": "tool results", "user": "user input"}.get(roles.pop(), "other")
            if len(roles) == 1
            else "mixed"
        )
        samples.append(_SizedMessages(kind, rest, growth - usage.output_tokens, "derived"))
    return samples


def _has_hidden_reasoning(message: Message) -> bool:
    return any(
        isinstance(p, Thinking) and (p.hidden or p.signature or p.text) for p in message.parts
    )


def _reply_kind(message: Message) -> str:
    """Return the kind of most of a reply's content."""
    text_chars = sum(len(p.text) for p in message.parts if isinstance(p, Text))
    argument_chars = sum(
        len(p.raw or str(p.arguments)) for p in message.parts if isinstance(p, ToolCall)
    )
    if any(isinstance(p, (SizeOnly, Attachment)) for p in message.parts):
        return "other"
    return "tool calls" if argument_chars > text_chars else "replies"


def _tabulate_kinds(
    samples: list[_SizedMessages], counts: Sequence[_CountedMessages]
) -> pd.DataFrame:
    order = [_ALL_CONTENT, *sorted({s.kind for s in samples} - {_ALL_CONTENT})]
    rows = []
    for counter in counts:
        for kind in order:
            of_kind = [s for s in samples if s.kind == kind]
            recorded = sum(s.tokens for s in of_kind)
            estimated = sum(counter.sum(s.messages) for s in of_kind)
            error = estimated / recorded - 1 if recorded else np.nan
            source = of_kind[0].source if of_kind else "recorded"
            rows.append((counter.name, kind, recorded, estimated, error, len(of_kind), source))
    names = [
        "estimator",
        "kind",
        "recorded_tokens",
        "estimated_tokens",
        "error",
        "samples_n",
        "source",
    ]
    types = ["string", "string", "Int64", "Int64", "float64", "Int64", "string"]
    return pd.DataFrame(rows, columns=names).astype(dict(zip(names, types, strict=True)))


# -- when a trigger fires -------------------------------------------------------------------------


def _tabulate_calls(
    session: Session,
    sizes: MessageSizes,
    anchors: list[UsageAnchor],
    counts: Sequence[_CountedMessages],
) -> pd.DataFrame:
    recorded = {s.call: s.prompt for s in anchors}
    rows = []
    before: ListPrefix[Message] | None = None
    totals = [0] * len(counts)
    for call, view in session.views():
        new = view.added_since(before)
        if new is None:  # an edit came in between: sum all messages of the view
            new, totals = view, [0] * len(counts)
        totals = [total + of.sum(new) for total, of in zip(totals, counts, strict=True)]
        before = view
        if call.index in recorded:
            fixed = sizes.fixed_at[call.index]
            rows.append((call.index, recorded[call.index], *(fixed + n for n in totals)))
    names = ("call", "recorded", *(of.name for of in counts))
    return pd.DataFrame(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _tabulate_triggers(calls: pd.DataFrame, limits: Sequence[int]) -> pd.DataFrame:
    rows = []
    for name in calls.columns[2:]:
        for limit in limits:
            recorded_at, estimated_at = (
                _find_first_true(calls[column] >= limit) for column in ("recorded", name)
            )
            late = (
                None if recorded_at is None or estimated_at is None else estimated_at - recorded_at
            )
            size = None if estimated_at is None else int(calls["recorded"].iloc[estimated_at])
            numbers = [
                None if i is None else int(calls["call"].iloc[i])
                for i in (recorded_at, estimated_at)
            ]
            rows.append((name, limit, *numbers, late, size))
    names = [
        "estimator",
        "threshold",
        "recorded_call",
        "estimated_call",
        "calls_late",
        "tokens_at_estimate",
    ]
    return pd.DataFrame(rows, columns=names).astype(
        {n: "string" if n == "estimator" else "Int64" for n in names}
    )


def _find_first_true(flags: pd.Series[bool]) -> int | None:
    positions = np.flatnonzero(flags.to_numpy())
    return int(positions[0]) if len(positions) else None


# -- display --------------------------------------------------------------------------------------

_MORE_FRAMES = (
    ".detail has the tokens of each kind of content, .triggers each threshold, .calls each prompt."
)
_MAX_KINDS = 4
"""Kinds of content that have a column, those with most recorded tokens."""


def _display_calibration(result: EstimatorErrors) -> AnnotatedTable:
    sizes = result.kinds.groupby("kind")["recorded_tokens"].max().drop(_ALL_CONTENT)
    kinds = list(sizes[sizes > 0].sort_values(ascending=False).index[:_MAX_KINDS])
    threshold = None if result.triggers.empty else int(result.triggers["threshold"].max())
    heads = [
        Column("estimator", number=False, firm=True),
        Column("error", "of all content: below zero the estimate is too low"),
        *(Column(kind, f"error of {kind} alone", spare=True) for kind in kinds),
    ]
    if threshold is not None:
        heads.append(Column("calls late", f"of a trigger at {threshold:,} tokens"))
    names = sorted(result.estimators, key=lambda name: _distance(result.error(name)))
    rows = []
    for name in names:
        cells = [_error_cell(result.error(name, kind)) for kind in (_ALL_CONTENT, *kinds)]
        if threshold is not None:
            cells.append(_late_cell(_find_trigger(result, name, threshold)))
        rows.append((Cell(name), *cells))
    return AnnotatedTable(
        _describe_closest(result, names, threshold),
        Table(tuple(heads), tuple(rows)),
        (_MORE_FRAMES,),
    )


def _describe_closest(result: EstimatorErrors, names: list[str], threshold: int | None) -> str:
    """Return which estimator is closest, and when a trigger on it fires."""
    calls, best = pluralize(len(result.calls), "call"), names[0]
    if pd.isna(result.error(best)):
        return f"No prompt of these {calls} grew without an edit: the errors are unknown."
    out = f"{best} is closest to the provider's counts: {_describe_error(result.error(best))}"
    out += f" over {calls}"
    worst = names[-1]
    if worst != best and not pd.isna(result.error(worst)):
        out += f"; {worst} is furthest, {_describe_error(result.error(worst))}"
    out += "."
    if threshold is None:
        return out
    late = _find_trigger(result, best, threshold)["calls_late"]
    trigger = f" A trigger at {threshold:,} tokens by {best}"
    if pd.isna(late):
        return f"{out}{trigger} never fires in this session."
    when = "in time" if late == 0 else f"{pluralize(abs(int(late)), 'call')} "
    return f"{out}{trigger} fires {when}{'' if late == 0 else 'late' if late > 0 else 'early'}."


def _find_trigger(result: EstimatorErrors, name: str, threshold: int) -> pd.Series:
    of_name = result.triggers[result.triggers["estimator"] == name]
    return of_name[of_name["threshold"] == threshold].iloc[0]


def _distance(error: float) -> float:
    return float("inf") if pd.isna(error) else abs(error)


def _describe_error(error: float) -> str:
    if abs(error) < 0.005:
        return "within 1 %"
    return f"{format_percent(abs(error))} too {'low' if error < 0 else 'high'}"


def _error_cell(error: float) -> Cell:
    return Cell("" if pd.isna(error) else format_change(error), None if pd.isna(error) else error)


def _late_cell(trigger: pd.Series) -> Cell:
    late = trigger["calls_late"]
    return Cell("never") if pd.isna(late) else Cell(f"{late:,}", float(late))
