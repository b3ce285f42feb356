"""Summarisers without a model (extractive, fixed size, share of the input, recorded) and the
passage they are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from ctxkit._internal.lazy import public_dir
from ctxkit._internal.redaction import failure_text
from ctxkit.errors import BadArguments, ModelError, did_you_mean, short_repr
from ctxkit.policies.base import Validated
from ctxkit.policies.texts import extracts, line_index
from ctxkit.policies.texts.extracts import parse_focus as focus_of
from ctxkit.session.messages import ERROR, Message, Text, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.policies.base import Positive, PositiveShare, Proportion
    from ctxkit.policies.history.history import History

__all__ = ["Extractive", "Fixed", "Passage", "RecordedSummary", "ShareOfInput", "parse_summariser"]
__dir__ = public_dir(__all__)


@dataclass(frozen=True)
class Passage:
    """What is to be summarised: messages start..before of a history, but those that stay."""

    history: History
    before: int
    """One past the last position."""
    start: int = 0
    limit: int | None = None
    """Most tokens that the summary may have; None: the summariser's own."""
    instructions: str = ""
    """What to look at, in plain words."""

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Positions of the messages that will go."""
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
        """The messages that will go; made when asked for."""
        history, places = self.history, self.places
        nh, said = history.head.size, history.log.messages
        edited = int(places.searchsorted(nh))
        rows = (places[edited:] + (history.lo - nh)).tolist()
        tail = [said[r] for r in rows]
        return (*[history[p] for p in places[:edited].tolist()], *tail)

    @property
    def previous(self) -> Message | None:
        """The newest summary among them."""
        return next((m for m in reversed(self.messages) if m.role == "summary"), None)

    @property
    def focus(self) -> str:
        """What the user wants the summary to look at, of the instructions."""
        found = _FOCUS.findall(self.instructions) if self.instructions else ()
        return "\n".join(last or inner for last, inner in found)

    @cached_property
    def tokens(self) -> int:
        """Tokens of all that stands between the two positions."""
        return self.history.before(self.before) - self.history.before(self.start)


_FOCUS = re.compile(r"Additional focus:(?:\n(.+)| (.+?)(?=\n\n|\Z))", re.DOTALL)
"""Where a focus stands in what `identifiers.instructions` and `summary_passages.focused` write."""

Summariser = Callable[[Passage], Message | str | int | None]
"""Returns a text, a message, or only its size in tokens; None or an empty text is a failure."""


@dataclass(frozen=True)
class Fixed(Validated):
    """A summary of a fixed size, without text."""

    tokens: Positive = 1500
    name = "fixed"
    needs_model = False

    def __call__(self, passage: Passage) -> int:
        """Return the size, or the passage's limit where that is smaller."""
        return self.tokens if passage.limit is None else min(self.tokens, passage.limit)


@dataclass(frozen=True)
class ShareOfInput(Validated):
    """A summary as large as a share of its input, with a least and a most size, without text."""

    share: PositiveShare = 0.1
    cap: Positive = 4000
    floor: Positive = 100
    name = "share"
    needs_model = False

    def __post_init__(self) -> None:
        if self.floor > self.cap:
            raise BadArguments(f"A summary's floor lies between 1 and its cap; got {self}.")

    def __call__(self, passage: Passage) -> int:
        """Return ``min(cap, max(floor, share x input))``, never more than the passage's limit."""
        size = min(self.cap, max(self.floor, round(self.share * passage.tokens)))
        return size if passage.limit is None else min(size, passage.limit)


@dataclass(frozen=True)
class RecordedSummary:
    """The recorded summary where the cut is a recorded one's, else another summariser's."""

    otherwise: Summariser | None = None
    """None: the extractive one."""
    name = "recorded"
    needs_model = False

    def __call__(self, passage: Passage) -> Message | str | int | None:
        """Return the recorded summary message, or the other summariser's."""
        history, log = passage.history, passage.history.log
        row = history.row(passage.before) if passage.before < len(history) else history.hi
        for call, edit in log.recorded:
            if call > history.call:
                break
            gone = [log.index[t] for t in edit.targets if t in log.index]
            if edit.kind == "summarised" and edit.inserted and gone and max(gone) + 1 == row:
                return edit.inserted[0]
        return (self.otherwise or Extractive())(passage)


