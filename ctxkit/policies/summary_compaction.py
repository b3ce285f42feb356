"""Compaction by a summary: the base policy, Pi's summary, and a time limit for summarisers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, Self

from ctxkit._internal.formatting_and_sanitizing import format_error_line
from ctxkit.errors import BadArguments, CtxkitError, ModelError
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.history.growing_columns_and_sums import USER
from ctxkit.policies.history.history import (
    find_end_of_leading_summaries,
    find_first_since_compaction,
    find_turn_start,
    has_summarisable_messages,
    is_new_request,
)
from ctxkit.policies.offline_summarisers import (
    ExtractiveSummariser,
    FixedSizeSummariser,
    InputShareSummariser,
    RecordedSummariser,
    SummariserInput,
    get_summary_text,
    validate_summary,
    with_summary_error,
)
from ctxkit.policies.policy_base_and_chains import BasePolicy
from ctxkit.policies.protocols import FUNCTION_METHOD
from ctxkit.policies.texts import summary_prompts_and_audits, tool_outcomes_and_files
from ctxkit.policies.texts.summary_prompts_and_audits import PI_SECTIONS, PI_TURN_SECTIONS
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.session.messages import SUMMARY_ERROR_KEY, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        Natural,
        Positive,
        Proportion,
    )
    from ctxkit.tokens import ContextBudget


LOCAL_SUMMARISERS = (
    ExtractiveSummariser,
    FixedSizeSummariser,
    RecordedSummariser,
    InputShareSummariser,
)
"""Summarisers without a model: they take no instructions, and are neither timed nor audited."""


# Compaction by a summary, step by step:
# 1. The range: from the first position that may go (`front`) to the first that is kept
#    (`find_cut`), by tokens, turns, messages or a share of the window. The cut is moved to a safe
#    one, so that no tool call loses its result.
# 2. The passages: all old turns, and if the cut splits a turn, its first part by itself, so that
#    the kept second part has its context.
# 3. The summariser writes one summary per passage. A model's summary is audited (sections,
#    identifiers, last request) and retried, `retries` times; a failure goes to `otherwise`.
# 4. The summaries are joined, and replace the range. A result that is not smaller is discarded.
# Subclasses override single steps; they never change the history themselves.


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary(DataclassPolicy):
    """Summarise old messages; keep the newest tokens, turns or messages as they are.

    The last summary is among the summarised messages (a rolling summary), so there is at most one.
    Where the summariser fails, `otherwise` writes the summary; without it a ModelError is raised
    and the history stays as it was.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("summary:keep_tokens=2000", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 4242, 2915)]
    """

    keep_tokens: Natural | None = None
    """Newest tokens to keep; 20,000 if no other measure is set."""
    keep_turns: Positive | None = None
    """Newest turns to keep, each from its user message on."""
    keep_messages: Positive | None = None
    """Newest messages to keep."""
    keep_share: Proportion | None = None
    """Newest tokens to keep, as a share of the window (0 to 1)."""
    split_turns: bool = True
    """True: the cut may fall inside a turn; False: the whole turn is kept."""
    apart: bool = True
    """True: the first part of a split turn gets a summary of its own."""
    estimated: bool = False
    """Count tokens by the system's own estimate instead of the billed ones."""
    summariser: Any = None
    """Writes the summary, ``(passage) -> text``; None: the summariser of the rules."""
    limit: Positive | None = None
    """Maximum tokens of a summary."""
    split_limit: Positive | None = None
    """Maximum tokens of the summary of a split turn's first part."""
    instructions: str = ""
    """Instructions for summarisers that use a model."""
    sections: tuple[str, ...] = ()
    """Headings that a summary must have."""
    identifiers: Literal["strict", "off", "custom"] = "off"
    """Keep identifiers exactly: `strict`, `off`, or `custom` with `identifier_instructions`."""
    identifier_instructions: str = ""
    """Instructions about identifiers, with `custom`."""
    focus: str = ""
    """A topic that the summary should cover, in the user's words."""
    retries: Natural = 0
    """Number of retries where a summary lacks sections, identifiers or the last request."""
    seconds: float | None = None
    """Time limit of the calls that one compaction makes, in seconds; None: no limit."""
    prefix: str = ""
    """Text in front of the summary, unless the summary begins with it."""
    file_lists: bool = False
    """Append lists of the files that were read and changed, as Pi does."""
    otherwise: Any = None
    """Writes the summary where the summariser fails: ``(passage) -> text``; None: nothing does."""
    must_shrink: bool = True
    """Change nothing where the result is not smaller."""
    summaries_stay: bool = False
    """Earlier summaries stay, and the new one follows them."""
    request_stays: bool = False
    """The first user request stays, with all before it."""

    def __post_init__(self) -> None:
        measures = ("keep_tokens", "keep_turns", "keep_messages", "keep_share")
        names = [name for name in measures if getattr(self, name) is not None]
        if len(names) > 1:
            raise BadArguments(
                f"Summary keeps by one measure: give {' or '.join(names)}, not both."
            )

    @property
    def keeps(self) -> int | None:
        """Tokens that are always kept; None: it keeps by another measure."""
        if self.keep_tokens is not None:
            return self.keep_tokens
        others = (self.keep_turns, self.keep_messages, self.keep_share)
        return 20_000 if all(o is None for o in others) else None

    @property
    def maker(self) -> Any:
        """The summariser in use: the extractive one where none is set."""
        return self.summariser or ExtractiveSummariser()

    @property
    def writer(self) -> Any:
        """The source of the summary, for tables: `maker`, where the policy uses it."""
        return self.maker

    def name_method(self, word: str = "summary") -> str:
        """Return the method of the summary's edit, which says what wrote it.

        Args:
            word: the method of a summary that a model writes, or of a placeholder for one.
        """
        # A summariser that puts the record before another's text is free where the other one is.
        writer = self.writer
        if type(writer) is FixedSizeSummariser:
            return word
        writer = getattr(writer, "summariser", writer)
        if isinstance(writer, (FunctionType, BuiltinFunctionType, partial)):
            return FUNCTION_METHOD
        is_from_record = getattr(writer, "is_from_record", False)
        return str(writer.name) if is_from_record else word

    def using(self, summariser: Any) -> Self:
        """Return the policy with a summariser, where it has none."""
        return self if self.summariser is not None else replace(self, summariser=summariser)

    def focused(self, focus: str) -> Self:
        """Return the policy with a focus, a topic that the summary should cover."""
        return replace(self, focus=focus)

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with its old part summarised.

        It is unchanged where nothing old is left, or it would not shrink (with `must_shrink`).

        Raises:
            ModelError: the summariser failed, and `otherwise` is None.
        """
        start, first = self.front(history), self.find_cut(history, budget)
        if first <= start or not has_summarisable_messages(history, first, start):
            return history
        summary = self.write_summary(history, first)
        why = "between the beginning and what is kept" if start else "older than what is kept"
        method = self.name_method()
        new = history.summarise(first, summary, why, start=start, method=method)
        return keep_if_smaller(history, new) if self.must_shrink else new

    # -- the range that is summarised --------------------------------------------------------------

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position, from `first` on, that may be summarised.

        Args:
            history: the messages of the prompt.
            first: position before which nothing is summarised.
        """
        if self.request_stays:
            request = history.next(first, "user")
            if 0 <= request < len(history) - 1:
                first = max(first, history.safe(request + 1))
        if self.summaries_stay:
            first = find_end_of_leading_summaries(history, first)
        return first

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first position that is kept; 0 where nothing can be summarised.

        Args:
            history: the messages of the prompt.
            budget: the limit and reserve in tokens; `keep_share` is a share of the limit.
        """
        if self.keep_turns is not None:
            return history.safe_before(max(history.nth_last_request(self.keep_turns), 0))
        if self.keep_messages is not None:
            return self.move_to_safe_cut(history, max(len(history) - self.keep_messages, 0))
        tokens = self.keep_tokens if self.keep_tokens is not None else 20_000
        if self.keep_share is not None:
            tokens = int(budget.limit * self.keep_share)
        return self.move_to_safe_cut(history, history.back(tokens, estimated=self.estimated))

    def move_to_safe_cut(self, history: History, position: int) -> int:
        """Return the safe cut at or after a position; the start of its turn if turns stay whole.

        Args:
            history: the messages in force.
            position: index of the oldest message that should stay.

        Returns:
            Index of the oldest message that stays; 0 where nothing can be summarised.
        """
        if not self.split_turns:
            return history.safe_before(max(find_turn_start(history, position), 0))
        cut = history.safe(position)
        return cut or history.safe_before(min(position, max(len(history) - 1, 0)))

    def find_split_turn(self, history: History, first: int) -> int:
        """Return the start of the turn that a cut splits; 0: it splits none, or the first one.

        Args:
            history: the messages of the prompt.
            first: first position that is kept.
        """
        splits = self.apart and 0 < first < len(history)
        if not splits or history.item(first).role(history.log) == USER:
            return 0
        return max(find_turn_start(history, first), 0)

    # -- the text of the summary -------------------------------------------------------------------

    def write_summary(self, history: History, first: int) -> Message | str | int:
        """Return the summary of all messages before a position: a message, a text, or its size.

        Args:
            history: the messages of the prompt.
            first: first position that is kept.
        """
        maker = self.maker
        if self.seconds is not None:
            maker = self._time_limited(maker)  # one limit for all passages
        # the size is fixed, so a split turn needs no second summary
        if isinstance(maker, FixedSizeSummariser):
            parts = [SummariserInput(history, first, 0, self.limit)]
        else:
            parts = self.passages_behind_front(history, first)
        return self.join_summaries(
            [self.summarise_passage(maker, passage) for passage in parts], parts
        )

    def passages_behind_front(self, history: History, first: int) -> list[SummariserInput]:
        """Return the passages without the messages that stay in front.

        Args:
            history: the messages of the prompt.
            first: first position that is kept.
        """
        start, parts = self.front(history), self.passages(history, first)
        return [
            p if p.start >= start else replace(p, start=start) for p in parts if p.before > start
        ]

    def find_read_start(self, history: History) -> int:  # noqa: ARG002  subclasses use it
        """Return the first position that is read: 0."""
        return 0

    def passages(self, history: History, first: int) -> list[SummariserInput]:
        """Return the passages to summarise: the old turns, and the first part of a split turn.

        Args:
            history: the messages of the prompt.
            first: first position that is kept.
        """
        instructions, start, turn = (
            self.summary_instructions(),
            self.find_read_start(history),
            self.find_split_turn(history, first),
        )
        if turn <= start or not has_summarisable_messages(history, turn, start):
            return [SummariserInput(history, first, start, self.limit, instructions)]
        return [
            SummariserInput(history, turn, start, self.limit, instructions),
            SummariserInput(history, first, turn, self.split_limit or self.limit, instructions),
        ]

    def summary_instructions(self) -> str:
        """Return the instructions for the summariser."""
        names = ", ".join(self.sections)
        sections = f"Write these sections: {names}." if names else ""
        rest = summary_prompts_and_audits.format_identifier_instructions(
            self.identifiers, self.identifier_instructions, self.focus
        )
        return "\n\n".join(t for t in (self.instructions, sections, rest) if t)

    def join_summaries(
        self, summaries: list[Message | str | int], parts: list[SummariserInput]
    ) -> Message | str | int:
        """Return one summary, joined from the summaries of the passages.

        Args:
            summaries: what the summariser returned for each passage: a message, a text, or a size
                in tokens.
            parts: the passages, in the same order.
        """
        if len(summaries) == 1 and type(summaries[0]) is int:
            return summaries[0]
        failed = [m for m in summaries if isinstance(m, Message) and SUMMARY_ERROR_KEY in m.details]
        used_fallback = self.otherwise is not None and bool(failed)
        if len(summaries) == 1 and not isinstance(summaries[0], str) and not used_fallback:
            return summaries[0]
        # Sizes without a text: add them up, and count the texts among them.
        if any(isinstance(m, int) for m in summaries):
            return sum(
                m if isinstance(m, int) else parts[0].history.log.counter(get_summary_text(m))
                for m in summaries
            )
        text = "\n\n---\n\n**Turn Context (split turn):**\n\n".join(
            map(get_summary_text, summaries)
        )
        if self.file_lists:
            file_paths = (
                tool_outcomes_and_files.map_messages(
                    p.history, p.places, tool_outcomes_and_files.get_files_in_message
                )
                for p in parts
            )
            text += tool_outcomes_and_files.format_file_lists(chain.from_iterable(file_paths))
        text = text if text.startswith(self.prefix) else self.prefix + text
        return with_summary_error(text, failed[0].details[SUMMARY_ERROR_KEY]) if failed else text

    def summarise_passage(
        self, maker: Callable[[SummariserInput], Any], passage: SummariserInput
    ) -> Message | str | int:
        """Return the summary of a passage; retry while the audit finds something missing.

        Args:
            maker: the summariser, called with the passage.
            passage: the messages to summarise, with instructions and a limit in tokens.

        Returns:
            A text, a message, or a size in tokens. If the summariser fails and `otherwise` is set,
            its summary, with the error in the details.

        Raises:
            ModelError: the summariser failed, and there is no `otherwise`.
        """
        try:
            summary = self._once(maker, passage)
            for _ in range(0 if isinstance(maker, LOCAL_SUMMARISERS) else self.retries):
                missing = self.audit(summary, passage)
                if not missing:
                    break
                instructions = (
                    f"{passage.instructions}\n\nThe last attempt lacked: {'; '.join(missing)}."
                )
                summary = self._once(maker, replace(passage, instructions=instructions))
        except (CtxkitError, OSError, ValueError, RuntimeError) as error:
            if self.otherwise is not None:
                summary = validate_summary(
                    self.otherwise(replace(passage, instructions=format_error_line(error)))
                )
                return summary if isinstance(summary, int) else with_summary_error(summary, error)
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"No summary was made: {error}") from error
        return summary

    def _once(
        self, maker: Callable[[SummariserInput], Any], passage: SummariserInput
    ) -> Message | str | int:
        limited = maker if self.seconds is None else self._time_limited(maker)
        return validate_summary(limited(passage))

    def _time_limited(
        self, maker: Callable[[SummariserInput], Any]
    ) -> Callable[[SummariserInput], Any]:
        if self.seconds is None or isinstance(maker, (*LOCAL_SUMMARISERS, TimeLimitedSummariser)):
            return maker
        return TimeLimitedSummariser(maker, self.seconds)

    def audit(self, summary: Message | str | int, passage: SummariserInput) -> tuple[str, ...]:
        """Return what a summary is missing: sections, identifiers (`strict`), the last request.

        Args:
            summary: what the summariser returned; a size in tokens passes.
            passage: the messages that it replaces.
        """
        if isinstance(summary, int):
            return ()
        texts = [summary_prompts_and_audits.get_text_without_reasoning(m) for m in passage.messages]
        requests = [
            summary_prompts_and_audits.get_text_without_reasoning(m)
            for m in passage.messages
            if m.role == "user"
        ]
        strict = self.identifiers == "strict"
        names = summary_prompts_and_audits.select_identifiers_to_audit(texts) if strict else ()
        ask = requests[-1] if requests else ""
        text, sections = get_summary_text(summary), self.sections
        return summary_prompts_and_audits.audit_summary(
            text, sections=sections, identifiers=names, request=ask, strict=strict
        )


def iter_summary_writers(part: BasePolicy) -> Iterator[Any]:
    """Yield the sources of a policy's summaries, also of policies within it."""
    if isinstance(part, Summary):
        yield part.writer
        return
    for value in vars(part).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, BasePolicy):
                yield from iter_summary_writers(each)


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
    """Pi's compaction: cut by its own estimate, split turns apart, lists of files.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(PiSummary(keep_tokens=2000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 4242, 2915)]
    """

    estimated: bool = True
    """Measure kept tokens by the system's own estimate."""
    file_lists: bool = True
    """Append the lists of read and changed files to the summary."""
    sections: tuple[str, ...] = PI_SECTIONS
    """Headings that a summary must have."""
    instructions: str = PI_INSTRUCTIONS
    """Instructions for the summariser."""
    quirks: bool = False
    """Reproduce Pi's defects: what its second compaction lost, and where it cut nothing."""
    remembers: bool = False
    """With quirks: summarise what the last compaction kept (Pi from 0.73 on)."""
    before_request: bool = False
    """Cut as if the pending request were not there: Pi compacts before it adds the request."""

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first position that is kept; a pending request is always kept."""
        if not self.before_request:
            return super().find_cut(history, budget)
        # Pi adds the pending request after the compaction: keep as much before it as usual.
        last = len(history) - 1
        row = history.row(last) if last >= 0 else -1
        if not is_new_request(history.log, row, history.call):
            return super().find_cut(history, budget)
        request = history.item(last)
        tail_tokens = (self.keeps or 0) + (request.estimate if self.estimated else request.tokens)
        first = self.move_to_safe_cut(history, history.back(tail_tokens, estimated=self.estimated))
        if first < last:
            return first
        return 0 if self.quirks else history.safe_before(max(last - 1, 0))

    def find_read_start(self, history: History) -> int:
        """Return the first position that is read: with quirks, after what was kept before."""
        if not self.quirks or self.remembers:
            return 0
        return find_first_since_compaction(history, includes_pending=self.before_request)

    def move_to_safe_cut(self, history: History, position: int) -> int:
        """Return Pi's cut at or after a position."""
        if not self.quirks:
            return super().move_to_safe_cut(history, position)
        start = self.find_read_start(history)
        first = history.safe(max(position, start))
        return first if first > start else 0

    def passages(self, history: History, first: int) -> list[SummariserInput]:
        """Return the old turns, and a split turn's first part, with Pi's instructions."""
        parts = super().passages(history, first)
        if len(parts) > 1:
            parts[1] = replace(parts[1], instructions=PI_TURN_INSTRUCTIONS)
        return parts


