"""Summarisers without a model: extractive, fixed size, share of the input, recorded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from ctxkit._internal.formatting_and_sanitizing import format_error_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments, ModelError, did_you_mean, short_repr
from ctxkit.policies.texts import message_lines_for_extracts as line_index
from ctxkit.policies.texts import tfidf_extracts_and_focus
from ctxkit.policies.texts.tfidf_extracts_and_focus import parse_focus as focus_of
from ctxkit.policies.validated_settings_and_scheduled_prunings import ValidatedSettings
from ctxkit.session.messages import (
    RECORD_CHARS_KEY,
    SUMMARY_ERROR_KEY,
    Message,
    Text,
    get_plain_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        Positive,
        PositiveShare,
        Proportion,
    )

__all__ = [
    "ExtractiveSummariser",
    "FixedSizeSummariser",
    "InputShareSummariser",
    "RecordedSummariser",
    "SummariserInput",
    "parse_summariser",
]
__dir__ = make_dunder_dir(__all__)


@dataclass(frozen=True)
class SummariserInput:
    """The messages to summarise: positions start..before of a history, without protected ones.

    Args:
        history: the history.
        before: one past the last position.
        start: the first position.
        limit: maximum tokens of the summary; None: the summariser decides.
        instructions: instructions for the summariser, in plain words.

    Example:
        >>> import ctxkit as ck
        >>> def list_requests(passage):
        ...     return " / ".join(m.text[:60] for m in passage.messages if m.role == "user")
        >>> rules = ck.policies.Rules(
        ...     "summary:keep_tokens=2000",
        ...     ck.policies.triggers.Above(4_000),
        ...     summariser=list_requests,
        ... )
        >>> len(ck.replay(ck.read(ck.samples.path("chat")), rules).edits)
        5
    """

    history: History
    before: int
    """One past the last position."""
    start: int = 0
    limit: int | None = None
    """Maximum tokens of the summary; None: the summariser decides."""
    instructions: str = ""
    """Instructions for the summariser, in plain words."""

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Positions of the messages that will be removed."""
        return tuple(self.places.tolist())

    @cached_property
    def places(self) -> NDArray[Any]:
        """The same positions as an array."""
        before = min(self.before, len(self.history))
        stays = self.history.front("stays", before)[self.start :]
        places: NDArray[Any] = (~stays).nonzero()[0]
        return places + self.start if self.start else places

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages that will be removed."""
        history, places = self.history, self.places
        nh, log_messages = history.head.size, history.log.messages
        edited = int(places.searchsorted(nh))
        rows = (places[edited:] + (history.lo - nh)).tolist()
        tail = [log_messages[r] for r in rows]
        return (*[history[p] for p in places[:edited].tolist()], *tail)

    @property
    def previous(self) -> Message | None:
        """The newest summary among them."""
        return next((m for m in reversed(self.messages) if m.role == "summary"), None)

    @property
    def focus(self) -> str:
        """The focus in the instructions: a topic that the summary should cover."""
        focuses = _FOCUS.findall(self.instructions) if self.instructions else ()
        return "\n".join(last or inner for last, inner in focuses)

    @cached_property
    def tokens(self) -> int:
        """Tokens of all messages between the two positions."""
        return self.history.before(self.before) - self.history.before(self.start)


_FOCUS = re.compile(r"Additional focus:(?:\n(.+)| (.+?)(?=\n\n|\Z))", re.DOTALL)
"""The focus, as `summary_prompts_and_audits` writes it into the instructions."""

Summariser = Callable[[SummariserInput], Message | str | int | None]
"""Returns a text, a message, or its size in tokens; None or an empty text is a failure."""


@dataclass(frozen=True)
class FixedSizeSummariser(ValidatedSettings):
    """A summary of a fixed size without text, for replays that only count tokens.

    Args:
        tokens: size of each summary.

    Example:
        >>> import ctxkit as ck
        >>> above, fixed = ck.policies.triggers.Above(4_000), FixedSizeSummariser(500)
        >>> rules = ck.policies.Rules("summary:keep_tokens=2000", above, summariser=fixed)
        >>> ck.replay(ck.read(ck.samples.path("chat")), rules).edits[0].tokens_after
        2726
    """

    tokens: Positive = 1500
    name = "fixed"
    needs_model = False

    def __call__(self, passage: SummariserInput) -> int:
        """Return the size in tokens, at most the limit of the passage."""
        return self.tokens if passage.limit is None else min(self.tokens, passage.limit)


@dataclass(frozen=True)
class InputShareSummariser(ValidatedSettings):
    """A summary without text whose size is a share of its input, between two bounds.

    Args:
        share: share of the input, above 0 and up to 1.
        cap: maximum tokens.
        floor: minimum tokens.

    Raises:
        BadArguments: the floor is above the cap.

    Example:
        >>> import ctxkit as ck
        >>> summariser = InputShareSummariser(share=0.2)
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("summary:keep_tokens=2000", above, summariser=summariser)
        >>> ck.replay(ck.read(ck.samples.path("chat")), rules).edits[0].tokens_after
        2733
    """

    share: PositiveShare = 0.1
    cap: Positive = 4000
    floor: Positive = 100
    name = "share"
    needs_model = False

    def __post_init__(self) -> None:
        if self.floor > self.cap:
            raise BadArguments(f"A summary's floor lies between 1 and its cap; got {self}.")

    def __call__(self, passage: SummariserInput) -> int:
        """Return ``min(cap, max(floor, share x input))`` tokens, at most the passage's limit."""
        size = min(self.cap, max(self.floor, round(self.share * passage.tokens)))
        return size if passage.limit is None else min(size, passage.limit)


