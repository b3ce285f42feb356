"""Token sizes of messages anchored on recorded usage, and prompt drops that no edit explains."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit._internal.formatting_and_sanitizing import format_change
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.session.compactions_and_prunings import has_new_pruning
from ctxkit.session.messages import WHOLE_PROMPTS_KEY, Edit, Message, Provenance, SizeOnly
from ctxkit.session.session import Session, apply_edit
from ctxkit.tokens.message_token_counting import count_json_chars
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.session.messages import ToolSchema
    from ctxkit.session.session import LogEntry, ModelCall
    from ctxkit.tokens.token_counters import TokenCounter


__all__ = ["MessageSizes", "measure_sizes"]
__dir__ = make_dunder_dir(__all__)

# How messages get their sizes.
#
# A log records the prompt tokens of each call, not those of each message. Between two calls of an
# agent the prompt grows by the messages written since, so their sizes sum up to the recorded growth
# (difference of anchors). A token counter only gives the weights by which it is shared among them
# (largest remainder method). A reply's size is its recorded output where that is likely.
#
# `iter_usage_anchors` makes one pass over the log and yields an anchor for each call with a usable
# prompt. An edit, another model or a prompt that shrank starts again: what is new then is measured
# against all that is sized already. `MessageSizeAllocator` takes the anchors in order. A message
# whose size cannot be derived gets its count times the overall ratio of recorded to counted growth.
#
# Invariants: a message gets one size; sizes are whole and not negative; at each anchor the sizes in
# the prompt plus the unseen part (system prompt, tool schemas) equal the recorded prompt.
# Cost: O(messages) counts, O(log entries) else, and O(visible messages) per edit.


class MessageSizes(msgspec.Struct, frozen=True, dict=True):
    """The sizes of a session's messages, in tokens, and how well they fit the recorded prompts."""

    session: Session
    counter: str
    """Name of the counter whose counts are the weights."""
    tokens: tuple[int, ...]
    """Size of each of `session.messages`."""
    source: tuple[Provenance, ...]
    """For each of them `derived` where recorded usage gave the size, else `estimated`."""
    fixed: int | None
    """Tokens of the first prompt that no message holds (system prompt, tool schemas); None without
    usage.
    """
    fixed_at: tuple[int, ...]
    """The fixed part of each call: it differs by agent and model, and rises if the log shows less
    than was sent.
    """
    unsent_at: tuple[int, ...]
    """For each call the tokens of visible messages that were not sent: old results or reasoning
    that the client dropped without a mark. The fixed part keeps its first value meanwhile.
    """
    plain_count_error: float | None
    """Plain count of all derived growth over its recorded size, less 1: -0.25 is a quarter too low.
    None: no growth is recorded.
    """
    underivable_calls_n: int
    """Calls whose prompt was too small for the messages sized before, so that nothing could be
    derived.
    """
    recorded: tuple[int | None, ...]
    """For each call the recorded size of its prompt; None where it has none that can be used."""
    modelled: tuple[int, ...]
    """For each call the sum of its visible messages and the fixed part, less the unsent."""
    inserted: tuple[int, ...]
    """Size of each message that the session's edits inserted, in order."""

    @cached_property
    def first_fixed_at(self) -> tuple[int, ...]:
        """For each call the first fixed part of its agent, model and set of tools."""
        first: dict[tuple[str, str | None, str | None], int] = {}
        tools, out = None, []
        for c, n in zip(self.session.calls, self.fixed_at, strict=True):
            tools = c.message.details.get(TOOLS_DIGEST_KEY, tools)
            out.append(first.setdefault((c.agent, c.message.model, tools), n))
        return tuple(out)

    @cached_property
    def is_regular(self) -> bool:
        """True if the unseen part changes only with the agent, model or set of tools."""
        return self.unseen_at == self.first_fixed_at

    @cached_property
    def unseen_at(self) -> tuple[int, ...]:
        """For each call the billed prompt tokens beyond its messages (negative: fewer were sent);
        for a call without a bill the modelled ones.
        """
        bills = _recorded_prompts(self.session)
        rows = zip(self.fixed_at, self.unsent_at, self.modelled, bills, strict=True)
        return tuple(
            fixed - unsent + (0 if bill is None else bill - modelled)
            for fixed, unsent, modelled, bill in rows
        )

    @cached_property
    def _by_object(self) -> dict[int, int]:
        """Sizes by the identity of messages, as an edit may insert one under the id of another."""
        messages = [*self.session.messages, *(m for e in self.session.edits for m in e.inserted)]
        return {id(m): n for m, n in zip(messages, (*self.tokens, *self.inserted), strict=True)}

    def __repr__(self) -> str:
        n, derived = len(self.tokens), self.source.count("derived")
        error = (
            "no growth recorded"
            if self.plain_count_error is None
            else f"plain count {format_change(self.plain_count_error, 1)}"
        )
        return (
            f"<Sizes of {self.session.id}: {n} messages, {derived} derived, fixed {self.fixed},"
            f" {error}>"
        )

    def of(self, message: Message) -> int:
        """Return the size of a message of the session, or of one that a compaction inserted.

        Raises:
            KeyError: the message is not of this session.
        """
        return self._by_object[id(message)]

    def sum_of(self, messages: Iterable[Message]) -> int:
        """Return the sum of the sizes of messages, as `of` gives each."""
        return sum(map(self._by_object.__getitem__, map(id, messages)))

    def modelled_tokens(self, call: int | None = None) -> int:
        """Return the modelled tokens of a call's prompt.

        Args:
            call: number of the call, negatives from the end; None: the next call.
        """
        if call is not None:
            return self.modelled[self.session.call(call).index]
        unseen = self.fixed_at[-1] - self.unsent_at[-1] if self.fixed_at else 0
        return max(unseen + sum(self.of(m) for m in self.session.view()), 0)


