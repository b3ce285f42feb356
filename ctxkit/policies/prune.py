"""The AI SDK's `pruneMessages`: drop reasoning and tool calls from all but the last messages, then what is empty."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies import contents
from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

_MODE = re.compile(r"none|all|before-last-message|before-last-(\d+)-messages")


@dataclass(frozen=True, kw_only=True, repr=False)
class Prune(Traced, Setting):
    """Drop tool calls with their results, and reasoning, from what lies before the last messages.

    A call is kept where its own id occurs among the last messages, so a call just before them survives with its result.
    The results of one reply count as one message, as they are one in the AI SDK.
    """

    tool_calls: str = "none"
    """`none`, `all`, `before-last-message` or `before-last-N-messages` (N = 0 drops nothing, as in the SDK)."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools that this concerns."""
    reasoning: Literal["none", "all", "before-last-message"] = "none"
    """Whose reasoning is dropped."""
    empty_messages: Literal["remove", "keep"] = "remove"
    """What becomes of messages that hold nothing afterwards."""

    def __post_init__(self) -> None:
        if not _MODE.fullmatch(self.tool_calls):
            raise BadArguments(f"Prune knows none, all, before-last-N-messages, not {self.tool_calls!r}.")
        if self.reasoning not in ("none", "all", "before-last-message"):
            raise BadArguments(f"Prune knows reasoning none, all, before-last-message, not {self.reasoning!r}.")
        if self.empty_messages not in ("remove", "keep"):
            raise BadArguments(f"Prune knows empty_messages remove and keep, not {self.empty_messages!r}.")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history without them."""
        return history.replace(dict(self._changes(history)), reason=self.tool_calls) if len(history) else history

    def _changes(self, history: History) -> dict[int, Message | None]:
        messages, stays = history.messages, history.stays
        units = self._units(messages)
        gone = self._dropped(messages, units, [bool(s) for s in stays])
        changes: dict[int, Message | None] = {}
        for p, message in enumerate(messages):
            new = self._left(message, gone, last=p == len(messages) - 1, stays=bool(stays[p]))
            if new is not message:
                changes[p] = new
        return changes

    def _left(self, message: Message, gone: frozenset[str], *, last: bool, stays: bool) -> Message | None:
        """Return what is left of a message without these calls."""
        new = message
        if message.role == "tool" and message.call_id in gone:
            return None
        if message.role == "assistant":
            new = contents.without_calls(message, gone)
            if self.reasoning == "all" or (self.reasoning != "none" and not last):
                new = contents.without_reasoning(new)
        return None if self.empty_messages == "remove" and contents.is_empty(new) and not stays else new

    changes = ("assistant", "tool")
    removes = True

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each message loses its calls: as soon as no message that names them is among the last."""
        if course.states:
            raise Untraceable
        messages = course.messages
        times = self._times(course, messages)
        for p, message in enumerate(messages):
            ids = [c.id for c in message.tool_calls] if message.role == "assistant" else [message.call_id or ""]
            spans = {i: times[i] for i in ids if times.get(i)}
            if not spans and message.role == "tool":
                continue
            begin, later = int(course.arrive[p]), inf
            if self.reasoning == "before-last-message" and p + 1 < len(messages):
                later = float(course.arrive[p + 1])
            bounds = {begin, later, *(float(t) for of in spans.values() for span in of for t in span)}
            at = [*sorted(t for t in bounds if begin <= t < inf), inf]
            for start, stop in pairwise(at):
                gone = frozenset(i for i, of in spans.items() if any(a <= start < b for a, b in of))
                course.change(p, start, self._make(gone, last=start < later), stop=stop, smaller=False)

    def _make(self, gone: frozenset[str], *, last: bool) -> Callable[[Message], Message | None]:
        return lambda m: self._left(m, gone, last=last, stays=False)

    def _times(self, course: Course, messages: tuple[Message, ...]) -> dict[str, list[tuple[float, float]]]:
        """Return for each call id from which to which call it is gone; a late result brings its call back."""
        match = _MODE.fullmatch(self.tool_calls)
        if self.tool_calls == "none" or match is None or match[1] == "0" or not messages:
            return {}
        last = 0 if self.tool_calls == "all" else int(match[1] or 1)
        units = np.array(self._units(messages))
        firsts = np.where(course.count > 0, units[np.maximum(course.count - 1, 0)] + 1 - last, -1)
        where: dict[str, list[int]] = {}
        for p, m in enumerate(messages):
            for i in (*(c.id for c in m.tool_calls), *([m.call_id] if m.call_id is not None else ())):
                where.setdefault(i, []).append(p)
        named = self._named(messages, where)
        passed = np.searchsorted(firsts, units, side="right")  # the first call to which each is none of the last
        return {i: _gone(places, course, passed) for i, places in where.items() if self._concerns(named.get(i, ""))}

    def _named(self, messages: tuple[Message, ...], where: dict[str, list[int]]) -> dict[str, str]:
        """Return the tool of each call id; ids that are used twice, or answered first, matter where tools are named."""
        named: dict[str, str] = {}
        for p, m in enumerate(messages):
            for call in m.tool_calls:
                if self.tools != ("*",) and (call.id in named or where[call.id][0] != p):
                    raise Untraceable
                named[call.id] = call.name
        return named

    def _units(self, messages: tuple[Message, ...]) -> list[int]:
        """Return for each message which message of the SDK it is in: results in a row are one."""
        out: list[int] = []
        for i, m in enumerate(messages):
            joined = i and m.role == "tool" and messages[i - 1].role == "tool"
            out.append(out[-1] if joined else (out[-1] + 1 if out else 0))
        return out

    def _dropped(self, messages: tuple[Message, ...], units: list[int], stays: list[bool]) -> frozenset[str]:
        """Return the ids of the calls that go."""
        match = _MODE.fullmatch(self.tool_calls)
        if self.tool_calls == "none" or match is None or match[1] == "0":
            return frozenset()
        last = 0 if self.tool_calls == "all" else int(match[1] or 1)
        first = units[-1] + 1 - last
        kept = {m.call_id for m, u, s in zip(messages, units, stays, strict=True) if s or u >= first}
        named: dict[str, str] = {}
        for m, u, s in zip(messages, units, stays, strict=True):
            for call in m.tool_calls:
                named[call.id] = call.name
                if s or u >= first:
                    kept.add(call.id)
        answered = {m.call_id for m in messages if m.role == "tool"}
        return frozenset(c for c, name in named.items() if c not in kept and self._concerns(name)) | frozenset(
            c for c in answered - named.keys() - kept if c is not None and self._concerns("")
        )

    def _concerns(self, tool: str) -> bool:
        return any(fnmatchcase(tool.lower(), pattern.lower()) for pattern in self.tools)


