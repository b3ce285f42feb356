"""Token sizes of messages scaled to recorded usage, and prompt drops that no edit explains.

Between two calls of an agent the prompt grows by what was written in between, so the recorded
growth is the true size of those messages, and a count only says how it is shared among them. A
compaction, a change of the model or a prompt that shrank by itself begins a new stretch: what is
new then is measured against everything that was sized before.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit.session.messages import Edit, Message, Provenance, SizeOnly
from ctxkit.session.session import Session, apply_edit
from ctxkit.tokens.registry import default_counter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ctxkit.session.session import ModelCall
    from ctxkit.tokens.counters import TokenCounter


__all__ = ["MessageSizes", "measure_sizes"]
__dir__ = public_dir(__all__)


class MessageSizes(msgspec.Struct, frozen=True, dict=True):
    """The sizes of a session's messages, in tokens, and how well they explain what was recorded."""

    session: Session
    counter: str
    """Name of the counter that shared the growth among messages."""
    tokens: tuple[int, ...]
    """One for each of `session.messages`."""
    source: tuple[Provenance, ...]
    """For each of them `derived` where recorded usage gave the size, else `estimated`."""
    fixed: int | None
    """What the first prompt held and no log shows (system prompt, tool schemas); None without
    usage.
    """
    fixed_at: tuple[int, ...]
    """The same for each call: it differs by agent and model, and rises where the log shows less
    than was sent.
    """
    unsent_at: tuple[int, ...]
    """For each call how much of what its view holds was not sent: old results or reasoning that the
    client dropped without a mark. The fixed part keeps its first value meanwhile."""
    error: float | None
    """The plain count of all that was anchored, against its recorded size, less 1: -0.25 is a
    quarter too low.
    """
    clamped: int
    """Calls whose prompt was smaller than the messages sized before allow, so that nothing could be
    derived.
    """
    recorded: tuple[int | None, ...]
    """For each call the recorded size of its prompt; None where there is none that can be used."""
    modelled: tuple[int, ...]
    """For each call what its view and the fixed part sum up to, less what was not sent."""
    inserted: tuple[int, ...]
    """One for each message that the session's edits inserted, in order."""

    @cached_property
    def begun(self) -> tuple[int, ...]:
        """For each call the fixed part with which its agent and model began, under the tools it
        has.
        """
        first: dict[tuple[str, str | None, str | None], int] = {}
        tools, out = None, []
        for c, n in zip(self.session.calls, self.fixed_at, strict=True):
            tools = c.message.details.get(TOOLS_DIGEST_KEY, tools)
            out.append(first.setdefault((c.agent, c.message.model, tools), n))
        return tuple(out)

    @cached_property
    def _by_object(self) -> dict[int, int]:
        """Sizes by identity of the message: an edit may insert one under the id of the one it
        replaces.
        """
        placed = [*self.session.messages, *(m for e in self.session.edits for m in e.inserted)]
        return {id(m): n for m, n in zip(placed, (*self.tokens, *self.inserted), strict=True)}

    def __repr__(self) -> str:
        n, derived = len(self.tokens), self.source.count("derived")
        error = "no growth recorded" if self.error is None else f"plain count {self.error:+.1%}"
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

    def shown(self, call: int | None = None) -> int:
        """Return the modelled size of the prompt at a call (negatives from the end); None: of the
        next one.
        """
        if call is not None:
            return self.modelled[self.session.call(call).index]
        unseen = self.fixed_at[-1] - self.unsent_at[-1] if self.fixed_at else 0
        return max(unseen + sum(self.of(m) for m in self.session.view()), 0)

    @property
    def reproduction(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return three arrays: numbers of the calls with a recorded prompt, their modelled and
        recorded sizes.
        """
        import numpy as np

        pairs = [
            (i, m, r)
            for i, (m, r) in enumerate(zip(self.modelled, self.recorded, strict=True))
            if r is not None
        ]
        calls, modelled, recorded = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
        return calls, modelled, recorded


def measure_sizes(session: Session, counter: TokenCounter | None = None) -> MessageSizes:
    """Return the size of every message of a session, anchored on the usage that its calls recorded.

    Args:
        session: any session; without usage its plain counts come back, marked estimated.
        counter: shares the growth among messages; the exact o200k_base where its vocabulary is
            here.
    """
    counter = counter or default_counter()
    slots = MessageSlots(session, counter)
    steps = list(iter_usage_anchors(session, slots))
    state = SizeAttribution(slots)
    grown, counted = _growth(steps, slots.raw)
    known = grown > 0 and counted > 0
    state.ratio = grown / counted if known else 1.0
    for step in steps:
        state.take(step)
    state.rest()
    usable = {s.call: s.prompt for s in steps}
    calls = range(len(session.calls))
    unseen = _unseen_by_call(session, state.unseen)
    held = _fixed_part_by_call(session, unseen, steps)
    by_object = {id(m): size for m, size in zip(slots.messages, state.size, strict=True)}
    place = [slots.index[id(m)] for m in session.messages]
    return MessageSizes(
        session=session,
        counter=counter.name,
        tokens=tuple(state.size[i] for i in place),
        source=tuple("derived" if state.derived[i] else "estimated" for i in place),
        fixed=max(unseen[steps[0].call], 0) if steps else None,
        fixed_at=held,
        unsent_at=tuple(max(h - n, 0) for h, n in zip(held, unseen, strict=True)),
        error=counted / grown - 1 if known else None,
        clamped=state.clamped,
        recorded=tuple(usable.get(i) for i in calls),
        modelled=tuple(_iter_modelled_prompts(session, by_object, unseen)),
        inserted=tuple(by_object[id(m)] for e in session.edits for m in e.inserted),
    )


def _growth(steps: list[UsageAnchor], raw: list[int]) -> tuple[int, int]:
    """Return by how many tokens prompts grew in all, as recorded and as counted."""
    growths = [s for s in steps if s.kind == "growth"]
    return sum(s.prompt - s.before for s in growths), sum(raw[i] for s in growths for i in s.shown)


def _unseen_by_call(session: Session, known: dict[int, tuple[str, int]]) -> tuple[int, ...]:
    """For each call what no message shows: that of the agent's last anchor, or of its first one
    before that.
    """
    now: dict[str, int] = {}
    for agent, unseen in known.values():
        now.setdefault(agent, unseen)
    out = []
    for call in session.calls:
        if call.index in known:
            now[call.agent] = known[call.index][1]
        out.append(now.get(call.agent, 0))
    return tuple(out)


def _fixed_part_by_call(
    session: Session, unseen: tuple[int, ...], steps: list[UsageAnchor]
) -> tuple[int, ...]:
    """For each call what no message shows, where it does not fall by itself: a client then dropped
    what is shown.
    """
    begins = {s.call for s in steps if s.kind not in ("growth", "drop")}
    now: dict[str, int] = {}
    out = []
    for call, n in zip(session.calls, unseen, strict=True):
        if call.index in begins or call.agent not in now:
            now[call.agent] = max(n, 0)
        out.append(max(n, now[call.agent]))
    return tuple(out)


def _iter_modelled_prompts(
    session: Session, size: dict[int, int], unseen_at: tuple[int, ...]
) -> Iterator[int]:
    """Yield for each call what no message shows and the sizes of what its prompt showed."""
    unseen = iter(unseen_at)
    shown: list[Message] = []
    total = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            shown = apply_edit(shown, entry)
            total = sum(size[id(m)] for m in shown)
            continue
        if entry.role == "assistant":
            yield total + next(unseen)
        if entry.visible:
            shown.append(entry)
            total += size[id(entry)]


TOOLS_DIGEST_KEY = "tools_digest"
"""Where a reply's `details` say that other tools are described from this call on, as
twelve digits.
"""


class MessageSlots:
    """All messages of a session, and those that its edits inserted, each with its plain count."""

    def __init__(self, session: Session, counter: TokenCounter) -> None:
        inserted = [m for e in session.edits for m in e.inserted]
        self.messages = list({id(m): m for m in (*session.messages, *inserted)}.values())
        self.index = {id(m): i for i, m in enumerate(self.messages)}
        self.raw = [counter.message(m) for m in self.messages]


class UsageAnchor(msgspec.Struct):
    """A call with a usable prompt size, and what was written since the one before."""

    call: int
    agent: str
    prompt: int
    kind: str
    """`first`, `growth`, `edit` (something was edited since), `switch` (another model or other
    tools) or `drop` (it shrank)."""
    shown: list[int]
    """Slots of what was in the prompt; for `growth` only those written since the call before."""
    before: int = 0
    """Prompt of the call before."""


def iter_usage_anchors(session: Session, slots: MessageSlots) -> Iterator[UsageAnchor]:
    """Walk the log once and yield its anchors, in order."""
    prompts, calls = _prompts(session), iter(session.calls)
    last: dict[str, tuple[int, int, str | None]] = {}
    since: dict[str, list[int]] = {}
    shown: list[Message] = []
    epoch = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            shown, epoch = apply_edit(shown, entry), epoch + 1
            continue
        if entry.role == "assistant":
            call = next(calls)
            prompt = prompts[call.index]
            if prompt is not None and not _is_spurious_dip(
                session, prompts, call.index, last.get(call.agent), epoch
            ):
                before = last.get(call.agent)
                kind = _anchor_kind(before, prompt, epoch, entry)
                new = since[call.agent] if kind == "growth" else [slots.index[id(m)] for m in shown]
                yield UsageAnchor(
                    call.index, call.agent, prompt, kind, new, before[0] if before else 0
                )
                last[call.agent], since[call.agent] = (prompt, epoch, entry.model), []
        if entry.visible:
            shown.append(entry)
            for new in since.values():
                new.append(slots.index[id(entry)])


def _prompts(session: Session) -> list[int | None]:
    """Prompt sizes that can be used: not those of calls that failed before they were billed."""
    known = (c.message.usage for c in session.calls)
    return [None if u is None else u.prompt_tokens or None for u in known]


def _anchor_kind(
    before: tuple[int, int, str | None] | None, prompt: int, epoch: int, reply: Message
) -> str:
    model = reply.model
    if before is None:
        return "first"
    if TOOLS_DIGEST_KEY in reply.details:
        return "switch"
    if before[1] != epoch:
        return "edit"
    if before[2] != model and before[2] and model:
        return "switch"
    return "drop" if prompt < before[0] else "growth"


def _is_spurious_dip(
    session: Session,
    prompts: Sequence[int | None],
    index: int,
    before: tuple[int, int, str | None] | None,
    epoch: int,
) -> bool:
    """True where a prompt is smaller than the one before it and the next is not: a number that says
    nothing.
    """
    prompt = prompts[index]
    if before is None or before[1] != epoch or prompt is None or prompt >= before[0]:
        return False
    calls = session.calls
    following = (
        p
        for i in range(index + 1, len(calls))
        if (p := prompts[i]) and calls[i].agent == calls[index].agent
    )
    return next(following, 0) >= before[0]


_SUMMARY = 4.0
"""What an edit brought is sized by what is left for it where that is within this factor of its
count.
"""
_LIKELY = 2.0
"""A recorded output is taken for the size of its reply where it and the rest stay within this
factor of the count.
"""


class SizeAttribution:
    """Sizes as they become known, step by step."""

    def __init__(self, slots: MessageSlots) -> None:
        self.messages, self.raw = slots.messages, slots.raw
        self.ratio = 1.0
        """Recorded tokens for each counted one."""
        self.size = [0] * len(slots.messages)
        self.known = [False] * len(slots.messages)
        self.derived = [False] * len(slots.messages)
        self.now: dict[str, int] = {}
        self.unseen: dict[int, tuple[str, int]] = {}
        """By call: the agent, and what its prompt held from there on beside the sizes; negative
        where it held less.
        """
        self.clamped = 0

    def take(self, step: UsageAnchor) -> None:
        """Size what a step brought, and say what its prompt held beside all that is sized."""
        new = [i for i in step.shown if not self.known[i]]
        old = sum(self.size[i] for i in step.shown if self.known[i])
        unseen = self.now.get(step.agent, 0)
        start = step.before if step.kind == "growth" else unseen
        if step.kind == "first":
            self._first(step.prompt - old, new)
        elif step.kind == "growth":
            self._grow(step.prompt - start - old, new)
        elif step.kind == "edit" and self._plausible(step.prompt - start - old, new):
            self._share(step.prompt - start - old, new)
        else:
            self.clamped += step.kind == "drop" or (
                step.kind == "edit" and step.prompt < start + old
            )
            self._estimate(new)
        rest = step.prompt - old - sum(self.size[i] for i in new)
        self.now[step.agent] = unseen + rest - start if step.kind == "growth" else rest
        self.unseen[step.call] = step.agent, self.now[step.agent]

    def _first(self, most: int, new: list[int]) -> None:
        """Size the first prompt by the counts, or by what it held where that is less."""
        self._estimate(new)
        if sum(self.size[i] for i in new) > most:
            self._assign(
                new, split_by_weight(max(most, 0), [self.raw[i] for i in new]), derived=True
            )

    def _grow(self, growth: int, new: list[int]) -> None:
        if growth < 0 or (growth == 0 and any(self.raw[i] for i in new)):
            self.clamped += 1
            self._estimate(new)
        else:
            self._share(growth, new)

    def _plausible(self, growth: int, new: list[int]) -> bool:
        """True where what an edit brought can be of the size that is left for it; else the unseen
        part has changed.
        """
        count = self.ratio * sum(self.raw[i] for i in new)
        return growth == 0 if not new else count / _SUMMARY <= growth <= count * _SUMMARY

    def rest(self) -> None:
        """Give what no later call measured its count times the ratio of all that was; the last
        reply its output.
        """
        self._estimate([i for i, known in enumerate(self.known) if not known])

    def _share(self, growth: int, new: list[int]) -> None:
        replies = self._replies(growth, new)
        others = [i for i in new if i not in replies]
        left = growth - sum(replies.values())
        self._assign(list(replies), list(replies.values()), derived=True)
        self._assign(others, split_by_weight(left, [self.raw[i] for i in others]), derived=True)

    def _replies(self, growth: int, new: list[int]) -> dict[int, int]:
        """Recorded outputs of the replies among the new messages, where these and the rest are
        likely sizes.
        """
        found = {i: n for i in new if (n := _output(self.messages[i]))}
        raw = self.ratio * sum(self.raw[i] for i in found)
        rest = self.ratio * sum(self.raw[i] for i in new if i not in found)
        left = growth - sum(found.values())
        likely = all(self._near(n, self.ratio * self.raw[i]) for i, n in found.items())
        fits = (left == 0 if not rest else self._near(left, rest)) or (raw == 0 and left > 0)
        return found if found and likely and fits else {}

    @staticmethod
    def _near(size: float, count: float) -> bool:
        return count / _LIKELY <= size <= count * _LIKELY

    def _estimate(self, new: list[int]) -> None:
        """Give messages their scaled counts; a size that the log gives is no count and stays."""
        told = [_has_recorded_size(self.messages[i]) for i in new]
        sizes = [
            n if t else round(self.ratio * n)
            for n, t in zip((self.raw[i] for i in new), told, strict=True)
        ]
        self._assign(new, sizes, derived=False)

    def _assign(self, new: list[int], parts: list[int], *, derived: bool) -> None:
        for i, n in zip(new, parts, strict=True):
            self.size[i], self.known[i], self.derived[i] = n, True, derived


def _has_recorded_size(message: Message) -> bool:
    parts = message.parts
    return bool(parts) and all(type(p) is SizeOnly and p.tokens is not None for p in parts)


def _output(message: Message) -> int:
    """Recorded output of a reply as far as it goes back into the prompt, or 0; an
    estimate is none.
    """
    usage = message.usage
    if message.role != "assistant" or usage is None or not usage.output_tokens:
        return 0
    if message.details.get("output_source") == "estimated":
        return 0
    returned = message.thinks
    return max(usage.output_tokens - (0 if returned else usage.reasoning_tokens or 0), 0)


def split_by_weight(total: int, weights: Sequence[int]) -> list[int]:
    """Share a whole number by weights: whole, none below zero, exactly summing up (largest
    remainders first).
    """
    if len(weights) < 2:
        return [total] * len(weights)
    whole = sum(weights)
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    parts = [total * w // whole for w in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % whole))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts


DROP_MIN_SHARE, DROP_MIN_TOKENS = 0.05, 1024
"""A fall of no more than this share of the prompt before, or than so many tokens, is noise."""


class PromptDrop(NamedTuple):
    """One fall of a prompt without a mark."""

    call: ModelCall
    """The first call with the smaller prompt."""
    before: int
    """Prompt of the agent's call before, in tokens."""
    after: int

    @property
    def reason(self) -> str:
        """What was seen, for a person to read."""
        lost = self.before - self.after
        return f"the prompt fell by {lost:,} tokens without a mark in the log"


def find_prompt_drops(session: Session) -> tuple[PromptDrop, ...]:
    """Return the falls of recorded prompts that no edit explains, in order; none of a replay.

    A prompt is held against the one before it by the same agent and model. One that is back at its
    size with the next call says nothing: it was another kind of request.
    """
    if session.format == "replay" or session.origin is not None:
        return ()
    agents = prompt_sizes_by_agent(session)
    edits = [i for i, e in enumerate(session.path) if isinstance(e, Edit)] if agents else []
    found = [fall for calls in agents.values() for fall in _find_agent_drops(calls, edits)]
    return tuple(sorted(found, key=lambda f: f.call.index))


def prompt_sizes_by_agent(session: Session) -> dict[str, list[tuple[ModelCall, int]]]:
    """Return the calls with a recorded prompt, by agent; a record of a whole turn is a bill."""
    out: dict[str, list[tuple[ModelCall, int]]] = {}
    for call in session.calls:
        usage = call.message.usage
        prompt = None if usage is None or call.message.kind == "turn" else usage.prompt_tokens
        if prompt:
            out.setdefault(call.agent, []).append((call, prompt))
    return out


def _find_agent_drops(
    calls: Sequence[tuple[ModelCall, int]], edits: Sequence[int]
) -> Iterator[PromptDrop]:
    last: tuple[ModelCall, int] | None = None
    for i, (call, prompt) in enumerate(calls):
        if last is not None and last[0].message.model == call.message.model:
            before, following = last[1], calls[i + 1][1] if i + 1 < len(calls) else 0
            edited = bisect_left(edits, last[0].position) < bisect_left(edits, call.position)
            if not edited and before - prompt > max(DROP_MIN_SHARE * before, DROP_MIN_TOKENS):
                if following >= before:
                    continue  # the call before stays the one to be held against
                yield PromptDrop(call, before, prompt)
        last = call, prompt
