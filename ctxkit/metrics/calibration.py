"""Error of token estimators against recorded usage, by kind of content and for triggers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ctxkit._internal.formatting import escape_html, sanitize_line
from ctxkit.errors import BadArguments
from ctxkit.formats.inputs import accepts_session
from ctxkit.session.messages import Image, Message, SizeOnly, Text, Thinking, ToolCall
from ctxkit.tokens import TokenCounter, can_count_exactly, get_counter
from ctxkit.tokens.sizes import MessageSlots, iter_usage_anchors, measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.session import ListPrefix, Session
    from ctxkit.tokens.sizes import MessageSizes, UsageAnchor

THRESHOLD_SHARES = (0.25, 0.5, 0.75, 0.9)
"""Thresholds where none are given: these shares of the largest recorded prompt."""
_NAMES = ("chars/4", "pi", "ai", "tyrum", "pulse_coder", "fuseraft")
_WHOLE = "all content"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Estimates of one session against what its provider counted; shows itself as two tables."""

    session: str
    kinds: pd.DataFrame
    """One row for each estimator and kind of content: `estimator kind recorded_tokens
    estimated_tokens error samples_n source`. `error` is estimated / recorded - 1: -0.25 is a
    quarter too low. The kind "all content" is what prompts grew by between calls (`source`
    "recorded"); of the others the size is "derived": a reply is its output tokens, what came after
    it the rest of the growth. Kinds overlap with the whole and need not add up to it."""
    triggers: pd.DataFrame
    """One row for each estimator and threshold: `estimator threshold recorded_call estimated_call
    calls_late tokens_at_estimate`: the first call whose prompt is at or above it by the provider's
    count and by the estimate; how many calls later a trigger on the estimate fires; how large the
    prompt really was then. Missing: never."""
    calls: pd.DataFrame
    """One row for each call with a recorded prompt: `call recorded`, and a column for each
    estimator: what the view weighs by the estimate, plus the part that no log shows (system prompt,
    tool schemas), which is the same for all."""
    fixed: int | None
    """That part, in tokens."""

    @property
    def estimators(self) -> list[str]:
        """Names, in the order given."""
        return [str(name) for name in self.calls.columns[2:]]

    def error(self, estimator: str, kind: str = _WHOLE) -> float:
        """Return estimated / recorded - 1; NaN where the session says nothing of that kind.

        Raises:
            BadArguments: there is no such estimator.
        """
        if estimator not in self.estimators:
            raise BadArguments(
                f"{estimator!r} was not calibrated; there are {', '.join(self.estimators)}."
            )
        found = self.kinds[(self.kinds["estimator"] == estimator) & (self.kinds["kind"] == kind)][
            "error"
        ]
        return float(found.iloc[0]) if len(found) else float("nan")

    def table(self) -> pd.DataFrame:
        """Return the errors as a table: one row an estimator, one column a kind of content."""
        kinds = list(dict.fromkeys(self.kinds["kind"]))
        return self.kinds.pivot_table(
            index="estimator", columns="kind", values="error", sort=False
        ).reindex(columns=kinds)

    def __repr__(self) -> str:
        errors = ((name, self.error(name)) for name in self.estimators)
        told = ", ".join(name + (" unknown" if pd.isna(e) else f" {e:+.0%}") for name, e in errors)
        return f"<Calibration of {sanitize_line(self.session, 40)}: {told}>"

    def _repr_html_(self) -> str:
        errors = self.table().map(lambda e: "" if pd.isna(e) else f"{e:+.0%}")
        return (
            f"<p>Estimates of session {escape_html(self.session, 80)} against the provider's counts"
            f" ({len(self.calls)} calls): error by kind of content, and calls by which a trigger"
            " fires late.</p>"
            + errors.to_html(escape=True)
            + self.triggers.to_html(escape=True, index=False)
        )


@accepts_session
def calibrate(
    session: Session,
    estimators: Iterable[str | TokenCounter] | None = None,
    *,
    thresholds: Sequence[int] | None = None,
) -> Calibration:
    """Return how far estimates are from the provider's numbers of a session.

    Args:
        session: any session that recorded usage, the path of a log, or a list of messages.
        estimators: counters or their names; None takes those of real systems, and the exact
            o200k_base where its vocabulary is here.
        thresholds: prompt sizes at which a trigger would fire; None takes 25, 50, 75 and 90 % of
            the largest.

    Raises:
        BadArguments: no session, one without two recorded prompts, or an estimator that does not
            exist.
    """
    counters = [
        get_counter(e) if isinstance(e, str) else e
        for e in estimators or (*_NAMES, *(["exact"] * can_count_exactly()))
    ]
    slots = MessageSlots(session, counters[0])
    steps = list(iter_usage_anchors(session, slots))
    if len(steps) < 2:
        raise BadArguments(
            f"Session {session.id!r} records fewer than two prompt sizes: nothing to calibrate"
            " against."
        )
    counted = _counted(slots, counters)
    sized = measure_sizes(session, counters[0])
    calls = _calls(session, sized, steps, counted)
    peak = int(calls["recorded"].max())
    limits = (
        [round(share * peak) for share in THRESHOLD_SHARES] if thresholds is None else thresholds
    )
    limits = list(dict.fromkeys(limits))  # the shares of a small prompt can be one number
    return Calibration(
        session=session.id,
        kinds=_kinds(_samples(slots, steps), counted),
        triggers=_triggers(calls, limits),
        calls=calls,
        fixed=sized.fixed,
    )


