"""Build a Session entry by entry: ids, tree, visible messages, rewritten histories, subagents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.session.messages import Edit, Message
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.messages import Fault, Part, Role


_STEPS_PER_ENTRY = 8
"""Walks up the tree cost at most so many steps an entry, plus a little: never quadratic."""
_MAX_EDIT_WORK = 1_000_000
"""Shown messages that edits may look at in all, plus the budget; real sessions stay far below."""
MAX_PARTS = 1000
"""A reply has no more parts; a longer one is begun anew, lest a file cost quadratic time."""
TOO_MANY_COMPACTIONS = "compacts too often to be followed; what this one took is not known"


class SessionBuilder:
    """Entries in the order of writing, a tree where they branch, and the ids shown at the entry
    written last.

    `add` takes entries; `compact` a compaction; `stand` moves to an earlier entry (a branch begins
    there).
    """

    def __init__(self) -> None:
        self.entries: list[Message | Edit] = []
        self.parents: list[int] = []
        self.at = -1
        """Index of the entry at which the conversation stands; -1 before the first."""
        self.shown: list[str] = []
        """Ids of the messages shown now, in order."""
        self.skipped: dict[str, int] = {}
        """What was passed over, by name, with counts."""
        self.faults: list[Fault] = []
        """Places that could not be read."""
        self.where: dict[str, int] = {}
        """Id of a message to its index; -1 for what only an edit brought (a summary)."""
        self._ids: set[str] = set()
        self._next = 0
        self._walked = 0
        self._edited = 0
        self._branches = False

    def new_id(self, wanted: object = None) -> str:
        """Return and take the id wanted if a text and free, else a made one (`m0`, `m1`, ...)."""
        ids = self._ids
        if type(wanted) is str and wanted and wanted not in ids:
            ids.add(wanted)
            return wanted
        while (made := f"m{self._next}") in ids:
            self._next += 1
        self._next += 1
        ids.add(made)
        return made

    def take_id(self, own: str) -> None:
        """Note an id that is used as it is, also where it stands twice."""
        self._ids.add(own)

    def add(self, entry: Message | Edit) -> int:
        """Write an entry (id from `new_id`) after the one the log stands at; return its index."""
        index = len(self.entries)
        self.entries.append(entry)
        self.parents.append(self.at)
        if self.at != index - 1:
            self._branches = True
        self.at = index
        if type(entry) is Message:
            self.where[entry.id] = index
            if entry.visible:
                self.shown.append(entry.id)
        elif type(entry) is Edit:
            for m in entry.inserted:
                self.where.setdefault(m.id, -1)
            if entry.targets:
                self.shown = _apply_edit_to_ids(self.shown, entry)
            else:
                self.shown += [m.id for m in entry.inserted]
        return index

    def say(
        self, role: Role, parts: Iterable[Part] = (), wanted: object = None, **more: Any
    ) -> int:
        """Write a message (id by `new_id(wanted)`, `more` its other fields); return its index."""
        return self.add(Message(role=role, id=self.new_id(wanted), parts=tuple(parts), **more))

    def replace(self, index: int, entry: Message) -> None:
        """Put a fuller version of a message (same id) in its place: formats write one in pieces."""
        self.entries[index] = entry

    def stand(self, index: int) -> bool:
        """Move to an earlier entry (-1: before the first); False if branches are too many."""
        if index == self.at:
            return True
        path = self.path(index)
        if path is None:
            return False
        shown: list[str] = []
        for i in path:
            entry = self.entries[i]
            if type(entry) is Edit:
                shown = _apply_edit_to_ids(shown, entry)
            elif type(entry) is Message and entry.visible:
                shown.append(entry.id)
        self.at, self.shown = index, shown
        return True

    def path(self, index: int) -> list[int] | None:
        """Return the indices from the root to an entry; None if the budget for walks is spent."""
        out: list[int] = []
        parents, allowed = (
            self.parents,
            _STEPS_PER_ENTRY * len(self.parents) + 100_000 - self._walked,
        )
        while index >= 0 and len(out) < allowed:
            out.append(index)
            index = parents[index]
        self._walked += len(out)
        out.reverse()
        return out if index < 0 else None

    def may_edit(self) -> bool:
        """Say whether one more edit may look at all shown; False where a file has too many."""
        self._edited += len(self.shown)
        return self._edited <= _STEPS_PER_ENTRY * len(self.entries) + _MAX_EDIT_WORK

    def compact(self, edit: Edit, kept: Iterable[str]) -> int:
        """Write a `summarised` edit whose targets are what is shown and not among the ids kept."""
        if not self.may_edit():
            return self.add(msgspec.structs.replace(edit, reason=TOO_MANY_COMPACTIONS))
        stays = set(kept)
        gone = tuple(i for i in self.shown if i not in stays)
        return self.add(msgspec.structs.replace(edit, targets=gone))

    def session(self, **about: Any) -> Session:
        """Return the session of entries, skipped and faults; `about` adds or overrides fields."""
        known: dict[str, Any] = {"skipped": self.skipped, "faults": tuple(self.faults)}
        at_end = self.at in (-1, len(self.entries) - 1)
        return Session(
            log=tuple(self.entries),
            parents=tuple(self.parents) if self._branches else (),
            leaf=-1 if at_end else self.at,
            **{**known, **about},
        )


def _apply_edit_to_ids(shown: list[str], edit: Edit) -> list[str]:
    if edit.kind in ("shortened", "replaced"):
        return shown
    new = [m.id for m in edit.inserted]
    if not edit.targets:
        return shown + new
    targets = set(edit.targets)
    at = next((i for i, m in enumerate(shown) if m in targets), len(shown))
    return [*shown[:at], *new, *(m for m in shown[at:] if m not in targets)]


def match_rewritten_history(
    log: SessionBuilder, history: Iterable[Message], when: float | None
) -> tuple[set[str], list[Message]]:
    """Return the ids of what a history repeats of what is shown, and what is new in it; of that,
    the first that the user seems to say is the summary.
    """
    known: dict[Any, list[str]] = {}
    for own in reversed(log.shown):
        entry = log.entries[log.where[own]] if log.where[own] >= 0 else None
        if isinstance(entry, Message):
            known.setdefault(_message_key(entry), []).append(own)
    kept, inserted, summed = set[str](), list[Message](), False
    for m in history:
        same = known.get(_message_key(m))
        if same:
            kept.add(same.pop())
            continue
        role = "summary" if m.role == "user" and not summed else m.role
        summed = summed or role == "summary"
        inserted.append(replace(m, id=log.new_id(), role=role, time=when, usage=None))
    return kept, inserted


def _message_key(m: Message) -> tuple[str, str, tuple[str, ...], str | None]:
    return m.role, m.text, tuple(c.id for c in m.tool_calls), m.call_id


def nest_subagents(sessions: dict[str, Session]) -> list[Session]:
    """Put subagents under their parents; one whose parent is missing or circular stands alone."""
    below: dict[str, list[str]] = {}
    for id_, s in sessions.items():
        if s.parent in sessions and s.parent != id_:
            below.setdefault(s.parent, []).append(id_)
    done: set[str] = set()

    def whole(id_: str) -> Session:
        done.add(id_)
        children = tuple(whole(c) for c in below.get(id_, ()) if c not in done)
        return replace(sessions[id_], children=children) if children else sessions[id_]

    tops = [whole(id_) for id_, s in sessions.items() if s.parent not in sessions]
    return tops + [whole(id_) for id_ in sessions if id_ not in done]
