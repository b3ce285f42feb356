"""What a session shows from message to message: what is in sight, what cuts removed, and which cut took what."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from typing import TYPE_CHECKING

from ctxkit.messages import Message, ToolCall
from ctxkit.metrics.fates import CutLoss, Fate, Gone, Taken, tallied
from ctxkit.metrics.items import Found
from ctxkit.session import apply_edit
from ctxkit.tools.names import reads, writes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.frames.cuts import Cut
    from ctxkit.metrics.indexes import Index
    from ctxkit.session import Session

_KEPT_ELSEWHERE = ("offload", "artifact", "archive")
"""Words in an edit's reason, method or stub that say that the whole text is kept elsewhere."""


class View:
    """What is shown and what is gone, brought on from cut to cut."""

    def __init__(self, session: Session, index: Index) -> None:
        self.session, self.index, self.at = session, index, 0
        self.shown: list[Message] = []
        self.named: Tally[Found] = Tally()
        self.written: dict[int, str] = {}
        """Texts of the messages that cuts put in and that are shown, one space between words."""
        self.gone: dict[Found, tuple[int, set[str], bool]] = {}
        """Items removed so far: where first, files that hold them, whether they are kept elsewhere."""
        self.out: set[Found] = set()
        """Items that are out of sight now."""
        self.needed: set[Found] = set()
        """Items removed so far that a reply names after that."""
        self.holders: dict[Found, list[Message]] = {}
        """The messages said so far that name each item."""
        self.place = {id(e): i for i, e in enumerate(session.path)}
        self.calls = [c.position for c in session.calls]
        """Where each call's reply stands."""
        self.uses: dict[Found, list[int]] = {}
        """The calls whose replies name each item."""
        for call in session.calls:
            for item in index.used(call.message):
                self.uses.setdefault(item, []).append(call.index)
        self._files = _files(session)

    def go(self, position: int) -> None:
        """Read the messages before a position."""
        for entry in self.session.path[self.at : position]:
            if isinstance(entry, Message) and entry.visible:
                self.shown.append(entry)
                found = self.index.names(entry)
                self.named.update(found)
                self.out -= found
                for item in found:
                    self.holders.setdefault(item, []).append(entry)
        self.at = position

    def cut(self, cut: Cut, following: Cut | None) -> CutLoss:
        """Do a cut that comes before another one, after the messages before it."""
        self.go(cut.position)
        before = self.shown
        for edit in cut.edits:
            self.shown = apply_edit(self.shown, edit)
        self.at = cut.position + len(cut.edits)
        self._exchange(before, cut)
        call, end = self._call(cut.position), len(self.calls)
        if following is not None:
            end = self._call(following.position)
        fates = {item: self._fate(item, *where[1:]) for item, where in self.gone.items()}
        gone = tuple(Gone(i, self.gone[i][0], fate, self.first(i, call, end)) for i, fate in fates.items())
        due = {i for i in fates if (of := self.uses.get(i)) and of[-1] >= call}
        self.needed |= due
        taken = tuple(Taken(*g[:3], None) for g in gone if g.fate != "retained" and g.item not in self.out)
        self.out = {i for i, fate in fates.items() if fate != "retained"}
        return CutLoss(cut.number, call, gone, taken, len(due), self._best(due), tallied(gone))

    def first(self, item: Found, start: int, stop: int) -> int | None:
        """Return the first of the calls start..stop that names an item."""
        calls = self.uses.get(item)
        if calls is None:
            return None
        at = bisect_left(calls, start)
        return calls[at] if at < len(calls) and calls[at] < stop else None

    def _call(self, position: int) -> int:
        """Return the first call after a position."""
        return bisect_left(self.calls, position)

    def _exchange(self, before: Sequence[Message], cut: Cut) -> None:
        old, new = {id(m): m for m in before}, {id(m): m for m in self.shown}
        words = " ".join(f"{e.reason} {e.method} {e.inserted[0].text[:200] if e.inserted else ''}" for e in cut.edits)
        elsewhere = any(w in words.lower() for w in _KEPT_ELSEWHERE)
        for key, message in old.items():
            if key in new:
                continue
            self.named.subtract(self.index.names(message))
            self.written.pop(key, None)
            if key in self.place:
                self._take(message, elsewhere=elsewhere)
        for key, message in new.items():
            if key not in old:
                self.named.update(self.index.names(message))
                self.written[key] = " ".join(message.text.split())

    def _take(self, message: Message, *, elsewhere: bool) -> None:
        place, file = self.place[id(message)], self._files.get(id(message))
        for item in self.index.items(message):
            first, held, kept = self.gone.get(item, (place, set(), False))
            if file:
                held.add(file)
            self.gone[item] = (first, held, kept or elsewhere)

    def _fate(self, item: Found, held: set[str], elsewhere: bool) -> Fate:
        if self._stands(item):
            return "retained"
        found = elsewhere or any(self._stands(Found("path", path)) for path in held if path != item.text)
        return "recoverable" if found else "lost"

    def _stands(self, item: Found) -> bool:
        return self.named[item] > 0 or any(item.text in text for text in self.written.values())

    def _best(self, due: set[Found]) -> float:
        """Return how many items that are needed later the messages said so far could hold, chosen with that in view.

        A fractional knapsack by size into what is shown; an item that several messages hold counts for each: a bound.
        """
        if not due:
            return 0.0
        room = float(sum(map(self.index.size, self.shown)))
        held_by = [m for item in due for m in self.holders.get(item, ())]
        counts = Tally(map(id, held_by))
        sizes = {id(m): max(self.index.size(m), 1) for m in held_by}
        worth = [(n, sizes[key]) for key, n in counts.items()]
        held = 0.0
        for value, size in sorted(worth, key=lambda w: -w[0] / w[1]):
            held += value * min(1.0, room / size)
            room -= size
            if room <= 0 or held >= len(due):
                break
        return min(held, float(len(due)))


def _files(session: Session) -> dict[int, str]:
    """Return for tool results and calls the file on disk whose content they carry, by identity of the message."""
    asked: dict[str, str] = {}
    out: dict[int, str] = {}
    for message in session.messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and (reads(part.name) or writes(part.name)):
                path = next((v for k in ("path", "file_path", "filePath") if (v := part.arguments.get(k))), None)
                if isinstance(path, str):
                    asked[part.id] = out[id(message)] = path
        if message.call_id in asked:
            out[id(message)] = asked[message.call_id]
    return out