def measure_sizes(session: Session, counter: TokenCounter | None = None) -> MessageSizes:
    """Measure every message of a session in tokens, anchored on the recorded usage.

    Args:
        session: any session; without usage the sizes are plain counts, marked `estimated`.
        counter: gives the weights of messages; None: the exact o200k_base where its vocabulary is
            installed, else `chars/4`; these sizes are cached in the session.

    Returns:
        The sizes of all messages, and the fixed part of each prompt.

    Example:
        >>> import ctxkit as ck
        >>> sizes = measure_sizes(ck.read(ck.samples.path("billing")))
        >>> len(sizes.tokens) == len(sizes.session.messages)
        True
    """
    if counter is not None:
        return _measure_with(session, counter)
    default = default_counter()
    cached: MessageSizes | None = session.__dict__.get("message sizes")
    if cached is None or cached.counter != default.name:
        cached = session.__dict__["message sizes"] = _measure_with(session, default)
    return cached


def _measure_with(session: Session, counter: TokenCounter) -> MessageSizes:
    slots = CountedMessages(session, counter)
    anchors = list(iter_usage_anchors(session, slots))
    schemas = 0 if anchors else sum(estimate_tool_tokens(session.tools))
    recorded_growth, counted_growth = _total_growth(anchors, slots.raw)
    if not anchors:
        recorded_growth, counted_growth = _stated_total(session, slots, schemas)
    has_growth = recorded_growth > 0 and counted_growth > 0
    ratio = recorded_growth / counted_growth if has_growth else 1.0
    is_whole = session.details.get(WHOLE_PROMPTS_KEY) is True
    attribution = MessageSizeAllocator(
        slots, ratio, sum(estimate_tool_tokens(session.tools)) if is_whole else None
    )
    for anchor in anchors:
        attribution.add_anchor(anchor)
    attribution.estimate_rest()
    unseen_at = (
        _unseen_by_call(session, attribution.unseen) if anchors else (schemas,) * len(session.calls)
    )
    fixed_at = _fixed_part_by_call(session, unseen_at, anchors)
    size_of = slots.by_object(attribution.size)
    index = [slots.index[id(m)] for m in session.messages]
    prompt_of_call = {anchor.call: anchor.prompt for anchor in anchors}
    return MessageSizes(
        session=session,
        counter=counter.name,
        tokens=tuple(attribution.size[i] for i in index),
        source=tuple("derived" if attribution.derived[i] else "estimated" for i in index),
        fixed=max(unseen_at[anchors[0].call], 0) if anchors else None,
        fixed_at=fixed_at,
        unsent_at=tuple(max(f - n, 0) for f, n in zip(fixed_at, unseen_at, strict=True)),
        plain_count_error=counted_growth / recorded_growth - 1 if has_growth else None,
        underivable_calls_n=attribution.clamped,
        recorded=tuple(prompt_of_call.get(i) for i in range(len(session.calls))),
        modelled=tuple(_iter_modelled_prompts(session, size_of, unseen_at)),
        inserted=tuple(size_of[id(m)] for e in session.edits for m in e.inserted),
    )