@dataclass(frozen=True)
class RecordedSummariser:
    """The recorded summary where the cut is a recorded one, else another summariser's.

    Args:
        otherwise: the other summariser; None: the extractive one.

    Example:
        >>> import ctxkit as ck
        >>> research = ck.read(ck.samples.path("research"))
        >>> rules = ck.policies.Rules(
        ...     "summary", ck.policies.triggers.Above(30_000), summariser=RecordedSummariser()
        ... )
        >>> len(ck.replay(research, rules).edits)
        12
    """

    otherwise: Summariser | None = None
    """The other summariser; None: the extractive one."""
    name = "recorded"
    needs_model = False

    def __call__(self, passage: SummariserInput) -> Message | str | int | None:
        """Return the recorded summary message, or the other summariser's result."""
        history, log = passage.history, passage.history.log
        end_row = history.row(passage.before)  # one past the last row for a cut at the end
        for call, edit in log.recorded:
            if call > history.call:
                break
            # The recorded summary fits if it ends at the same row as this cut.
            removed_rows = [log.index[t] for t in edit.targets if t in log.index]
            is_same_cut = removed_rows and max(removed_rows) + 1 == end_row
            if edit.kind == "summarised" and edit.inserted and is_same_cut:
                return edit.inserted[0]
        return (self.otherwise or ExtractiveSummariser())(passage)


@dataclass(frozen=True)
class ExtractiveSummariser(ValidatedSettings):
    """An extractive summary: the most informative sentences, in order, tagged with their role.

    It needs no model and is deterministic. A sentence is weighted by the TF-IDF of its words, with
    a bonus for cues (must, never, a path, an error) and for recency, and chosen by maximal marginal
    relevance: one that repeats a chosen sentence counts less. More than half of the budget is for
    user messages. With a focus, half of the budget goes first to sentences near it, and a last line
    reports how many of those are included.

    Args:
        tokens: maximum tokens of the summary; the limit of a passage takes precedence.
        share: maximum tokens as a share of the passage, above 0 and up to 1.
        user: share of the budget for user messages, 0 to 1.

    Example:
        >>> import ctxkit as ck
        >>> chat = ck.read(ck.samples.path("chat"))
        >>> ExtractiveSummariser().extract(chat.messages[:20], tokens=40).splitlines()[0]
        'User: Help me to plan.'
    """

    tokens: Positive = 1500
    """Maximum tokens; the limit of a passage takes precedence."""
    share: PositiveShare = 0.3
    """Maximum tokens as a share of the passage."""
    user: Proportion = 0.55
    """Share of the budget for user messages."""
    name = "extractive"
    needs_model = False

    def __call__(self, passage: SummariserInput) -> str:
        """Return the extract, one sentence per line; empty where there is no text."""
        # At least 40 tokens, even of a short passage; 3.5 characters count as one token.
        budget = min(self.tokens, max(int(self.share * passage.tokens), 40))
        budget = budget if passage.limit is None else min(budget, passage.limit)
        focus = focus_of(passage.focus)
        lines, parts, among = _passage_parts(passage, focused=focus is not None)
        return tfidf_extracts_and_focus.write_extract(
            lines,
            parts,
            tfidf_extracts_and_focus.ExtractOptions(3.5 * budget, self.user, focus),
            among,
        )

    def extract(self, messages: Iterable[Message], tokens: int) -> str:
        """Return the extract of messages, at 3.5 characters per token.

        Args:
            messages: the messages to extract sentences from, in order.
            tokens: maximum size of the extract.
        """
        messages = list(messages)
        if not messages:
            return ""
        lines = line_index.index_for_messages(messages)
        parts = lines.parts(messages)
        line_index.cache_last_index(lines)
        return tfidf_extracts_and_focus.write_extract(
            lines, parts, tfidf_extracts_and_focus.ExtractOptions(3.5 * tokens, self.user), parts
        )