class SummaryTimeout(ModelError):
    """A summary took longer than it may."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The summary took longer than {seconds:g} s.")


class TimeLimitedSummariser:
    """A summariser whose calls share one time limit, which begins when it is made.

    Args:
        maker: the summariser. Where it has a method `within(passage, seconds)`, it keeps to the
            limit itself; else its thread goes on, and its result is discarded.
        seconds: the limit.
    """

    def __init__(self, maker: Callable[[SummariserInput], Any], seconds: float) -> None:
        self._maker, self._seconds = maker, seconds
        self._deadline = monotonic() + seconds

    def __call__(self, passage: SummariserInput) -> Any:
        """Return what the summariser returns.

        Raises:
            SummaryTimeout: it took longer.
        """
        seconds = max(self._deadline - monotonic(), 0.0)
        within = getattr(self._maker, "within", None)
        try:
            if within is not None:
                return within(passage, seconds)
            return call_with_time_limit(partial(self._maker, passage), seconds)
        except SummaryTimeout:
            raise SummaryTimeout(self._seconds) from None


def call_with_time_limit(work: Callable[[], Any], seconds: float) -> Any:
    """Return what work returns; its thread cannot be stopped, and goes on after the limit.

    Args:
        work: the function; its own errors are raised here.
        seconds: seconds to wait for it.

    Raises:
        SummaryTimeout: it took longer.
    """
    result: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def run() -> None:
        try:
            result.put((True, work()))
        except Exception as error:  # noqa: BLE001  raised in the calling thread
            result.put((False, error))

    Thread(target=run, daemon=True, name="ctxkit-summary").start()
    try:
        is_success, value = result.get(timeout=seconds)
    except Empty:
        raise SummaryTimeout(seconds) from None
    if is_success:
        return value
    raise value
