"""The longest prefix that a prompt shares with one sent before whose cache is still alive."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.log import CacheClock

    Numbers = NDArray[Any]

MAX_PARTED = 64
"""Prompts, of those from which a later one parted, that are looked at again."""


class PartedPrompt(NamedTuple):
    """A prompt from which the next one parted."""

    call: int
    same: int
    """How many of its first messages the next one still has."""
    says: int
    """Content of the first of the others."""
    rest: Numbers
    """Contents of the others."""
    back: bool
    """The next one says there what one before it had said there."""


class PromptPrefixes:
    """The prompts of consecutive calls, kept as the places where each parts from the one before."""

    def __init__(self, clock: CacheClock, parted: Iterable[PartedPrompt] = ()) -> None:
        self._clock = clock
        self.parted = list(parted)
        self._said = {(p.same, p.says) for p in self.parted}
        """At which place the next prompt parted, and what was said there."""
        self._back = any(p.back for p in self.parted)

    def upto(self, call: int) -> PromptPrefixes:
        """Return what is known of the prompts before a call, as far as it is looked at again."""
        stop = bisect_left(self.parted, call - 1, key=lambda p: p.call)
        return PromptPrefixes(self._clock, self.parted[max(stop - MAX_PARTED, 0) : stop])

    def part(self, call: int, same: int, rest: Numbers, says: int) -> bool:
        """Take down that a call's prompt has only so many first messages of the one before.

        One that shares more with now says at that place what now does. When the next prompt parted
        from it right there, that was taken down; when it parted before, some prompt since then went
        back to what was said at that earlier place.

        Args:
            call: its call.
            same: so many.
            rest: contents of the others.
            says: content of its own next message; 0: it has no more.

        Returns:
            False where no prompt that is alive can share more: `longest` need not look.
        """
        back = (same, says) in self._said
        self._back = self._back or back
        said = int(rest[0])
        self._said.add((same, said))
        self.parted.append(PartedPrompt(call - 1, same, said, rest, back))
        return self._back and not self._clock.cold[call]

    def shared(self, call: int, last: Numbers, now: Numbers) -> int:
        """Return how many first messages a prompt shares with the last, or any that is alive."""
        same = common_length(last, now)
        if same < len(last):
            says = int(now[same]) if same < len(now) else 0
            if self.part(call, same, last[same:], says):
                same = self.longest(call, same, now)
        return same

    def longest(self, call: int, same: int, now: Numbers) -> int:
        """Return how many first messages a prompt shares with any before it that is alive.

        It looks back from prompt to prompt: what is shared with one follows from the one after it.

        Args:
            call: its call, at which it parted from the prompt before, and was taken down.
            same: how many it shares with that one.
            now: its contents.
        """
        best, shared = same, len(now)
        for before in self.parted[: -MAX_PARTED - 1 : -1]:
            if not self._clock.alive(before.call, call):
                break
            if shared > before.same:
                shared = before.same
            elif shared < before.same:
                continue
            k = common_length(before.rest, now[shared:])
            shared += k
            best = max(best, shared)
            if shared == len(now):
                break
        return best


class PastPrompts(NamedTuple):
    """What came before a run of prompts: the last one, and those before it that parted."""

    prefixes: PromptPrefixes
    last: Numbers
    """Contents of the prompt of the call before."""


def common_length(a: Numbers, b: Numbers) -> int:
    """Return how many first values of two arrays are equal."""
    n = min(len(a), len(b))
    if not n or a[0] != b[0]:
        return 0
    differ = a[:n] != b[:n]
    first = int(differ.argmax())
    return first if differ[first] else n


def content_hashes(history: History) -> Numbers:
    """Return a number a message that is equal where the same is said at the same row."""
    head, tail = history.head, -np.arange(history.lo, history.hi) - 1
    return np.concatenate((head.column(history.log, "contents"), tail)) if head.size else tail


def shared_prefix_tokens(view: History, others: Iterable[History]) -> int:
    """Return the tokens of the longest prefix that a view shares with one of some others, the fixed
    part included.
    """
    now, most = content_hashes(view), 0
    for other in others:
        if other.head is view.head and other.lo == view.lo:
            same = min(len(other), len(view))
        else:
            same = common_length(content_hashes(other), now)
        most = max(most, min(other.fixed, view.fixed) + view.before(same))
    return most
