"""Sizes of the prompts that calls sent, and the messages of one prompt with their sizes."""

# A run's prompts differ from the log's by piecewise constants: between two compactions the engine
# keeps one offset (or, after a pruning, an array of sizes) per segment. `RunPromptSizes` finds a
# call's segment by bisection, so a run needs O(segments) memory; the search for a size in a segment
# uses the running maximum of the log.

from __future__ import annotations

from bisect import bisect_right
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.metrics.prompt_composition import (
    get_recorded_prompt_size,
    get_rules_run_prompt_size,
    has_live_run,
    has_recorded_prompt_sizes,
    measure_tokens_outside_messages,
    separate_schemas,
    split_tokens_by_weight,
)
from ctxkit.session.compactions_and_prunings import get_message_fates
from ctxkit.session.messages import Message, Provenance
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine import RulesRun
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes
    from ctxkit.tokens.token_counters import TokenCounter


def get_prompt_sizes(session: Session) -> tuple[list[int | None], Provenance | None]:
    """Return the prompt size of each call, and the source of the sizes.

    Sizes are None for calls that failed before they were billed and for sums over whole turns; all
    sizes and the source are None where the log has neither usage nor content. Without usage, sizes
    are counted like the prompts of a replay.

    Args:
        session: a recorded session or a replay.

    Returns:
        Tokens of each call's prompt, and "recorded", "derived" or "estimated".

    Example:
        >>> import ctxkit as ck
        >>> sizes, source = get_prompt_sizes(ck.read(ck.samples.path("billing")))
        >>> sizes[:3], source
        ([1625, 2200, 2487], 'recorded')
    """
    recorded = [c.message.prompt_tokens for c in session.calls]
    if any(recorded):
        modelled = any(c.message.details.get("usage_source") == "derived" for c in session.calls)
        return recorded, "derived" if modelled else "recorded"
    from ctxkit.engine.replay import find_prompt_source

    source = find_prompt_source(session)
    if source is not None:
        return source.prompt_sizes(len(recorded)), "estimated"
    if session.has_sizes:
        return list(measure_sizes(session).modelled), "estimated"
    return [None] * len(recorded), None


def has_prompt_sizes(session: Session) -> bool:
    """Return True if the size of at least one prompt is recorded or can be counted."""
    return get_prompt_sizes(session)[1] is not None