@dataclass(frozen=True)
class Extractive(Validated):
    """The most telling sentences, in their order, each tagged with who said it: deterministic,
    offline, no model.

    A sentence weighs the information of its words in this passage (TF-IDF), more where it holds a
    cue (must, never, a path, an error) and where it is recent; sentences that repeat a chosen one
    weigh less (maximal marginal relevance). More than half of the room is the user's. With a focus,
    half of the room is first for what is near it, and a last line says how much of that was kept
    (`focuses`). Of a message only what a window could hold is read (`sentences.READ`).
    """

    tokens: Positive = 1500
    """Most tokens; a passage's own limit goes first."""
    share: PositiveShare = 0.3
    """Most tokens as a share of the passage."""
    user: Proportion = 0.55
    """Share of the room for what the user said."""
    name = "extractive"
    needs_model = False

    def __call__(self, passage: Passage) -> str:
        """Return the extract, one line a sentence; empty where nothing is readable."""
        room = min(self.tokens, max(int(self.share * passage.tokens), 40))
        room = room if passage.limit is None else min(room, passage.limit)
        focus = focus_of(passage.focus)
        known, parts, among = _passage_parts(passage, focused=focus is not None)
        return extracts.write_extract(
            known, parts, extracts.ExtractOptions(3.5 * room, self.user, focus), among
        )

    def extract(self, messages: Iterable[Message], tokens: int) -> str:
        """Return the extract of messages, 3.5 characters a token; empty only where they are."""
        messages = list(messages)
        if not messages:
            return ""
        known = line_index.index_for_messages(messages)
        parts = known.parts(messages)
        line_index.keep_last_index(known)
        return extracts.write_extract(
            known, parts, extracts.ExtractOptions(3.5 * tokens, self.user), parts
        )


def _passage_parts(
    passage: Passage, *, focused: bool
) -> tuple[line_index.LineIndex, NDArray[Any], NDArray[Any]]:
    """Return the lines of a session, the passage as parts of them, and all said so far."""
    history, places = passage.history, passage.places
    head, (known, column) = history.head, line_index.index_for_log(history.log)
    with known.lock:
        edited = int(places.searchsorted(head.size)) if head.size else 0
        rows = places[edited:] + (history.lo - head.size)
        parts = column.upto(int(rows[-1]) + 1)[rows] if len(rows) else rows
        if edited:
            made = known.made([history[p] for p in places[:edited].tolist()])
            parts = np.concatenate((made, parts), dtype=np.int32)
        return known, parts, column.upto(history.hi) if focused else parts


_MUST = "it must return text, a message or a number of tokens"


def validate_summary(made: Any) -> Message | str | int:
    """Return what a summariser made: a text, a message or a number of tokens.

    Raises:
        ModelError: it is nothing, or none of these.
    """
    if hasattr(made, "__index__") and not isinstance(made, bool) and made >= 0:
        return index(made)
    if made is None or (
        isinstance(made, (str, Message))
        and not summary_text(made).strip()
        and not _has_other_parts(made)
    ):
        raise ModelError(f"The summariser returned nothing; {_MUST}.")
    if not isinstance(made, (str, Message)):
        raise ModelError(f"The summariser returned {short_repr(made)}; {_MUST}.")
    return made


def written_instead(made: Message | str, error: object) -> Message:
    """Return a summary that stands in for one that failed as a message that says why."""
    message = Message(role="summary", parts=(Text(made),)) if isinstance(made, str) else made
    return structs.replace(message, details={**message.details, ERROR: failure_text(error)})


def summary_text(made: Message | str | int | None) -> str:
    """Return what a summariser said in words: nothing where it knows a size alone."""
    if isinstance(made, Message):
        return plain_text(made)
    return made if isinstance(made, str) else ""


def _has_other_parts(made: Message | str) -> bool:
    return isinstance(made, Message) and any(not isinstance(p, Text) for p in made.parts)


def may_ask(summariser: object) -> bool:
    """Say whether a summariser may ask a model: any function may, the kit's own say so."""
    return bool(getattr(summariser, "needs_model", True))


_KINDS = {
    "extractive": Extractive,
    "fixed": Fixed,
    "share": ShareOfInput,
    "recorded": RecordedSummary,
}


def parse_summariser(words: str) -> Summariser:
    """Return a summariser by name and numbers: `extractive:800`, `fixed:1500`, `share:0.1:4000`,
    `recorded`.

    Raises:
        BadArguments: there is no such summariser, or its numbers do not fit.
    """
    name, *numbers = words.strip().split(":")
    kind = _KINDS.get(name.strip().lower())
    if kind is None:
        raise BadArguments(
            f"No summariser is called {name!r}; there are"
            f" {', '.join(_KINDS)}.{did_you_mean(name, _KINDS)}"
        )
    try:
        values = [float(n) if "." in n else int(n) for n in numbers]
        return kind(*values)  # type: ignore[no-any-return]
    except (ValueError, TypeError):
        raise BadArguments(
            f"Summariser {words!r} has numbers that it cannot take; write it as fixed:1500."
        ) from None