def _passage_parts(
    passage: SummariserInput, *, focused: bool
) -> tuple[line_index.LineIndex, NDArray[Any], NDArray[Any]]:
    """Return the line index of a log, the parts of the passage, and all parts so far."""
    history, places = passage.history, passage.places
    head, (lines, column) = history.head, line_index.index_for_log(history.log)
    with lines.lock:
        # Rows of the log have their parts in a column; messages of the edited head are looked up.
        edited = int(places.searchsorted(head.size)) if head.size else 0
        rows = places[edited:] + (history.lo - head.size)
        parts = column.upto(int(rows[-1]) + 1)[rows] if len(rows) else rows
        if edited:
            edited_parts = lines.parts_outside_log([history[p] for p in places[:edited].tolist()])
            parts = np.concatenate((edited_parts, parts), dtype=np.int32)
        return lines, parts, column.upto(history.hi) if focused else parts


_MUST = "it must return text, a message or a number of tokens"


def validate_summary(summary: Any) -> Message | str | int:
    """Return the result of a summariser: a text, a message or a number of tokens.

    Raises:
        ModelError: it is empty, or none of these.
    """
    if type(summary) is int and summary >= 0:  # what most sweeps ask for
        return summary
    if hasattr(summary, "__index__") and not isinstance(summary, bool) and summary >= 0:
        return index(summary)
    if summary is None or (
        isinstance(summary, (str, Message))
        and not get_summary_text(summary).strip()
        and not _has_other_parts(summary)
    ):
        raise ModelError(f"The summariser returned nothing; {_MUST}.")
    if not isinstance(summary, (str, Message)):
        raise ModelError(f"The summariser returned {short_repr(summary)}; {_MUST}.")
    return summary


def with_summary_error(summary: Message | str, error: object) -> Message:
    """Return a fallback summary as a message whose details hold the error.

    Args:
        summary: the text or message that stands in for the failed summary.
        error: why the summary failed: an exception or a sentence.
    """
    message = (
        Message(role="summary", parts=(Text(summary),)) if isinstance(summary, str) else summary
    )
    return structs.replace(
        message, details={**message.details, SUMMARY_ERROR_KEY: format_error_line(error)}
    )


def put_record_before_summary(record: str, text: str, separator: str) -> Message:
    """Return one summary: text computed from the record, then text that a model wrote.

    Args:
        record: the text computed from the record, which costs nothing.
        text: the text of the summariser; empty: there is none.
        separator: text between them, if there are both.
    """
    head = record + separator if record and text else record
    return Message(
        role="summary", parts=(Text(head + text),), details={RECORD_CHARS_KEY: len(head)}
    )


def get_summary_text(summary: Message | str | int | None) -> str:
    """Return the text of a summary; empty where only its size is known."""
    if isinstance(summary, Message):
        return get_plain_text(summary)
    return summary if isinstance(summary, str) else ""


def _has_other_parts(summary: Message | str) -> bool:
    return isinstance(summary, Message) and any(not isinstance(p, Text) for p in summary.parts)


def may_call_model(summariser: object) -> bool:
    """Return True where a summariser may call a model: `needs_model`, else True."""
    return bool(getattr(summariser, "needs_model", True))


_SUMMARISERS = {
    "extractive": ExtractiveSummariser,
    "fixed": FixedSizeSummariser,
    "share": InputShareSummariser,
    "recorded": RecordedSummariser,
}


def parse_summariser(words: str) -> Summariser:
    """Parse a summariser from its name and numbers: `extractive:800`, `share:0.1:4000`, `recorded`.

    Args:
        words: the name, and the first settings in order, joined by colons.

    Raises:
        BadArguments: there is no such summariser, or its numbers are invalid.

    Example:
        >>> parse_summariser("share:0.1:4000")
        InputShareSummariser(share=0.1, cap=4000, floor=100)
    """
    name, *numbers = words.strip().split(":")
    kind = _SUMMARISERS.get(name.strip().lower())
    if kind is None:
        raise BadArguments(
            f"No summariser is called {name!r}; there are"
            f" {', '.join(_SUMMARISERS)}.{did_you_mean(name, _SUMMARISERS)}"
        )
    try:
        values = [float(n) if "." in n else int(n) for n in numbers]
        return kind(*values)  # type: ignore[no-any-return]
    except (ValueError, TypeError):
        raise BadArguments(
            f"Summariser {words!r} has invalid numbers; write it as fixed:1500."
        ) from None