class PromptAndSharedPrefixSizes:
    """The prompt sizes of a run or a replay, and the prefix that each shares with earlier ones.

    Args:
        prompts: tokens of each call's prompt.
        shared: tokens of the prefix that each shares with the prompts before it.

    Example:
        >>> sizes = PromptAndSharedPrefixSizes([100, 200, 150], [0, 90, 150])
        >>> sizes.prompt(1), sizes.shared(2)
        (200, 150)
    """

    def __init__(self, prompts: Sequence[int], shared: Sequence[int] = ()) -> None:
        self._prompts, self._shared = prompts, shared

    def __len__(self) -> int:
        return len(self._prompts)

    def prompt(self, call: int) -> int:
        """Return the tokens of a call's prompt; 0 if a record does not state them."""
        return self._prompts[call]

    def find_first_reaching(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt has at least `full` tokens.

        Args:
            full: minimum size in tokens.
            start: first call, from 0.
            stop: one past the last call.
        """
        return next((c for c in range(start, stop) if self.prompt(c) >= full), None)

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        return self._shared[call]


class RunPromptSizes(PromptAndSharedPrefixSizes):
    """The prompt sizes of a run, as offsets to those of its log; O(1) memory per compaction."""

    def __init__(self, run: RulesRun) -> None:
        self.log: MessageLog = run.log
        self._sizes = run.log.tokens.C
        self._marks = list(run.billed.spans())
        self._starts = [mark[0] for mark in self._marks]
        self._in_common = run.shared_when_cold

    def __len__(self) -> int:
        return len(self._sizes)

    def _mark(self, call: int) -> tuple[int, int, Any, Any]:
        return self._marks[bisect_right(self._starts, call) - 1]

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt."""
        # Called most frequently, together with `shared`, so `_mark` is inlined in both.
        start, _, offset, _ = self._marks[bisect_right(self._starts, call) - 1]
        return self._sizes[call] + offset if type(offset) is int else int(offset[call - start])

    def find_first_reaching(self, full: float, start: int, stop: int) -> int | None:
        """Return the first call in start..stop whose prompt has at least `full` tokens."""
        _, end, offset, _ = self._mark(start)
        if type(offset) is not int or end < stop:
            return super().find_first_reaching(full, start, stop)
        call = self.log.tokens.above(ceil(full - offset) - 1, start, stop)
        return call if call < stop else None

    def shared(self, call: int) -> int:
        """Return the tokens at its front that it shares with a prompt before it."""
        start, _, offset, seam = self._marks[bisect_right(self._starts, call) - 1]
        shared_tokens, at = self._in_common.get(call), call - start
        if type(offset) is int:
            prompt = self._sizes[call] + offset
            if shared_tokens is None and seam is not None and not at:
                shared_tokens = seam
        else:
            prompt = int(offset[at])
            if shared_tokens is None:
                shared_tokens = prompt - int(seam[at])
        if shared_tokens is None:
            fixed = self.log.fixed_at
            shrunk = max(fixed[call - 1] - fixed[call], 0) if call else 0
            shared_tokens = max(self.prompt(call - 1) - shrunk, 0) if call else 0
        return min(shared_tokens, prompt)

    def spans(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """Yield segments of calls whose prompts differ from the log's by one offset.

        Each segment is first call, stop, offset (None: not constant), and whether the first call
        shares only a part of the previous prompt.
        """
        for start, stop, offset, seam in self._marks:
            yield start, stop, offset if type(offset) is int else None, seam is not None


# A record gives only its messages and the billed size of each prompt:
# `tokens.message_sizes_from_recorded_prompts` sizes the messages, and the difference is the part
# that is not in the log. For a run the engine knows everything that was sent and its counted size;
# where the provider billed the prompt, counts are scaled to the bill (largest remainder method, so
# that integers add up).

_FIXED_KIND = "fixed"
"""Kind of the item that stands for system prompt and tools outside messages."""


class SentMessage(NamedTuple):
    """A message as it was sent, with its size."""

    message: Message
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed."""
    source: Provenance
    position: int | None = None
    """Position of its original in `session.path`; None for an inserted message."""
    changed_by: str | None = None


# Sizes are recorded or estimated; those of the messages add up to the billed prompt.
class PromptContents(NamedTuple):
    """All contents of one prompt, in tokens."""

    messages: tuple[SentMessage, ...]
    visible: int
    """Tokens of the messages before they are scaled to the recorded prompt."""
    rest: int
    """Tokens that are not in the log."""
    schemas: list[int]
    """Tokens of each tool schema."""
    later: int
    """Tokens that are neither in the log nor in the first prompt."""
    excess: int
    """Tokens by which messages, schemas and rest exceed the prompt."""
    is_smaller_than_log: bool
    """True where the prompt had fewer tokens than the log shows."""
    prompt: int
    prompt_source: Provenance
    source: Provenance
    counter: str
    error: float | None


def get_prompt_contents(
    session: Session,
    index: int | None,
    counter: TokenCounter | None = None,
    sized: MessageSizes | None = None,
) -> PromptContents:
    """Return the contents of the prompt of a call.

    Args:
        session: any session.
        index: number of the call, from 0; None: the next prompt.
        counter: counts messages of a record where usage does not give their size.
        sized: the sizes of a record's messages; None: measured here.

    Returns:
        Messages with their sizes, schemas and the rest of the prompt, in tokens that add up to the
        billed prompt where there is a bill.
    """
    from ctxkit.engine.replay import find_prompt_source

    source = find_prompt_source(session)
    if source is None:
        return _contents_of_record(session, index, sized or measure_sizes(session, counter))
    return _contents_of_run(session, index, source.counter)


def _contents_of_record(session: Session, index: int | None, sized: MessageSizes) -> PromptContents:
    """Return a prompt of a record, with message sizes anchored on recorded usage."""
    sent = tuple(_sent_messages(session, index, sized))
    visible = sum(s.tokens for s in sent)
    rest, schemas, later = measure_tokens_outside_messages(session, sized, index, visible)
    recorded, counted = (
        get_recorded_prompt_size(sized, index),
        visible + rest + later + sum(schemas),
    )
    source: Provenance = "derived" if has_recorded_prompt_sizes(session) else "estimated"
    return PromptContents(
        messages=sent,
        visible=visible,
        rest=rest,
        schemas=schemas,
        later=later,
        excess=0 if recorded is None else max(counted - recorded, 0),
        is_smaller_than_log=index is not None and bool(sized.unsent_at[index]),
        prompt=counted if recorded is None else recorded,
        prompt_source=source if recorded is None else "recorded",
        source=source,
        counter=sized.counter,
        error=sized.plain_count_error,
    )


def _sent_messages(session: Session, index: int | None, sized: MessageSizes) -> list[SentMessage]:
    stop = len(session.path) if index is None else session.calls[index].position
    originals = _original_messages(session, stop)
    source_of = {id(m): s for m, s in zip(session.messages, sized.source, strict=True)}
    position_of = {id(e): i for i, e in enumerate(session.path)}
    sent = []
    for message in session.view(index):
        first, by = originals.get(id(message), (message, None))
        size, raw = sized.of(message), sized.of(first)
        sent.append(
            SentMessage(
                message,
                size,
                raw,
                source_of.get(id(message), "estimated"),
                position_of.get(id(first)),
                by,
            )
        )
    return sent


def _original_messages(session: Session, stop: int) -> dict[int, tuple[Message, str | None]]:
    """Return the original of each changed message and what changed it, by the message's `id()`."""
    if not session.edits:
        return {}
    edits_n = sum(not isinstance(e, Message) for e in session.path[:stop])
    by_id = {m.id: m for m in session.messages}
    return {
        id(f.replacement): (by_id[first], f.edit.method or f.state if f.edit else f.state)
        for first, f in get_message_fates(session, edits_n).items()
        if f.replacement is not None and first in by_id
    }


def _has_provider_usage(session: Session, index: int | None) -> bool:
    """Return True if the usage of a call is the provider's own, not modelled by a replay."""
    source = None if index is None else session.calls[index].message.details.get("usage_source")
    return source != "derived"


# Counted sizes are scaled to the prompt's billed (or modelled) size by the largest remainder
# method, with the fixed part as one of the weights, so that the parts add up to the total. A fixed
# part below 0 means that fewer tokens were sent than the messages count: it becomes `excess`.
def _contents_of_run(session: Session, index: int | None, counter: str) -> PromptContents:
    """Return a prompt of a run by its own sizes, scaled where the provider billed the prompt.

    Everything that a live session sent is known, so no tokens are "not in the log".
    """
    items = session.sent(index)
    positions = [i for i, e in enumerate(session.path) if isinstance(e, Message) and e.visible]
    messages = [i for i in items if i.message.kind != _FIXED_KIND]
    fixed = sum(i.tokens for i in items if i.message.kind == _FIXED_KIND)
    if has_live_run(session):
        fixed = session.prompt_source.schemas
    counted = fixed + sum(i.tokens for i in messages)
    size = get_rules_run_prompt_size(session, index, counted)
    total, is_billed = size.tokens, size.source == "recorded"
    sizes = [max(fixed, 0), *(i.tokens for i in messages)]
    if total != counted:
        sizes = split_tokens_by_weight(total, sizes)
    source: Provenance = "derived" if has_recorded_prompt_sizes(session) else "estimated"
    sent = []
    for item, tokens in zip(messages, sizes[1:], strict=True):
        raw = item.raw_tokens if total == counted else item.raw_tokens * total // max(counted, 1)
        is_unchanged = item.changed_by is None
        sent.append(
            SentMessage(
                message=item.message,
                tokens=tokens,
                raw_tokens=tokens if is_unchanged else raw,
                source=source if is_unchanged else "estimated",
                position=positions[item.row] if 0 <= item.row < len(positions) else None,
                changed_by=item.changed_by,
            )
        )
    rest, schemas = separate_schemas(session, sizes[0], is_whole=has_live_run(session))
    return PromptContents(
        messages=tuple(sent),
        visible=sum(sizes[1:]),
        rest=rest,
        schemas=schemas,
        later=0,
        excess=0 if is_billed else max(-fixed, 0),
        is_smaller_than_log=fixed < 0 and not is_billed,
        prompt=total,
        prompt_source="recorded" if is_billed and _has_provider_usage(session, index) else source,
        source=source,
        counter=counter,
        error=counted / total - 1 if counted and is_billed else None,
    )
