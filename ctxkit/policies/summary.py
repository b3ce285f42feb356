"""Compaction by a summary: the base policy, Pi's structured summary, and a time limit for
summarisers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, Self

from ctxkit._internal.redaction import failure_text
from ctxkit.errors import BadArguments, CtxkitError, ModelError
from ctxkit.policies.base import BasePolicy, ConfiguredPolicy
from ctxkit.policies.history.columns import USER
from ctxkit.policies.history.history import (
    end_of_leading_summaries,
    find_turn_start,
    first_since_compaction,
    has_content,
    is_new_request,
)
from ctxkit.policies.offline_summarisers import (
    Extractive,
    Fixed,
    Passage,
    RecordedSummary,
    ShareOfInput,
    summary_text,
    validate_summary,
    written_instead,
)
from ctxkit.policies.texts import summary_prompts, tool_actions
from ctxkit.policies.texts.summary_prompts import PI_SECTIONS, PI_TURN_SECTIONS
from ctxkit.session.messages import ERROR, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.policies.base import Natural, Positive, Proportion
    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget


LOCAL_SUMMARISERS = (Extractive, Fixed, RecordedSummary, ShareOfInput)
"""Summarisers that answer at once and cannot be told anything: neither timed nor audited."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(ConfiguredPolicy):
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

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return the history with its old part summarised.

        Raises:
            ModelError: no summary came about, and there is no other way to make one.
        """
        start, first = self.front(history), self.cut(history, room)
        if first <= start or not has_content(history, first, start):
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
            first = end_of_leading_summaries(history, first)
        return first

    def cut(self, history: History, room: ContextBudget) -> int:
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
            return history.safe_before(max(find_turn_start(history, position), 0))
        found = history.safe(position)
        return found or history.safe_before(min(position, max(len(history) - 1, 0)))

    def turn(self, history: History, first: int) -> int:
        """Return where the turn began that a cut splits; 0: it splits none, or the first one."""
        splits = self.apart and 0 < first < len(history)
        if not splits or history.item(first).role(history.log) == USER:
            return 0
        return max(find_turn_start(history, first), 0)

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
        if turn <= start or not has_content(history, turn, start):
            return [Passage(history, first, start, self.limit, told)]
        return [
            Passage(history, turn, start, self.limit, told),
            Passage(history, first, turn, self.split_limit or self.limit, told),
        ]

    def told(self) -> str:
        """Return what the summariser is told."""
        names = ", ".join(self.sections)
        sections = f"Write these sections: {names}." if names else ""
        rest = summary_prompts.identifier_instructions(
            self.identifiers, self.identifier_instructions, self.focus
        )
        return "\n\n".join(t for t in (self.instructions, sections, rest) if t)

    def joined(self, made: list[Message | str | int], parts: list[Passage]) -> Message | str | int:
        """Return one summary of the old turns' and the split turn's."""
        failed = [m for m in made if isinstance(m, Message) and ERROR in m.details]
        own = self.otherwise is not None and bool(failed)
        if len(made) == 1 and not isinstance(made[0], str) and not own:
            return made[0]
        if any(isinstance(m, int) for m in made):
            return sum(
                m if isinstance(m, int) else parts[0].history.log.counter(summary_text(m))
                for m in made
            )
        text = "\n\n---\n\n**Turn Context (split turn):**\n\n".join(map(summary_text, made))
        if self.file_lists:
            found = (
                tool_actions.map_messages(p.history, p.places, tool_actions.files_in_message)
                for p in parts
            )
            text += tool_actions.format_file_lists(chain.from_iterable(found))
        text = text if text.startswith(self.prefix) else self.prefix + text
        return written_instead(text, failed[0].details[ERROR]) if failed else text

    def asked(self, maker: Callable[[Passage], Any], passage: Passage) -> Message | str | int:
        """Return a summariser's work, asked again where the audit finds something missing."""
        try:
            made = self._once(maker, passage)
            for _ in range(0 if isinstance(maker, LOCAL_SUMMARISERS) else self.retries):
                missing = self.audit(made, passage)
                if not missing:
                    break
                again = f"{passage.instructions}\n\nThe last attempt lacked: {'; '.join(missing)}."
                made = self._once(maker, replace(passage, instructions=again))
        except (CtxkitError, OSError, ValueError, RuntimeError) as error:
            if self.otherwise is not None:
                made = validate_summary(
                    self.otherwise(replace(passage, instructions=failure_text(error)))
                )
                return made if isinstance(made, int) else written_instead(made, error)
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"No summary was made: {error}") from error
        return made

    def _once(self, maker: Callable[[Passage], Any], passage: Passage) -> Message | str | int:
        if self.seconds is None or isinstance(maker, LOCAL_SUMMARISERS):
            made = maker(passage)
        else:
            made = call_with_timeout(self.seconds, maker, passage)
        return validate_summary(made)

    def audit(self, made: Message | str | int, passage: Passage) -> tuple[str, ...]:
        """Return what a summary lacks: sections, identifiers (with `strict`), the last request."""
        if isinstance(made, int):
            return ()
        texts = [summary_prompts.plain_text(m) for m in passage.messages]
        asks = [summary_prompts.plain_text(m) for m in passage.messages if m.role == "user"]
        strict = self.identifiers == "strict"
        names = summary_prompts.identifiers_to_audit(texts) if strict else ()
        ask = asks[-1] if asks else ""
        text, sections = summary_text(made), self.sections
        return summary_prompts.audit_summary(
            text, sections=sections, names=names, ask=ask, strict=strict
        )


