"""Put a summary in the place of all but the newest messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Self

from ctxkit.errors import BadArguments, CtxkitError, ModelError, failure_text
from ctxkit.history import USER
from ctxkit.messages import ERROR, Message
from ctxkit.policies import waits
from ctxkit.policies.chain import Part
from ctxkit.policies.setting import Setting
from ctxkit.policies.summarisers import (
    Extractive,
    Fixed,
    Passage,
    RecordedSummary,
    ShareOfInput,
    answer,
    text_of,
    written_instead,
)
from ctxkit.policies.summary_places import anything, leading, turn_start
from ctxkit.texts import identifiers, records, summary_passages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.history import History
    from ctxkit.policies.setting import Natural, Positive, Proportion
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

    keep_tokens: Natural | None = None
    """Newest tokens to keep (20,000 where nothing else is said)."""
    keep_turns: Positive | None = None
    """Newest turns to keep, each from its user message on."""
    keep_messages: Positive | None = None
    """Newest messages to keep."""
    keep_share: Proportion | None = None
    """Newest tokens to keep, as a share of the window."""
    split_turns: bool = True
    """Whether the cut may fall inside a turn; else the whole turn is kept."""
    apart: bool = True
    """Whether the head of a split turn has a summary of its own."""
    estimated: bool = False
    """Count in the system's own measure instead of the bill's."""
    summariser: Any = None
    """Writes the summary, ``(passage) -> text``; None: the rules' own."""
    limit: Positive | None = None
    """Most tokens of the summary."""
    split_limit: Positive | None = None
    """Most tokens of the summary of a turn's head."""
    instructions: str = ""
    """What every summariser that listens is told."""
    sections: tuple[str, ...] = ()
    """Headings that the summary must have."""
    identifiers: Literal["strict", "off", "custom"] = "off"
    """Keep identifiers exactly: `strict`, `off`, or `custom` with `identifier_instructions`."""
    identifier_instructions: str = ""
    """What it is told with `custom`."""
    focus: str = ""
    """What the user wants the summary to look at."""
    retries: Natural = 0
    """How often a summary without sections, identifiers or the last request is asked anew."""
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
        measures = ("keep_tokens", "keep_turns", "keep_messages", "keep_share")
        given = [name for name in measures if getattr(self, name) is not None]
        if len(given) > 1:
            raise BadArguments(
                f"Summary keeps by one measure: give {' or '.join(given)}, not both."
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

    @property
    def writer(self) -> Any:
        """What the summary comes from: `maker`, unless the policy leaves that out."""
        return self.maker

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

    # -- where -------------------------------------------------------------------------------------

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
        """Return a cut at or after a position, or where its turn starts if turns stay whole."""
        if not self.split_turns:
            return history.safe_before(max(turn_start(history, position), 0))
        found = history.safe(position)
        return found or history.safe_before(min(position, max(len(history) - 1, 0)))

    def turn(self, history: History, first: int) -> int:
        """Return where the turn began that a cut splits; 0: it splits none, or the first one."""
        splits = self.apart and 0 < first < len(history)
        if not splits or history.item(first).role(history.log) == USER:
            return 0
        return max(turn_start(history, first), 0)

    # -- what --------------------------------------------------------------------------------------

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

    def start(self, history: History) -> int:  # noqa: ARG002  who lost some begins later
        """Return the first position that is looked at."""
        return 0

    def passages(self, history: History, first: int) -> list[Passage]:
        """Return what is summarised: the old turns, and the head of a split one by itself."""
        told, start, turn = self.told(), self.start(history), self.turn(history, first)
        if turn <= start or not anything(history, turn, start):
            return [Passage(history, first, start, self.limit, told)]
        return [
            Passage(history, turn, start, self.limit, told),
            Passage(history, first, turn, self.split_limit or self.limit, told),
        ]

    def told(self) -> str:
        """Return what the summariser is told."""
        names = ", ".join(self.sections)
        sections = f"Write these sections: {names}." if names else ""
        rest = identifiers.instructions(self.identifiers, self.identifier_instructions, self.focus)
        return "\n\n".join(t for t in (self.instructions, sections, rest) if t)

    def joined(self, made: list[Message | str | int], parts: list[Passage]) -> Message | str | int:
        """Return one summary of the old turns' and the split turn's."""
        failed = [m for m in made if isinstance(m, Message) and ERROR in m.details]
        own = self.otherwise is not None and bool(failed)
        if len(made) == 1 and not isinstance(made[0], str) and not own:
            return made[0]
        if any(isinstance(m, int) for m in made):
            return sum(
                m if isinstance(m, int) else parts[0].history.log.counter(text_of(m)) for m in made
            )
        text = "\n\n---\n\n**Turn Context (split turn):**\n\n".join(map(text_of, made))
        if self.file_lists:
            found = (records.of_each(p.history, p.places, records.files) for p in parts)
            text += records.file_lists(chain.from_iterable(found))
        text = text if text.startswith(self.prefix) else self.prefix + text
        return written_instead(text, failed[0].details[ERROR]) if failed else text

    def asked(self, maker: Callable[[Passage], Any], passage: Passage) -> Message | str | int:
        """Return a summariser's work, asked again where the audit finds something missing."""
        try:
            made = self._once(maker, passage)
            for _ in range(0 if isinstance(maker, LOCAL) else self.retries):
                missing = self.audit(made, passage)
                if not missing:
                    break
                again = f"{passage.instructions}\n\nThe last attempt lacked: {'; '.join(missing)}."
                made = self._once(maker, replace(passage, instructions=again))
        except (CtxkitError, OSError, ValueError, RuntimeError) as error:
            if self.otherwise is not None:
                made = answer(self.otherwise(replace(passage, instructions=failure_text(error))))
                return made if isinstance(made, int) else written_instead(made, error)
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"No summary was made: {error}") from error
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
        text, sections = text_of(made), self.sections
        return identifiers.audit(text, sections=sections, names=names, ask=ask, strict=strict)


def writers_of(part: Part) -> Iterator[Any]:
    """Yield what the summaries of a policy come from, of the policies in it, too."""
    if isinstance(part, Summary):
        yield part.writer
        return
    for value in vars(part).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Part):
                yield from writers_of(each)