class _Counted(NamedTuple):
    """What one estimator makes of a session's messages."""

    name: str
    tokens: dict[int, int]
    """By identity of the message: each is counted once."""

    def sum(self, messages: Iterable[Message]) -> int:
        tokens = self.tokens
        return sum([tokens[id(m)] for m in messages])


def _counted(slots: MessageSlots, counters: Sequence[TokenCounter]) -> list[_Counted]:
    return [_Counted(c.name, {id(m): c.message(m) for m in slots.messages}) for c in counters]


# -- by kind of content
# ------------------------------------------------------------------------------------------------


class _SizedMessages(NamedTuple):
    """Messages whose size together the provider told."""

    kind: str
    messages: tuple[Message, ...]
    tokens: int
    source: str


def _samples(slots: MessageSlots, steps: list[UsageAnchor]) -> list[_SizedMessages]:
    out: list[_SizedMessages] = []
    for step in steps:
        grown = step.prompt - step.before
        if step.kind != "growth" or grown <= 0:
            continue
        messages = tuple(slots.messages[i] for i in step.shown)
        out.append(_SizedMessages(_WHOLE, messages, grown, "recorded"))
        out += _split_growth(messages, grown)
    return out


def _split_growth(messages: tuple[Message, ...], grown: int) -> list[_SizedMessages]:
    """A reply by its output tokens, what followed by the rest; nothing where hidden reasoning blurs
    the two.
    """
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
    out = [_SizedMessages(_reply_kind(replies[0]), tuple(replies), usage.output_tokens, "derived")]
    if rest and grown > usage.output_tokens:
        roles = {m.role for m in rest}
        kind = (
            {"tool": "tool results", "user": "user input"}.get(roles.pop(), "other")
            if len(roles) == 1
            else "mixed"
        )
        out.append(_SizedMessages(kind, rest, grown - usage.output_tokens, "derived"))
    return out


def _has_hidden_reasoning(message: Message) -> bool:
    return any(
        isinstance(p, Thinking) and (p.hidden or p.signature or p.text) for p in message.parts
    )


def _reply_kind(message: Message) -> str:
    """The kind of a reply: what most of it is."""
    words = sum(len(p.text) for p in message.parts if isinstance(p, Text))
    asked = sum(len(p.raw or str(p.arguments)) for p in message.parts if isinstance(p, ToolCall))
    if any(isinstance(p, (SizeOnly, Image)) for p in message.parts):
        return "other"
    return "tool calls" if asked > words else "replies"


def _kinds(samples: list[_SizedMessages], counted: Sequence[_Counted]) -> pd.DataFrame:
    order = [_WHOLE, *sorted({s.kind for s in samples} - {_WHOLE})]
    rows = []
    for counter in counted:
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


# -- the moment a trigger fires
# ----------------------------------------------------------------------------------------


def _calls(
    session: Session, sized: MessageSizes, steps: list[UsageAnchor], counted: Sequence[_Counted]
) -> pd.DataFrame:
    recorded = {s.call: s.prompt for s in steps}
    rows = []
    before: ListPrefix[Message] | None = None
    totals = [0] * len(counted)
    for call, shown in session.views():
        new = shown.added_since(before)
        if new is None:  # an edit came between: all that is shown is summed anew
            new, totals = shown, [0] * len(counted)
        totals = [total + of.sum(new) for total, of in zip(totals, counted, strict=True)]
        before = shown
        if call.index in recorded:
            fixed = sized.fixed_at[call.index]
            rows.append((call.index, recorded[call.index], *(fixed + n for n in totals)))
    names = ("call", "recorded", *(of.name for of in counted))
    return pd.DataFrame(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _triggers(calls: pd.DataFrame, limits: Sequence[int]) -> pd.DataFrame:
    rows = []
    for name in calls.columns[2:]:
        for limit in limits:
            truly, guessed = (_first_true(calls[column] >= limit) for column in ("recorded", name))
            late = None if truly is None or guessed is None else guessed - truly
            size = None if guessed is None else int(calls["recorded"].iloc[guessed])
            numbers = [None if i is None else int(calls["call"].iloc[i]) for i in (truly, guessed)]
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


def _first_true(truths: pd.Series[bool]) -> int | None:
    found = np.flatnonzero(truths.to_numpy())
    return int(found[0]) if len(found) else None