def writers_of(part: BasePolicy) -> Iterator[Any]:
    """Yield what the summaries of a policy come from, of the policies in it, too."""
    if isinstance(part, Summary):
        yield part.writer
        return
    for value in vars(part).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, BasePolicy):
                yield from writers_of(each)


PI_INSTRUCTIONS = (
    "Summarise this conversation so that another model can go on with the work. Update the earlier"
    " summary where there is one: keep what still holds. Keep exact file paths, function names and"
    " error messages."
)
PI_TURN_INSTRUCTIONS = (
    "This is the beginning of a turn whose end is kept. Say what the end needs: "
    + ", ".join(PI_TURN_SECTIONS)
    + "."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PiSummary(Summary):
    """Pi's compaction: cut by its own estimate, split turns apart, lists of files."""

    estimated: bool = True
    file_lists: bool = True
    sections: tuple[str, ...] = PI_SECTIONS
    instructions: str = PI_INSTRUCTIONS
    quirks: bool = False
    """Lose what Pi lost at the second compaction, and cut nothing where Pi cut nothing."""
    remembers: bool = False
    """With quirks: what the compaction before had kept is summarised (Pi from 0.73 on)."""
    before_request: bool = False
    """Cut as if the request that waits were not said yet: Pi compacts before it takes one in."""

    def cut(self, history: History, room: ContextBudget) -> int:
        """Return the first position that is kept; the request that waits is always kept."""
        if not self.before_request:
            return super().cut(history, room)
        last = len(history) - 1
        row = history.row(last) if last >= 0 else -1
        if not is_new_request(history.log, row, history.call):
            return super().cut(history, room)
        request = history.item(last)
        kept = (self.keeps or 0) + (request.estimate if self.estimated else request.tokens)
        found = self.at(history, history.back(kept, estimated=self.estimated))
        if found < last:
            return found
        return 0 if self.quirks else history.safe_before(max(last - 1, 0))

    def start(self, history: History) -> int:
        """Return the first position that is looked at: with quirks behind what was kept before."""
        if not self.quirks or self.remembers:
            return 0
        return first_since_compaction(history, waiting=self.before_request)

    def at(self, history: History, position: int) -> int:
        """Return Pi's cut at or after a position."""
        if not self.quirks:
            return super().at(history, position)
        start = self.start(history)
        first = history.safe(max(position, start))
        return first if first > start else 0

    def passages(self, history: History, first: int) -> list[Passage]:
        """Return old turns and a split turn's head; with quirks, since the last compaction."""
        found = super().passages(history, first)
        if len(found) > 1:
            found[1] = replace(found[1], instructions=PI_TURN_INSTRUCTIONS)
        return found


def call_with_timeout(seconds: float, maker: Callable[[Passage], Any], passage: Passage) -> Any:
    """Return what a summariser makes within a time limit.

    Raises:
        ModelError: it took longer. Its thread is left to end by itself, and what it says then is
            not used.
    """
    answer: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def run() -> None:
        try:
            answer.put((True, maker(passage)))
        except Exception as error:  # noqa: BLE001  raised again by who waits
            answer.put((False, error))

    Thread(target=run, daemon=True, name="ctxkit-summary").start()
    try:
        good, value = answer.get(timeout=seconds)
    except Empty:
        raise ModelError(f"The summary took longer than {seconds:g} s.") from None
    if good:
        return value
    raise value
