"""Calls that a later call makes worthless, found as messages come and go."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.messages import ToolCall
    from ctxkit.schedules import ScheduleView

    Key = Callable[[ToolCall], str]


class RepeatKind:
    """One way in which a call makes earlier ones worthless: its `by` is the `key` of theirs."""

    def __init__(self, key: Key, by: Key) -> None:
        self.key, self.by = key, by
        self._earlier: dict[str, list[tuple[int, str]]] = {}
        self._later: dict[str, list[int]] = {}
        self._worthless: dict[str, int] = {}
        """How many worthless calls there are of an id; none: not in it."""

    def is_worthless(self, call_id: str) -> bool:
        """Return True where a later call took the place of a call with this id."""
        return bool(self._worthless.get(call_id))

    def put(self, p: int, call: ToolCall) -> Iterable[str]:
        """Take in an answered call at a position; return the ids that are worthless by that."""
        changed: list[str] = []
        word = self.key(call)
        if word and "_note" not in call.arguments:
            insort(self._earlier.setdefault(word, []), (p, call.id))
            if self._last(word) > p:
                changed += self._count(call.id, 1)
        word = self.by(call)
        if word:
            was = self._last(word)
            insort(self._later.setdefault(word, []), p)
            changed += self._between(word, was, self._last(word), 1)
        return changed

    def out(self, p: int, call: ToolCall) -> Iterable[str]:
        """Leave out a call; return the ids that are worthless no more, or one time less."""
        changed: list[str] = []
        word = self.by(call)
        if word:
            was = self._last(word)
            self._later[word].remove(p)
            changed += self._between(word, self._last(word), was, -1)
        word = self.key(call)
        if word and "_note" not in call.arguments:
            self._earlier[word].remove((p, call.id))
            if self._last(word) > p:
                changed += self._count(call.id, -1)
        return changed

    def _last(self, word: str) -> int:
        later = self._later.get(word)
        return later[-1] if later else -1

    def _between(self, word: str, first: int, last: int, n: int) -> Iterable[str]:
        """Count the calls from one position up to another one more or less; return their ids."""
        calls = self._earlier.get(word, [])
        a, b = (bisect_left(calls, (p, "")) for p in (first, last))
        return [i for _, call_id in calls[a : max(a, b)] for i in self._count(call_id, n)]

    def _count(self, call_id: str, n: int) -> Iterable[str]:
        self._worthless[call_id] = self._worthless.get(call_id, 0) + n
        return (call_id,)


class Repeats:
    """The calls that are shown with a result, and which of them are worthless, by their ids.

    Of an id that is used twice the last result so far counts. Calls are read as they were said.
    """

    def __init__(self, kinds: Sequence[RepeatKind]) -> None:
        self.kinds = kinds
        self._results: dict[str, list[int]] = {}
        self._callers: dict[str, list[int]] = {}

    def follow(self, view: ScheduleView, came: list[int], went: list[int]) -> set[str]:
        """Take in what became of replies and results; return the ids that may have changed."""
        changed: set[str] = set()
        for p in went:
            changed.update(self._went(view, p))
        for p in came:
            changed.update(self._came(view, p))
        return changed

    def kind(self, call_id: str) -> int:
        """Return the last way in which the calls of an id are worthless; -1: they are not."""
        found = [n for n, kind in enumerate(self.kinds) if kind.is_worthless(call_id)]
        return found[-1] if found else -1

    def result(self, call_id: str) -> int:
        """Return the position of the last result of an id; -1: there is none."""
        results = self._results.get(call_id)
        return results[-1] if results else -1

    def callers(self, call_id: str) -> Sequence[int]:
        """Return the positions of the replies that make a call of an id."""
        return self._callers.get(call_id, ())

    def _came(self, view: ScheduleView, p: int) -> Iterable[str]:
        for call in view.said_calls(p):
            insort(self._callers.setdefault(call.id, []), p)
            yield call.id
            if self._results.get(call.id):
                yield from self._answered(p, call)
        call_id = _answers(view, p)
        if call_id is not None:
            results = self._results.setdefault(call_id, [])
            insort(results, p)
            yield call_id
            if len(results) == 1:
                for q, call in self._calls(view, call_id):
                    yield from self._answered(q, call)

    def _went(self, view: ScheduleView, p: int) -> Iterable[str]:
        for call in view.said_calls(p):
            if self._results.get(call.id):
                yield from self._unanswered(p, call)
            self._callers[call.id].remove(p)
            yield call.id
        call_id = _answers(view, p)
        if call_id is not None:
            self._results[call_id].remove(p)
            yield call_id
            if not self._results[call_id]:
                for q, call in self._calls(view, call_id):
                    yield from self._unanswered(q, call)

    def _calls(self, view: ScheduleView, call_id: str) -> list[tuple[int, ToolCall]]:
        replies = dict.fromkeys(self._callers.get(call_id, ()))
        return [(q, call) for q in replies for call in view.said_calls(q) if call.id == call_id]

    def _answered(self, p: int, call: ToolCall) -> Iterable[str]:
        for kind in self.kinds:
            yield from kind.put(p, call)

    def _unanswered(self, p: int, call: ToolCall) -> Iterable[str]:
        for kind in self.kinds:
            yield from kind.out(p, call)


def _answers(view: ScheduleView, p: int) -> str | None:
    message = view.rows.message(p)
    return message.call_id if message.role == "tool" else None
