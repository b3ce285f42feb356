"""How what a prompt grew by is shared among the messages that it grew by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.messages import Message, Sized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.sizes.anchors import AnchorStep, Slots

_SUMMARY = 4.0
"""What an edit brought is sized by what is left for it where that is within this factor of its
count.
"""
_LIKELY = 2.0
"""A recorded output is taken for the size of its reply where it and the rest stay within this
factor of the count.
"""


class Anchoring:
    """Sizes as they become known, step by step."""

    def __init__(self, slots: Slots) -> None:
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

    def take(self, step: AnchorStep) -> None:
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
            self._assign(new, by_weight(max(most, 0), [self.raw[i] for i in new]), derived=True)

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
        self._assign(others, by_weight(left, [self.raw[i] for i in others]), derived=True)

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
        told = [_is_told(self.messages[i]) for i in new]
        sizes = [
            n if t else round(self.ratio * n)
            for n, t in zip((self.raw[i] for i in new), told, strict=True)
        ]
        self._assign(new, sizes, derived=False)

    def _assign(self, new: list[int], parts: list[int], *, derived: bool) -> None:
        for i, n in zip(new, parts, strict=True):
            self.size[i], self.known[i], self.derived[i] = n, True, derived


def _is_told(message: Message) -> bool:
    parts = message.parts
    return bool(parts) and all(type(p) is Sized and p.tokens is not None for p in parts)


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


def by_weight(total: int, weights: Sequence[int]) -> list[int]:
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