def estimate_tool_tokens(tools: Iterable[ToolSchema]) -> list[int]:
    """Estimate the tokens of each tool schema without a bill: a quarter of its characters."""
    return [-(-count_schema_chars(tool) // 4) for tool in tools]


def is_count_near(recorded: int, counted: int) -> bool:
    """Return whether counting error alone can explain a count's difference from the record.

    Args:
        recorded: tokens that the record gives.
        counted: tokens that the counter gives for the same messages.

    Returns:
        True within the error that counters have for other providers' tokenizers.
    """
    return 0 < counted / MAX_COUNT_FACTOR <= recorded <= counted * MAX_COUNT_FACTOR


MAX_COUNT_FACTOR = 2.0
"""Largest ratio of recorded to counted tokens that another tokenizer alone can explain."""


def count_schema_chars(tool: ToolSchema) -> int:
    """Return the characters of a tool's schema as JSON, as logged or from its logged parts."""
    if tool.chars is not None:
        return tool.chars
    return len(tool.name) + len(tool.description) + count_json_chars(tool.parameters)


def has_mask_processor(session: Session) -> bool:
    """Return True where a history processor masked results of a record, as inferred from it."""
    processor = session.details.get("history_processor", {})
    return session.origin is None and processor.get("name") == "swe_agent_mask"


_MAX_COUNT_FACTOR = 1.3
"""Largest ratio of stated tokens to counted ones that differences in counting alone can explain."""


def _stated_total(session: Session, slots: CountedMessages, schemas: int) -> tuple[int, int]:
    """Return the prompt tokens that a log records only as a total of the run, and the counted ones.

    Both are 0 if it records no total, or if counting error does not explain the difference, for
    example when the agent sent less than the log shows.
    """
    stated = session.details.get("input_tokens")
    size_of = slots.by_object(slots.raw)
    if not isinstance(stated, int):
        return 0, 0
    unseen = (schemas,) * len(session.calls)
    counted = sum(_iter_modelled_prompts(session, size_of, unseen)) - _count_masked(
        session, size_of
    )
    is_alike = counted > 0 and 1 / _MAX_COUNT_FACTOR < stated / counted < _MAX_COUNT_FACTOR
    return (stated, counted) if is_alike else (0, 0)


_MASKED_LINE_TOKENS = 12
"""Tokens of the line with which a history processor replaces a result."""


def _count_masked(session: Session, size_of: dict[int, int]) -> int:
    """Return the tokens of all prompts that a record's history processor masked; 0 without one."""
    if not has_mask_processor(session):
        return 0
    n_results: int = session.details["history_processor"].get("n", 0)
    results: list[int] = []
    masked = total = 0
    for message in session.messages:
        if message.role == "assistant":
            total += masked
        elif message.role == "tool" and message.visible:
            results.append(max(size_of[id(message)] - _MASKED_LINE_TOKENS, 0))
            masked += results[-n_results - 1] if n_results and len(results) > n_results else 0
    return total


def _total_growth(anchors: list[UsageAnchor], counts: list[int]) -> tuple[int, int]:
    """Return by how many tokens prompts grew in all, as recorded and as counted."""
    growths = [a for a in anchors if a.kind == "growth"]
    recorded = sum(a.prompt - a.before for a in growths)
    return recorded, sum(counts[i] for a in growths for i in a.slots)


def _unseen_by_call(session: Session, at_anchors: dict[int, tuple[str, int]]) -> tuple[int, ...]:
    """Return for each call the tokens that no message shows: those of its agent's last anchor, or
    of its first one for the calls before that.
    """
    current: dict[str, int] = {}
    for agent, unseen in at_anchors.values():
        current.setdefault(agent, unseen)
    out = []
    for call in session.calls:
        if call.index in at_anchors:
            current[call.agent] = at_anchors[call.index][1]
        out.append(current.get(call.agent, 0))
    return tuple(out)


def _fixed_part_by_call(
    session: Session, unseen_at: tuple[int, ...], anchors: list[UsageAnchor]
) -> tuple[int, ...]:
    """Return the fixed part of each call: the unseen tokens, but at least those at the agent's
    last `first`, `edit` or `switch` anchor. Where they are fewer, the client dropped messages.
    """
    beginnings = {a.call for a in anchors if a.kind not in ("growth", "drop")}
    floor: dict[str, int] = {}
    out = []
    for call, unseen in zip(session.calls, unseen_at, strict=True):
        if call.index in beginnings or call.agent not in floor:
            floor[call.agent] = max(unseen, 0)
        out.append(max(unseen, floor[call.agent]))
    return tuple(out)


def _iter_modelled_prompts(
    session: Session, size_of: dict[int, int], unseen_at: tuple[int, ...]
) -> Iterator[int]:
    """Yield for each call the sum of its visible messages and the unseen tokens."""
    unseen = iter(unseen_at)
    visible: list[Message] = []
    total = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            visible = apply_edit(visible, entry)
            total = sum(size_of[id(m)] for m in visible)
            continue
        if entry.role == "assistant":
            yield total + next(unseen)
        if entry.visible:
            visible.append(entry)
            total += size_of[id(entry)]


TOOLS_DIGEST_KEY = "tools_digest"
"""Key of a reply's `details` for a digest of the tools, where they change from this call on."""


class CountedMessages:
    """All messages of a session, and those that its edits inserted, each with its plain count.

    A message that an edit inserts again as it was has one slot: in a live session it is one object,
    and in a log that is read back there are several equal ones.
    """

    def __init__(self, session: Session, counter: TokenCounter) -> None:
        self.messages: list[Message] = []
        self.index: dict[int, int] = {}
        """Slot of each message, by the identity of the object."""
        slots_of_id: dict[str, list[int]] = {}
        for message in session.messages:
            self._add(message, slots_of_id)
        for message in (m for e in session.edits for m in e.inserted):
            same = (i for i in slots_of_id.get(message.id, ()) if self.messages[i] == message)
            slot = next(same, None) if id(message) not in self.index else self.index[id(message)]
            if slot is None:
                self._add(message, slots_of_id)
            else:
                self.index[id(message)] = slot
        self.raw = [counter.message(m) for m in self.messages]

    def _add(self, message: Message, slots_of_id: dict[str, list[int]]) -> None:
        if id(message) not in self.index:
            self.index[id(message)] = len(self.messages)
            slots_of_id.setdefault(message.id, []).append(len(self.messages))
            self.messages.append(message)

    def by_object(self, sizes: Sequence[int]) -> dict[int, int]:
        """Return the sizes of slots by the identity of their messages."""
        return {key: sizes[slot] for key, slot in self.index.items()}


class UsageAnchor(msgspec.Struct):
    """A call with a usable prompt size, and the messages that it is compared with."""

    call: int
    agent: str
    prompt: int
    """Recorded tokens of the prompt."""
    kind: str
    """`first`, `growth`, `edit` (something was edited since), `switch` (another model or other
    tools) or `drop` (it shrank).
    """
    slots: list[int]
    """Slots of the visible messages; for `growth` only of those written since the call before."""
    before: int = 0
    """Prompt of the agent's call before."""
    continues: bool = False
    """True where `slots` lacks the messages of the last anchor that is no `growth`: they are sized,
    and no edit came since.
    """


class _LastPrompt(NamedTuple):
    """The last usable prompt of an agent."""

    prompt: int
    epoch: int
    """How many edits came before it."""
    model: str | None


def iter_usage_anchors(session: Session, slots: CountedMessages) -> Iterator[UsageAnchor]:
    """Yield the anchors of a log in order, in one pass.

    Args:
        session: a recorded session.
        slots: the messages with their counted tokens.
    """
    prompts, calls = _recorded_prompts(session), iter(session.calls)
    last_of_agent: dict[str, _LastPrompt] = {}
    since: dict[str, list[int]] = {}
    """Slots of the visible messages since each agent's last anchor."""
    visible: list[Message] = []
    epoch = sized = 0  # edits so far, and the number of visible messages sized since the last one
    for entry in session.path:
        if isinstance(entry, Edit):
            visible, epoch, sized = apply_edit(visible, entry), epoch + 1, 0
            continue
        if entry.role == "assistant":
            call = next(calls)
            prompt, last = prompts[call.index], last_of_agent.get(call.agent)
            if prompt is not None and not _is_spurious_dip(
                session, prompts, call.index, last, epoch
            ):
                kind = _anchor_kind(last, prompt, epoch, entry)
                before, continues = last.prompt if last else 0, kind != "growth" and sized > 0
                if kind == "growth":
                    new = since[call.agent]
                else:
                    new, sized = [slots.index[id(m)] for m in visible[sized:]], len(visible)
                yield UsageAnchor(call.index, call.agent, prompt, kind, new, before, continues)
                last_of_agent[call.agent] = _LastPrompt(prompt, epoch, entry.model)
                since[call.agent] = []
        if entry.visible:
            visible.append(entry)
            for new in since.values():
                new.append(slots.index[id(entry)])


def _recorded_prompts(session: Session) -> list[int | None]:
    """Return the usable prompt sizes: none of calls that failed before they were billed, and none
    of replies whose usage is the sum of a whole turn.
    """
    return [c.message.prompt_tokens or None for c in session.calls]


def _anchor_kind(last: _LastPrompt | None, prompt: int, epoch: int, reply: Message) -> str:
    if last is None:
        return "first"
    if TOOLS_DIGEST_KEY in reply.details:
        return "switch"
    if last.epoch != epoch:
        return "edit"
    if last.model and reply.model and last.model != reply.model:
        return "switch"
    return "drop" if prompt < last.prompt else "growth"


def _is_spurious_dip(
    session: Session,
    prompts: Sequence[int | None],
    index: int,
    last: _LastPrompt | None,
    epoch: int,
) -> bool:
    """Return whether a prompt is smaller than the one before it while the next one is not.

    Such a number says nothing of the messages: it was another kind of request.
    """
    prompt = prompts[index]
    if last is None or last.epoch != epoch or prompt is None or prompt >= last.prompt:
        return False
    calls = session.calls
    following = (
        p
        for i in range(index + 1, len(calls))
        if (p := prompts[i]) and calls[i].agent == calls[index].agent
    )
    return next(following, 0) >= last.prompt


_MAX_EDIT_FACTOR = 4.0
"""Messages that an edit inserted get the tokens that are left for them where these are within this
factor of their count.
"""
_MAX_REPLY_FACTOR = 2.0
"""A recorded output is taken for the size of its reply where it and the rest are within this factor
of their counts.
"""


class MessageSizeAllocator:
    """The sizes of messages as they become known, anchor by anchor.

    Args:
        slots: the messages with their counts.
        ratio: recorded tokens per counted token.
        schemas: counted tokens of the tool schemas where the log has whole prompts, so that nothing
            else can be in the first one; else None.
    """

    def __init__(self, slots: CountedMessages, ratio: float, schemas: int | None = None) -> None:
        self.messages, self.counts, self.ratio = slots.messages, slots.raw, ratio
        self.schemas = schemas
        self.size = [0] * len(slots.messages)
        self.is_sized = [False] * len(slots.messages)
        self.derived = [False] * len(slots.messages)
        self.unseen: dict[int, tuple[str, int]] = {}
        """By call: the agent, and the tokens of its prompt beyond the sized messages; negative
        where the prompt was smaller than these.
        """
        self._unseen_of_agent: dict[str, int] = {}
        self._visible_tokens = 0
        """Tokens of the messages that were visible at the last anchor that is no `growth`."""
        self.clamped = 0

    def add_anchor(self, anchor: UsageAnchor) -> None:
        """Size the messages that are new at an anchor, and note the unseen part of its prompt."""
        new = [i for i in anchor.slots if not self.is_sized[i]]
        old_tokens = sum(self.size[i] for i in anchor.slots if self.is_sized[i])
        old_tokens += self._visible_tokens if anchor.continues else 0
        unseen = self._unseen_of_agent.get(anchor.agent, 0)
        is_growth = anchor.kind == "growth"
        base = anchor.before if is_growth else unseen
        new_tokens = anchor.prompt - base - old_tokens
        if anchor.kind == "first":
            self._size_first_prompt(anchor.prompt - old_tokens, new)
        elif is_growth:
            self._size_growth(new_tokens, new)
        elif anchor.kind == "edit" and self._is_plausible(new_tokens, new):
            self._share(new_tokens, new)
        else:
            self.clamped += anchor.kind == "drop" or (anchor.kind == "edit" and new_tokens < 0)
            self._estimate(new)
        tokens = old_tokens + sum(self.size[i] for i in new)
        self._visible_tokens = self._visible_tokens if is_growth else tokens
        rest = anchor.prompt - tokens
        self._unseen_of_agent[anchor.agent] = unseen + rest - base if is_growth else rest
        self.unseen[anchor.call] = anchor.agent, self._unseen_of_agent[anchor.agent]

    def estimate_rest(self) -> None:
        """Estimate the messages that no anchor measured."""
        self._estimate([i for i, is_sized in enumerate(self.is_sized) if not is_sized])

    def _size_first_prompt(self, max_tokens: int, new: list[int]) -> None:
        """Size the first prompt by the counts, or by its recorded tokens where these are less.

        Of a whole prompt messages and schemas share the recorded tokens, as far as counting can be
        off.
        """
        counts = [self.counts[i] for i in new]
        if self.schemas is not None and is_count_near(max_tokens, sum(counts) + self.schemas):
            *parts, _ = split_by_weight(max_tokens, [*counts, self.schemas])
            self._assign(new, parts, derived=True)
            return
        self._estimate(new)
        if sum(self.size[i] for i in new) > max_tokens:
            parts = split_by_weight(max(max_tokens, 0), [self.counts[i] for i in new])
            self._assign(new, parts, derived=True)

    def _size_growth(self, growth: int, new: list[int]) -> None:
        if growth < 0 or (growth == 0 and any(self.counts[i] for i in new)):
            self.clamped += 1
            self._estimate(new)
        else:
            self._share(growth, new)

    def _is_plausible(self, growth: int, new: list[int]) -> bool:
        """Return whether messages after an edit can have the tokens left for them; if not, the
        unseen part has changed.
        """
        count = self.ratio * sum(self.counts[i] for i in new)
        return count / _MAX_EDIT_FACTOR <= growth <= count * _MAX_EDIT_FACTOR if new else not growth

    def _share(self, growth: int, new: list[int]) -> None:
        """Give replies their recorded outputs, and share the rest of a growth by counts."""
        outputs = self._reply_outputs(growth, new)
        others = [i for i in new if i not in outputs]
        rest = growth - sum(outputs.values())
        self._assign(list(outputs), list(outputs.values()), derived=True)
        parts = split_by_weight(rest, [self.counts[i] for i in others])
        self._assign(others, parts, derived=True)

    def _reply_outputs(self, growth: int, new: list[int]) -> dict[int, int]:
        """Return the recorded outputs of the new replies, by slot; none where these, or what is
        left for the other messages, are unlikely sizes.
        """
        counts = self.counts
        outputs = {i: n for i in new if (n := _returned_output(self.messages[i]))}
        reply_count = self.ratio * sum([counts[i] for i in outputs])
        other_count = self.ratio * sum([counts[i] for i in new if i not in outputs])
        rest = growth - sum(outputs.values())
        is_likely = all(self._is_near(n, self.ratio * counts[i]) for i, n in outputs.items())
        fits = self._is_near(rest, other_count) if other_count else rest == 0
        fits = fits or (reply_count == 0 and rest > 0)
        return outputs if is_likely and fits else {}

    @staticmethod
    def _is_near(size: float, count: float) -> bool:
        return count / _MAX_REPLY_FACTOR <= size <= count * _MAX_REPLY_FACTOR

    def _estimate(self, new: list[int]) -> None:
        """Give messages their scaled counts; a size that the log records stays as it is."""
        sizes = [
            self.counts[i]
            if _has_recorded_size(self.messages[i])
            else round(self.ratio * self.counts[i])
            for i in new
        ]
        self._assign(new, sizes, derived=False)

    def _assign(self, new: list[int], sizes: list[int], *, derived: bool) -> None:
        size_of, is_sized, is_derived = self.size, self.is_sized, self.derived
        for i, size in zip(new, sizes, strict=True):
            size_of[i], is_sized[i], is_derived[i] = size, True, derived


def _has_recorded_size(message: Message) -> bool:
    parts = message.parts
    return bool(parts) and all(type(p) is SizeOnly and p.tokens is not None for p in parts)


def _returned_output(message: Message) -> int:
    """Return the recorded output of a reply that goes back into the prompt, in tokens; 0 where it
    is unknown or estimated.
    """
    usage = message.usage
    if message.role != "assistant" or usage is None or not usage.output_tokens:
        return 0
    if message.details.get("output_source") == "estimated":
        return 0
    unreturned = 0 if message.thinks else usage.reasoning_tokens or 0
    return max(usage.output_tokens - unreturned, 0)


def split_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """Split a whole number by weights into whole parts that sum up to it (largest remainders).

    Args:
        total: the number to split.
        weights: one weight a part.

    Returns:
        One number a weight.
    """
    if len(weights) < 2:
        return [total] * len(weights)
    weight_sum = sum(weights)
    if weight_sum == 0:
        weights, weight_sum = [1] * len(weights), len(weights)
    parts = [total * w // weight_sum for w in weights]
    if missing := total - sum(parts):
        by_remainder = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % weight_sum))
        for i in by_remainder[:missing]:
            parts[i] += 1
    return parts


DROP_MIN_SHARE, DROP_MIN_TOKENS = 0.05, 1024
"""A drop of at most this share of the prompt before, or of at most so many tokens, is noise."""


class PromptDrop(NamedTuple):
    """A prompt that is smaller than the one before it without an edit in the log."""

    call: ModelCall
    """The first call with the smaller prompt."""
    before: int
    """Tokens of the prompt of the agent's call before."""
    after: int
    """Tokens of its own prompt."""

    @property
    def reason(self) -> str:
        """The observation as a phrase for a person to read."""
        lost = self.before - self.after
        return f"the prompt fell by {lost:,} tokens without a mark in the log"


def find_prompt_drops(session: Session) -> tuple[PromptDrop, ...]:
    """Find the drops of recorded prompts that no edit or recorded pruning explains, in order.

    A replay has none.

    A prompt is compared with the one before it of the same agent and model. A smaller prompt after
    which the next one is as large as before is no drop: it was another kind of request.

    Args:
        session: a recorded session with usage.

    Returns:
        Each drop: its call, and the tokens of the prompts before and after.
    """
    if session.format == "replay" or session.origin is not None:
        return ()
    agents = group_prompts_by_agent(session)
    if not agents:
        return ()
    marks = [
        i
        for i, e in enumerate(session.path)
        if (type(e) is Edit or e.details) and _explains_drop(e)
    ]
    drops = [drop for calls in agents.values() for drop in _find_agent_drops(calls, marks)]
    return tuple(sorted(drops, key=lambda drop: drop.call.index))


def group_prompts_by_agent(session: Session) -> dict[str, list[tuple[ModelCall, int]]]:
    """Return the calls with a recorded prompt, by agent; records of whole turns are left out.

    Args:
        session: a recorded session.

    Returns:
        By agent the calls in order, each with the tokens of its prompt.
    """
    out: dict[str, list[tuple[ModelCall, int]]] = {}
    for call in session.calls:
        prompt = call.message.prompt_tokens
        if prompt:
            out.setdefault(call.agent, []).append((call, prompt))
    return out


def _explains_drop(entry: LogEntry) -> bool:
    """Return whether an entry shows why a prompt fell: a compaction, or a reply's own pruning."""
    return isinstance(entry, Edit) or has_new_pruning(entry)


def _find_agent_drops(
    calls: Sequence[tuple[ModelCall, int]], marks: Sequence[int]
) -> Iterator[PromptDrop]:
    last: tuple[ModelCall, int] | None = None
    for i, (call, prompt) in enumerate(calls):
        if last is not None and last[0].message.model == call.message.model:
            before, following = last[1], calls[i + 1][1] if i + 1 < len(calls) else 0
            # the reply of the last prompt is no mark of this one, that of this prompt is
            first, stop = last[0].position + 1, call.position + 1
            is_explained = bisect_left(marks, first) < bisect_left(marks, stop)
            if not is_explained and before - prompt > max(DROP_MIN_SHARE * before, DROP_MIN_TOKENS):
                if following >= before:
                    continue  # the next prompt is compared with the one before this
                yield PromptDrop(call, before, prompt)
        last = call, prompt
