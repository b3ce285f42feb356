"""How large each message really was: counts scaled so that what a log recorded of its prompts comes out again.

Between two calls of an agent the prompt grows by what was written in between, so the recorded growth is the true size
of those messages, and a count only says how it is shared among them. A compaction, a change of the model or a prompt
that shrank by itself begins a new stretch: what is new then is measured against everything that was sized before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit.messages import Edit, Message, Source, Thinking
from ctxkit.session import Session, apply_edit
from ctxkit.tokens.catalogue import default

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ctxkit.tokens.counters import Counter

_SUMMARY = 4.0
"""What an edit brought is sized by what is left for it where that is within this factor of its count."""
_LIKELY = 2.0
"""A recorded output is taken for the size of its reply where it and the rest stay within this factor of the count."""


class Sizes(msgspec.Struct, frozen=True, dict=True):
    """The sizes of a session's messages, in tokens, and how well they explain what was recorded."""

    session: Session
    counter: str
    """Name of the counter that shared the growth among messages."""
    tokens: tuple[int, ...]
    """One for each of `session.messages`."""
    source: tuple[Source, ...]
    """For each of them `derived` where recorded usage gave the size, else `estimated`."""
    fixed: int | None
    """What the first prompt held and no log shows (system prompt, tool schemas); None without usage."""
    fixed_at: tuple[int, ...]
    """The same for each call: it differs by agent, and where a model, or what the log does not show, has changed."""
    error: float | None
    """The plain count of all that was anchored, against its recorded size, less 1: -0.25 is a quarter too low."""
    clamped: int
    """Calls whose prompt was smaller than the messages sized before allow, so that nothing could be derived."""
    recorded: tuple[int | None, ...]
    """For each call the recorded size of its prompt; None where there is none that can be used."""
    modelled: tuple[int, ...]
    """For each call what its view and the fixed part sum up to."""
    by_object: dict[int, int]
    """Sizes by identity of the message, those that compactions inserted among them."""

    def of(self, message: Message) -> int:
        """Return the size of a message of the session, or of one that a compaction inserted.

        Raises:
            KeyError: the message is not of this session.
        """
        return self.by_object[id(message)]

    def shown(self, call: int | None = None) -> int:
        """Return the modelled size of the prompt at a call (negatives from the end); None: of the next one."""
        if call is not None:
            return self.modelled[self.session.call(call).index]
        return (self.fixed_at[-1] if self.fixed_at else 0) + sum(self.of(m) for m in self.session.view())

    @property
    def reproduction(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return three arrays: numbers of the calls with a recorded prompt, their modelled and recorded sizes."""
        import numpy as np

        pairs = [(i, m, r) for i, (m, r) in enumerate(zip(self.modelled, self.recorded, strict=True)) if r is not None]
        calls, modelled, recorded = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
        return calls, modelled, recorded


class _Step(msgspec.Struct):
    """A call with a usable prompt size, and what was written since the one before."""

    call: int
    agent: str
    prompt: int
    kind: str
    """`first`, `growth`, `edit` (something was edited since), `switch` (another model) or `drop` (it shrank)."""
    shown: list[int]
    """Slots of what was in the prompt; for `growth` only those written since the call before."""
    before: int = 0
    """Prompt of the call before."""


def sizes(session: Session, counter: Counter | None = None) -> Sizes:
    """Return the size of every message of a session, anchored on the usage that its calls recorded.

    Args:
        session: any session; without usage its plain counts come back, marked estimated.
        counter: shares the growth among messages; the exact o200k_base where its vocabulary is here.
    """
    counter = counter or default()
    slots = _Slots(session, counter)
    steps = list(_steps(session, slots))
    state = _Anchoring(slots)
    error = _error(steps, slots.raw)
    state.ratio = 1.0 if error is None else 1 / (1 + error)
    for step in steps:
        state.take(step)
    state.rest()
    usable = {s.call: s.prompt for s in steps}
    calls = range(len(session.calls))
    fixed_at = _fixed_at(session, state.fixed)
    by_object = {id(m): size for m, size in zip(slots.messages, state.size, strict=True)}
    place = [slots.index[id(m)] for m in session.messages]
    return Sizes(
        session=session,
        counter=counter.name,
        tokens=tuple(state.size[i] for i in place),
        source=tuple("derived" if state.derived[i] else "estimated" for i in place),
        fixed=fixed_at[steps[0].call] if steps else None,
        fixed_at=fixed_at,
        error=error,
        clamped=state.clamped,
        recorded=tuple(usable.get(i) for i in calls),
        modelled=tuple(_modelled(session, by_object, fixed_at)),
        by_object=by_object,
    )


class _Slots:
    """All messages of a session, and those that its edits inserted, each with its plain count."""

    def __init__(self, session: Session, counter: Counter) -> None:
        inserted = [m for e in session.edits for m in e.inserted]
        self.messages = list({id(m): m for m in (*session.messages, *inserted)}.values())
        self.index = {id(m): i for i, m in enumerate(self.messages)}
        self.raw = [counter.message(m) for m in self.messages]


def _prompts(session: Session) -> list[int | None]:
    """Prompt sizes that can be used: not those of calls that failed before they were billed."""
    known = (c.message.usage for c in session.calls)
    return [None if u is None else u.prompt_tokens or None for u in known]


def _steps(session: Session, slots: _Slots) -> Iterator[_Step]:
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
            if prompt is not None and not _bounces(session, prompts, call.index, last.get(call.agent), epoch):
                before = last.get(call.agent)
                kind = _kind(before, prompt, epoch, entry.model)
                new = since[call.agent] if kind == "growth" else [slots.index[id(m)] for m in shown]
                yield _Step(call.index, call.agent, prompt, kind, new, before[0] if before else 0)
                last[call.agent], since[call.agent] = (prompt, epoch, entry.model), []
        if entry.visible:
            shown.append(entry)
            for new in since.values():
                new.append(slots.index[id(entry)])


def _kind(before: tuple[int, int, str | None] | None, prompt: int, epoch: int, model: str | None) -> str:
    if before is None:
        return "first"
    if before[1] != epoch:
        return "edit"
    if before[2] != model and before[2] and model:
        return "switch"
    return "drop" if prompt < before[0] else "growth"


def _bounces(
    session: Session, prompts: Sequence[int | None], index: int, before: tuple[int, int, str | None] | None, epoch: int
) -> bool:
    """True where a prompt is smaller than the one before it and the next is not: a number that says nothing."""
    prompt = prompts[index]
    if before is None or before[1] != epoch or prompt is None or prompt >= before[0]:
        return False
    calls = session.calls
    following = (
        p for c, p in zip(calls[index + 1 :], prompts[index + 1 :], strict=True) if p and c.agent == calls[index].agent
    )
    return next(following, 0) >= before[0]


def _error(steps: list[_Step], raw: list[int]) -> float | None:
    """Counted tokens for each recorded one, over all growth, less 1."""
    growths = [s for s in steps if s.kind == "growth"]
    grown = sum(s.prompt - s.before for s in growths)
    counted = sum(raw[i] for s in growths for i in s.shown)
    return counted / grown - 1 if grown and counted else None


def _fixed_at(session: Session, known: dict[int, tuple[str, int]]) -> tuple[int, ...]:
    """For each call the part that no log shows: that of the agent's last anchor, or of its first one before that."""
    now: dict[str, int] = {}
    for agent, fixed in known.values():
        now.setdefault(agent, fixed)
    out = []
    for call in session.calls:
        if call.index in known:
            now[call.agent] = known[call.index][1]
        out.append(now.get(call.agent, 0))
    return tuple(out)


class _Anchoring:
    """Sizes as they become known, step by step."""

    def __init__(self, slots: _Slots) -> None:
        self.messages, self.raw = slots.messages, slots.raw
        self.ratio = 1.0
        """Recorded tokens for each counted one."""
        self.size = [0] * len(slots.messages)
        self.known = [False] * len(slots.messages)
        self.derived = [False] * len(slots.messages)
        self.now: dict[str, int] = {}
        self.fixed: dict[int, tuple[str, int]] = {}
        """By call: the agent, and what its prompt held from there on that no log shows."""
        self.clamped = 0

    def take(self, step: _Step) -> None:
        new = [i for i in step.shown if not self.known[i]]
        old = sum(self.size[i] for i in step.shown if self.known[i])
        fixed = self.now.get(step.agent, 0)
        grown = step.prompt - old - (step.before if step.kind == "growth" else fixed)
        if step.kind == "growth":
            self._grow(grown, new)
        elif step.kind == "edit" and self._plausible(grown, new):
            self._share(grown, new)
        else:
            self.clamped += step.kind == "drop" or (step.kind == "edit" and grown < 0)
            self._estimate(new)
            shown = old + sum(self.size[i] for i in new)
            if step.kind == "first" and shown > step.prompt:
                self._assign(new, _shares(max(step.prompt - old, 0), [self.raw[i] for i in new]), derived=True)
            fixed = max(step.prompt - shown, 0)
        self.now[step.agent] = fixed
        self.fixed[step.call] = step.agent, fixed

    def _grow(self, growth: int, new: list[int]) -> None:
        if growth < 0 or (growth == 0 and any(self.raw[i] for i in new)):
            self.clamped += 1
            self._estimate(new)
        else:
            self._share(growth, new)

    def _plausible(self, growth: int, new: list[int]) -> bool:
        """True where what an edit brought can be of the size that is left for it; else the unseen part has changed."""
        count = self.ratio * sum(self.raw[i] for i in new)
        return growth == 0 if not new else count / _SUMMARY <= growth <= count * _SUMMARY

    def rest(self) -> None:
        """Give what no later call measured its count times the ratio of all that was; the last reply its output."""
        self._estimate([i for i, known in enumerate(self.known) if not known])

    def _share(self, growth: int, new: list[int]) -> None:
        replies = self._replies(growth, new)
        others = [i for i in new if i not in replies]
        left = growth - sum(replies.values())
        self._assign(list(replies), list(replies.values()), derived=True)
        self._assign(others, _shares(left, [self.raw[i] for i in others]), derived=True)

    def _replies(self, growth: int, new: list[int]) -> dict[int, int]:
        """Recorded outputs of the replies among the new messages, where these and the rest are likely sizes."""
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
        self._assign(new, [round(self.ratio * self.raw[i]) for i in new], derived=False)

    def _assign(self, new: list[int], parts: list[int], *, derived: bool) -> None:
        for i, n in zip(new, parts, strict=True):
            self.size[i], self.known[i], self.derived[i] = n, True, derived


def _output(message: Message) -> int:
    """Recorded output of a reply as far as it goes back into the prompt, or 0."""
    usage = message.usage
    if message.role != "assistant" or usage is None or not usage.output_tokens:
        return 0
    returned = any(isinstance(p, Thinking) for p in message.parts)
    return max(usage.output_tokens - (0 if returned else usage.reasoning_tokens or 0), 0)


def _shares(total: int, weights: list[int]) -> list[int]:
    """Share a whole number by weights: whole, none below zero, exactly summing up (largest remainders first)."""
    if not weights:
        return []
    whole = sum(weights)
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    parts = [total * w // whole for w in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % whole))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts


def _modelled(session: Session, size: dict[int, int], fixed_at: tuple[int, ...]) -> Iterator[int]:
    """Yield for each call the fixed part and the sizes of what its prompt showed."""
    fixed = iter(fixed_at)
    shown: list[Message] = []
    total = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            shown = apply_edit(shown, entry)
            total = sum(size[id(m)] for m in shown)
            continue
        if entry.role == "assistant":
            yield total + next(fixed)
        if entry.visible:
            shown.append(entry)
            total += size[id(entry)]
