"""Put a summary in the place of all but the newest messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import chain
from operator import index
from typing import TYPE_CHECKING, Any, Self

from ctxkit.errors import BadArguments, CtxkitError, ModelError
from ctxkit.history import SUMMARY, SYSTEM, USER
from ctxkit.messages import Message, Text
from ctxkit.policies import waits
from ctxkit.policies.setting import Setting, at_least, share
from ctxkit.policies.summarisers import Extractive, Fixed, Passage, RecordedSummary, ShareOfInput
from ctxkit.texts import contents, identifiers, records, summary_passages

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import History, Log
    from ctxkit.texts.identifiers import Identifiers
    from ctxkit.tokens import Room

LOCAL = (Extractive, Fixed, RecordedSummary, ShareOfInput)
"""Summarisers that answer at once and cannot be told anything: neither timed nor audited."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(Setting):
    """Summarise what is old; keep the newest tokens, turns or messages as they are.

    The earlier summary is among what is summarised (rolling), so there is never more than one.
    Where no summary comes about, `otherwise` writes one, or a ModelError leaves and the history
    stays as it was: nothing is lost silently.
    """

    keep_tokens: int | None = None
    """Newest tokens to keep (20,000 where nothing else is said)."""
    keep_turns: int | None = None
    """Newest turns to keep, each from its user message on."""
    keep_messages: int | None = None
    """Newest messages to keep."""
    keep_share: float | None = None
    """Newest tokens to keep, as a share of the window."""
    split_turns: bool = True
    """Whether the cut may fall inside a turn; else the whole turn is kept."""
    apart: bool = True
    """Whether the head of a split turn has a summary of its own."""
    estimated: bool = False
    """Count in the system's own measure instead of the bill's."""
    summariser: Any = None
    """Writes the summary, ``(passage) -> text``; None: the rules' own."""
    limit: int | None = None
    """Most tokens of the summary."""
    split_limit: int | None = None
    """Most tokens of the summary of a turn's head."""
    instructions: str = ""
    """What every summariser that listens is told."""
    sections: tuple[str, ...] = ()
    """Headings that the summary must have."""
    identifiers: Identifiers = "off"
    """Tell the summariser to keep identifiers exactly: `strict`, `off`, or `custom` with
    `identifier_instructions`.
    """
    identifier_instructions: str = ""
    """What it is told with `custom`."""
    focus: str = ""
    """What the user wants the summary to look at."""
    retries: int = 0
    """How often a summary that lost sections, identifiers or the last request is asked
    for again.
    """
    seconds: float | None = None
    """Seconds that the summariser may take."""
    prefix: str = ""
    """What the summary message begins with, unless the summary begins so itself."""
    file_lists: bool = False
    """Append the files that were read and changed, as Pi does."""
    otherwise: Any = None
    """Writes the summary where the summariser fails: ``(passage) -> text``."""
    must_shrink: bool = True
    """Change nothing where the result would not be smaller."""
    summaries_stay: bool = False
    """Earlier summaries stay: the new one stands behind them."""
    request_stays: bool = False
    """The first request stays, with what stands before it."""

    def __post_init__(self) -> None:
        at_least(self, 0, "keep_tokens", "retries")
        at_least(self, 1, "keep_turns", "keep_messages", "limit", "split_limit")
        share(self, "keep_share")
        given = [
            n
            for n in ("keep_tokens", "keep_turns", "keep_messages", "keep_share")
            if getattr(self, n) is not None
        ]
        if len(given) > 1:
            raise BadArguments(
                f"Summary keeps by one measure: give {' or '.join(given)}, not both."
            )
        if self.identifiers not in ("strict", "off", "custom"):
            raise BadArguments(
                f"An identifier policy is strict, off or custom, not {self.identifiers!r}."
            )

    @property
    def keeps(self) -> int | None:
        """Tokens that are kept at least, where that is how it keeps."""
        if self.keep_tokens is not None:
            return self.keep_tokens
        others = (self.keep_turns, self.keep_messages, self.keep_share)
        return 20_000 if all(o is None for o in others) else None

    @property
    def maker(self) -> Any:
        """Who writes the summary: the extractive one, where none was given or lent."""
        return self.summariser or Extractive()

    def using(self, summariser: Any) -> Self:
        """Return the policy with a summariser, where it has none of its own."""
        return self if self.summariser is not None else replace(self, summariser=summariser)

    def focused(self, focus: str) -> Self:
        """Return the policy with what the user wants the summary to look at."""
        return replace(self, focus=focus)

    def __call__(self, history: History, room: Room) -> History:
        """Return the history with its old part summarised.

        Raises:
            ModelError: no summary came about, and there is no other way to make one.
        """
        start, first = self.front(history), self.cut(history, room)
        if first <= start or not anything(history, first, start):
            return history
        made = self.written(history, first)
        why = "between the beginning and what is kept" if start else "older than what is kept"
        new = history.summarise(first, made, why, start=start, method="summary")
        return history if self.must_shrink and new.tokens >= history.tokens else new

    # -- where
    # ----------------------------------------------------------------------------------------------

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position, from one on, that may be summarised."""
        if self.request_stays:
            asked = history.next(first, "user")
            if 0 <= asked < len(history) - 1:
                first = max(first, history.safe(asked + 1))
        if self.summaries_stay:
            first = leading(history, first)
        return first

    def cut(self, history: History, room: Room) -> int:
        """Return the first position that is kept; 0 where nothing can be cut."""
        if self.keep_turns is not None:
            return history.safe_before(max(history.nth_last("user", self.keep_turns), 0))
        if self.keep_messages is not None:
            return self.at(history, max(len(history) - self.keep_messages, 0))
        keep = self.keep_tokens if self.keep_tokens is not None else 20_000
        if self.keep_share is not None:
            keep = int(room.limit * self.keep_share)
        return self.at(history, history.back(keep, estimated=self.estimated))

    def at(self, history: History, position: int) -> int:
        """Return a cut at or after a position, or at the start of its turn where turns are not
        split.
        """
        if not self.split_turns:
            return history.safe_before(max(turn_start(history, position), 0))
        return history.safe(position) or history.safe_before(
            min(position, max(len(history) - 1, 0))
        )

    def turn(self, history: History, first: int) -> int:
        """Return where the turn began that a cut splits; 0 where it splits none, or the
        first one.
        """
        if (
            not self.apart
            or not 0 < first < len(history)
            or history.item(first).role(history.log) == USER
        ):
            return 0
        return max(turn_start(history, first), 0)

    # -- what
    # ----------------------------------------------------------------------------------------------

    def written(self, history: History, first: int) -> Message | str | int:
        """Return the summary of all before a position: its message, text or size."""
        maker = self.maker
        if isinstance(maker, Fixed):  # it reads nothing, and is of one size however turns are split
            parts = [Passage(history, first, 0, self.limit)]
        else:
            parts = self.behind(history, first)
        return self.joined([self.asked(maker, passage) for passage in parts], parts)

    def behind(self, history: History, first: int) -> list[Passage]:
        """Return the passages as far as they lie behind what stays in front."""
        start, parts = self.front(history), self.passages(history, first)
        return [
            p if p.start >= start else replace(p, start=start) for p in parts if p.before > start
        ]

    def passages(self, history: History, first: int) -> list[Passage]:
        """Return what is summarised: the old turns, and the head of a split one by itself."""
        told, turn = self.told(), self.turn(history, first)
        if not turn or not anything(history, turn):
            return [Passage(history, first, 0, self.limit, told)]
        return [
            Passage(history, turn, 0, self.limit, told),
            Passage(history, first, turn, self.split_limit or self.limit, told),
        ]

    def told(self) -> str:
        """Return what the summariser is told."""
        sections = (
            "Write these sections: " + ", ".join(self.sections) + "." if self.sections else ""
        )
        rest = identifiers.instructions(self.identifiers, self.identifier_instructions, self.focus)
        return "\n\n".join(t for t in (self.instructions, sections, rest) if t)

    def joined(self, made: list[Message | str | int], parts: list[Passage]) -> Message | str | int:
        """Return one summary of the old turns' and the split turn's."""
        if len(made) == 1 and not isinstance(made[0], str):
            return made[0]
        if any(isinstance(m, int) for m in made):
            return sum(
                m if isinstance(m, int) else parts[0].history.log.counter(_text(m)) for m in made
            )
        text = "\n\n---\n\n**Turn Context (split turn):**\n\n".join(map(_text, made))
        if self.file_lists:
            found = (records.of_each(p.history, p.places, records.files) for p in parts)
            text += records.file_lists(chain.from_iterable(found))
        return text if text.startswith(self.prefix) else self.prefix + text

    def asked(self, maker: Callable[[Passage], Any], passage: Passage) -> Message | str | int:
        """Return what a summariser makes of a passage, asked again where the audit finds something
        missing.
        """
        try:
            made = self._once(maker, passage)
            for _ in range(0 if isinstance(maker, LOCAL) else self.retries):
                missing = self.audit(made, passage)
                if not missing:
                    break
                again = f"{passage.instructions}\n\nThe last attempt lacked: {'; '.join(missing)}."
                made = self._once(maker, replace(passage, instructions=again))
        except (CtxkitError, OSError, ValueError, RuntimeError) as error:
            if self.otherwise is None:
                raise (
                    error
                    if isinstance(error, ModelError)
                    else ModelError(f"No summary was made: {error}")
                ) from error
            made = answer(self.otherwise(replace(passage, instructions=f"{error}")))
        return made

    def _once(self, maker: Callable[[Passage], Any], passage: Passage) -> Message | str | int:
        if self.seconds is None or isinstance(maker, LOCAL):
            made = maker(passage)
        else:
            made = waits.within(self.seconds, maker, passage)
        return answer(made)

    def audit(self, made: Message | str | int, passage: Passage) -> tuple[str, ...]:
        """Return what a summary lacks: sections, identifiers (with `strict`), the last request."""
        if isinstance(made, int):
            return ()
        texts = [summary_passages.plain(m) for m in passage.messages]
        asks = [summary_passages.plain(m) for m in passage.messages if m.role == "user"]
        strict = self.identifiers == "strict"
        names = identifiers.exact(texts) if strict else ()
        ask = asks[-1] if asks else ""
        return identifiers.audit(
            _text(made), sections=self.sections, names=names, ask=ask, strict=strict
        )


def answer(made: Any) -> Message | str | int:
    """Return what a summariser made: a text, a message or a number of tokens.

    Raises:
        ModelError: it is nothing, or none of these.
    """
    if hasattr(made, "__index__") and not isinstance(made, bool) and made >= 0:
        return index(made)
    if made is None or (
        isinstance(made, (str, Message)) and not _text(made).strip() and not _sized(made)
    ):
        raise ModelError("The summariser returned nothing; the history is kept as it was.")
    if not isinstance(made, (str, Message)):
        raise ModelError(
            f"The summariser returned {made!r:.80}; it must return text, a message or a number of"
            " tokens. The history is kept as it was."
        )
    return made


def turn_start(history: History, position: int) -> int:
    """Return the position of the last user message at or before a position; -1 where
    there is none.
    """
    head, log = history.head, history.log
    if position >= head.size:
        rows = log.of_role[USER]
        at = bisect_right(rows, history.lo + position - head.size) - 1
        if at >= 0 and rows[at] >= history.lo:
            return head.size + rows[at] - history.lo
    return next(
        (p for p in range(min(position, head.size - 1), -1, -1) if head.items[p].role(log) == USER),
        -1,
    )


def boundary(history: History, *, waiting: bool = False) -> int:
    """Return the position of the first message said after the last compaction; 0 where there was
    none.

    Args:
        history: what is shown.
        waiting: the request that waited at that compaction counts as said after it.
    """
    if not history.since or not any(i.row < 0 for i in history.head.items):
        return 0
    row = history.log.upto[history.since]
    if waiting and asks_anew(history.log, row - 1, history.since):
        row -= 1
    return history.head.size + max(row - history.lo, 0)


def asks_anew(log: Log, row: int, call: int) -> bool:
    """Say whether a row is the user's request that a call is the first to be sent; commands are
    none.
    """
    return (
        row >= 0
        and log.roles[row] == USER
        and log.first_calls[row] == call
        and log.messages[row].kind != "bash"
    )


def leading(history: History, first: int = 0) -> int:
    """Return where the summaries and system messages end that stand at a position."""
    log, n = history.log, len(history)
    while first < n and history.item(first).role(log) in (SUMMARY, SYSTEM):
        first += 1
    return first


def anything(history: History, before: int, start: int = 0) -> bool:
    """Say whether anything but summaries, and what stays, lies at the positions start..before."""
    head, log = history.head, history.log
    if before > head.size:
        first, last = history.lo + max(start - head.size, 0), history.lo + before - head.size
        stays = log.stays_at(history.call)
        if last - first > bisect_left(stays, last) - bisect_left(stays, first):
            return True
    return any(i.row >= 0 and not i.stays(log, history.call) for i in head.items[start:before])


def _text(made: Message | str | int) -> str:
    if isinstance(made, Message):
        return contents.texts(made)
    return made if isinstance(made, str) else ""


def _sized(made: Message | str) -> bool:
    return isinstance(made, Message) and any(not isinstance(p, Text) for p in made.parts)