@dataclass(frozen=True, kw_only=True, repr=False)
class Cap(Traced, Setting):
    """Keep the messages before the first reply, and the last of the rest: at most so many in all (Tyrum)."""

    max_messages: int = 0
    """How many messages there may be; 0: any number."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_messages")

    @property
    def alone(self) -> bool:
        """Whether no messages are counted."""
        return not self.max_messages

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each message behind the head goes; not known where one that stays stands among them."""
        if not self.max_messages:
            return
        shown, count = course.shown, course.count
        head = self._head(shown)
        odd = course.states or head >= self.max_messages or bool(course.stays[head:].any())
        if odd or not shown.is_safe(min(head, len(shown))):
            raise Untraceable
        gone = np.zeros(len(count), np.int64)  # before which position nothing is left behind the head, at each call
        for call in np.flatnonzero((count > self.max_messages) & (np.array(course.log.upto) >= shown.lo)).tolist():
            n = int(count[call])
            gone[call] = shown.at(call).safe(n - (self.max_messages - head)) or n
        when = np.searchsorted(gone, np.arange(len(shown)), side="right").tolist()
        for p in range(head, len(shown)):
            course.change(p, when[p] if when[p] < len(gone) else inf, lambda _: None)

    @property
    def changes(self) -> tuple[str, ...]:
        """No roles: without a limit nothing is changed; not there with one."""
        if self.max_messages:
            raise AttributeError("changes")
        return ()

    def __call__(self, history: History, _room: Room) -> History:
        """Return the head and the tail."""
        while self.max_messages and len(history) > self.max_messages:
            new = self._once(history)
            if new is history:
                break
            history = new
        return history

    def _once(self, history: History) -> History:
        n = len(history)
        why = f"more than {self.max_messages} messages"
        head = self._head(history)
        if head >= self.max_messages:
            return history.keep(np.arange(n) < self.max_messages, why)
        first = n - (self.max_messages - head)
        return history.drop(history.safe(first) or n, why, start=head)

    def _head(self, history: History) -> int:
        """Return how many messages stand before the first reply, at least 1."""
        replies = np.flatnonzero(history.role("assistant", "tool"))
        return int(replies[0]) or 1 if len(replies) else len(history)


def _gone(places: list[int], course: Course, passed: NDArray[Any]) -> list[tuple[float, float]]:
    """Return from which to which call an id is gone that stands at these places."""
    out: list[tuple[float, float]] = []
    for p, later in zip(places, [*places[1:], None], strict=True):
        if course.stays[p]:
            break
        start, stop = max(int(passed[p]), int(course.arrive[p])), inf if later is None else int(course.arrive[later])
        if start < stop:
            out.append((start, stop))
    return out
