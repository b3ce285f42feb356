"""How large each message really was: counts scaled so that what a log recorded of its prompts comes
out again.

Between two calls of an agent the prompt grows by what was written in between, so the recorded
growth is the true size of those messages, and a count only says how it is shared among them. A
compaction, a change of the model or a prompt that shrank by itself begins a new stretch: what is
new then is measured against everything that was sized before.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ctxkit.faces import listed
from ctxkit.messages import Edit, Message, Source
from ctxkit.session import Session, apply_edit
from ctxkit.sizes.anchors import TOOLS, AnchorStep, Slots, steps_of
from ctxkit.sizes.sharing import Anchoring
from ctxkit.tokens.counter_names import default

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from ctxkit.tokens.counters import Counter

__all__ = ["Sizes", "sizes"]
__dir__ = listed(__all__)


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
            tools = c.message.details.get(TOOLS, tools)
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


def sizes(session: Session, counter: Counter | None = None) -> Sizes:
    """Return the size of every message of a session, anchored on the usage that its calls recorded.

    Args:
        session: any session; without usage its plain counts come back, marked estimated.
        counter: shares the growth among messages; the exact o200k_base where its vocabulary is
            here.
    """
    counter = counter or default()
    slots = Slots(session, counter)
    steps = list(steps_of(session, slots))
    state = Anchoring(slots)
    grown, counted = _growth(steps, slots.raw)
    known = grown > 0 and counted > 0
    state.ratio = grown / counted if known else 1.0
    for step in steps:
        state.take(step)
    state.rest()
    usable = {s.call: s.prompt for s in steps}
    calls = range(len(session.calls))
    unseen = _unseen_at(session, state.unseen)
    held = _held(session, unseen, steps)
    by_object = {id(m): size for m, size in zip(slots.messages, state.size, strict=True)}
    place = [slots.index[id(m)] for m in session.messages]
    return Sizes(
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
        modelled=tuple(_modelled(session, by_object, unseen)),
        inserted=tuple(by_object[id(m)] for e in session.edits for m in e.inserted),
    )


def _growth(steps: list[AnchorStep], raw: list[int]) -> tuple[int, int]:
    """Return by how many tokens prompts grew in all, as recorded and as counted."""
    growths = [s for s in steps if s.kind == "growth"]
    return sum(s.prompt - s.before for s in growths), sum(raw[i] for s in growths for i in s.shown)


def _unseen_at(session: Session, known: dict[int, tuple[str, int]]) -> tuple[int, ...]:
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


def _held(session: Session, unseen: tuple[int, ...], steps: list[AnchorStep]) -> tuple[int, ...]:
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


def _modelled(session: Session, size: dict[int, int], unseen_at: tuple[int, ...]) -> Iterator[int]:
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
