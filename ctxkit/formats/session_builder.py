"""Builder of sessions: entries, ids, branches, visible messages, rewritten histories, subagents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.session.messages import ABANDONED, Edit, Message
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.messages import Fault, Part, Role


# Readers append entries in the order of the file. The builder maintains three things:
#   tree     the parent of each entry is the entry at the current position; moving the position to
#            an earlier entry begins a branch
#   visible  ids of the messages in the prompt at the current position, in order; an edit replaces
#            its targets by its inserted messages
#   ids      unique; an id that is missing or used already is replaced by m0, m1, ...
# Appending is O(1). Moving and editing cost O(path) and O(visible), so that a hostile file could
# make them quadratic; budgets that grow linearly with the number of entries bound both, and callers
# must handle a refusal.
_MAX_STEPS_PER_ENTRY = 8
"""Budget of steps up the tree, per entry."""
_MIN_EDIT_BUDGET = 1_000_000
"""Budget of visible messages that edits may scan, in addition to that per entry."""
MAX_PARTS = 1000
"""Largest number of parts of a reply; more begin a new one, which bounds the cost of merging."""
TOO_MANY_COMPACTIONS = "compacts too often to be followed; what this one took is not known"


class SessionBuilder:
    """Builder of a `Session` from entries in file order."""

    def __init__(self) -> None:
        self.entries: list[Message | Edit] = []
        self.parents: list[int] = []
        self.at = -1
        """Index of the current entry, after which the next is added; -1 before the first."""
        self.visible_ids: list[str] = []
        """Ids of the messages visible at the position, in order."""
        self.skipped: dict[str, int] = {}
        """Counts of records that are no entries, by name."""
        self.faults: list[Fault] = []
        """Records that could not be read."""
        self.index_by_id: dict[str, int] = {}
        """Index of each message by id; -1 for a message inserted by an edit (a summary)."""
        self._ids: set[str] = set()
        self._next_number = 0
        self._path_steps = 0
        self._edit_steps = 0
        self._has_branches = False

    def new_id(self, preferred: object = None) -> str:
        """Reserve and return the preferred id if it is a free string, else the next of m0, m1..."""
        ids = self._ids
        if type(preferred) is str and preferred and preferred not in ids:
            ids.add(preferred)
            return preferred
        while (candidate := f"m{self._next_number}") in ids:
            self._next_number += 1
        self._next_number += 1
        ids.add(candidate)
        return candidate

    def take_id(self, id_: str) -> None:
        """Reserve an id that is used unchanged, even if the file has it twice."""
        self._ids.add(id_)

    def add(self, entry: Message | Edit) -> int:
        """Append an entry (id from `new_id`) after the current one; return its index."""
        index = len(self.entries)
        self.entries.append(entry)
        self.parents.append(self.at)
        if self.at != index - 1:
            self._has_branches = True
        self.at = index
        if type(entry) is Message:
            self.index_by_id[entry.id] = index
            if entry.visible:
                self.visible_ids.append(entry.id)
        elif type(entry) is Edit:
            for m in entry.inserted:
                self.index_by_id.setdefault(m.id, -1)
            if entry.targets:
                self.visible_ids = _apply_edit_to_ids(self.visible_ids, entry)
            else:
                self.visible_ids += [m.id for m in entry.inserted]
        return index

    def add_message(
        self, role: Role, parts: Iterable[Part] = (), preferred_id: object = None, **fields: Any
    ) -> int:
        """Append a message and return its index.

        Args:
            role: its role.
            parts: its parts.
            preferred_id: the id it should have (see `new_id`).
            fields: its other fields.
        """
        return self.add(
            Message(role=role, id=self.new_id(preferred_id), parts=tuple(parts), **fields)
        )

    def replace(self, index: int, entry: Message) -> None:
        """Replace a message by a fuller version with the same id, for formats that write pieces.

        Args:
            index: position among `entries`, from 0.
            entry: the fuller message.
        """
        self.entries[index] = entry

    def abandon(self, indices: Iterable[int]) -> None:
        """Remove messages of the path from later prompts; a reply among them stays billed."""
        abandoned_ids: set[str] = set()
        for index in indices:
            entry = self.entries[index]
            if type(entry) is Message:
                stop = ABANDONED if entry.role == "assistant" else entry.stop
                self.entries[index] = replace(entry, visible=False, stop=stop)
                abandoned_ids.add(entry.id)
        self.visible_ids = [id_ for id_ in self.visible_ids if id_ not in abandoned_ids]

    def move_to(self, index: int) -> bool:
        """Move the position to an entry (-1: before the first); False if the budget is spent."""
        if index == self.at:
            return True
        path = self.path(index)
        if path is None:
            return False
        visible_ids: list[str] = []
        for i in path:
            entry = self.entries[i]
            if type(entry) is Edit:
                visible_ids = _apply_edit_to_ids(visible_ids, entry)
            elif type(entry) is Message and entry.visible:
                visible_ids.append(entry.id)
        self.at, self.visible_ids = index, visible_ids
        return True

    def path(self, index: int) -> list[int] | None:
        """Return the indices from the root to an entry; None if the budget is spent."""
        indices: list[int] = []
        parents, max_steps = (
            self.parents,
            _MAX_STEPS_PER_ENTRY * len(self.parents) + 100_000 - self._path_steps,
        )
        while index >= 0 and len(indices) < max_steps:
            indices.append(index)
            index = parents[index]
        self._path_steps += len(indices)
        indices.reverse()
        return indices if index < 0 else None

    def may_edit(self) -> bool:
        """Return True, and charge the budget, if one more edit may scan the visible messages."""
        self._edit_steps += len(self.visible_ids)
        return self._edit_steps <= _MAX_STEPS_PER_ENTRY * len(self.entries) + _MIN_EDIT_BUDGET

    def compact(self, edit: Edit, retained_ids: Iterable[str]) -> int:
        """Append a compaction that removes the visible messages except some.

        Args:
            edit: a `summarised` edit; its targets are set here.
            retained_ids: ids of the messages that stay visible.
        """
        if not self.may_edit():
            return self.add(msgspec.structs.replace(edit, reason=TOO_MANY_COMPACTIONS))
        visible_after = set(retained_ids)
        targets = tuple(i for i in self.visible_ids if i not in visible_after)
        return self.add(msgspec.structs.replace(edit, targets=targets))

    def session(self, **fields: Any) -> Session:
        """Return the session; `fields` adds or overrides fields."""
        own_fields: dict[str, Any] = {"skipped": self.skipped, "faults": tuple(self.faults)}
        is_at_end = self.at in (-1, len(self.entries) - 1)
        return Session(
            log=tuple(self.entries),
            parents=tuple(self.parents) if self._has_branches else (),
            leaf=-1 if is_at_end else self.at,
            **{**own_fields, **fields},
        )


def _apply_edit_to_ids(visible_ids: list[str], edit: Edit) -> list[str]:
    """Return the visible ids after an edit: its inserted messages replace its targets."""
    if edit.kind in ("shortened", "replaced"):
        return visible_ids
    inserted_ids = [m.id for m in edit.inserted]
    if not edit.targets:
        return visible_ids + inserted_ids
    targets = set(edit.targets)
    first_target = next((i for i, m in enumerate(visible_ids) if m in targets), len(visible_ids))
    return [
        *visible_ids[:first_target],
        *inserted_ids,
        *(m for m in visible_ids[first_target:] if m not in targets),
    ]


def match_history_with_visible_messages(
    builder: SessionBuilder, history: Iterable[Message], time: float | None
) -> tuple[set[str], list[Message]]:
    """Compare a history that replaced the prompt with the visible messages.

    Messages are equal if role, text, tool calls and call id are. Each visible message is matched at
    most once; the first new message with role `user` is taken for the summary.

    Args:
        builder: the builder of the session.
        history: the messages of the new prompt.
        time: time of the change, in Unix seconds, for the new messages.

    Returns:
        The ids of the visible messages that the history repeats, and its new messages.
    """
    ids_by_key: dict[Any, list[str]] = {}
    for id_ in reversed(builder.visible_ids):
        entry = builder.entries[builder.index_by_id[id_]] if builder.index_by_id[id_] >= 0 else None
        if isinstance(entry, Message):
            ids_by_key.setdefault(_message_key(entry), []).append(id_)
    retained_ids, inserted, has_summary = set[str](), list[Message](), False
    for message in history:
        same_ids = ids_by_key.get(_message_key(message))
        if same_ids:
            retained_ids.add(same_ids.pop())
            continue
        role = "summary" if message.role == "user" and not has_summary else message.role
        has_summary = has_summary or role == "summary"
        inserted.append(replace(message, id=builder.new_id(), role=role, time=time, usage=None))
    return retained_ids, inserted


def _message_key(m: Message) -> tuple[str, str, tuple[str, ...], str | None]:
    return m.role, m.text, tuple(c.id for c in m.tool_calls), m.call_id


def nest_subagents(sessions: dict[str, Session]) -> list[Session]:
    """Nest subagents in their parents' `children`.

    Args:
        sessions: all sessions by id; `parent` is the id of the parent.

    Returns:
        The sessions without a parent; one whose parent is missing or circular counts as such.
    """
    child_ids: dict[str, list[str]] = {}
    for id_, s in sessions.items():
        if s.parent in sessions and s.parent != id_:
            child_ids.setdefault(s.parent, []).append(id_)
    nested_ids: set[str] = set()

    def with_children(id_: str) -> Session:
        nested_ids.add(id_)
        children = tuple(with_children(c) for c in child_ids.get(id_, ()) if c not in nested_ids)
        return replace(sessions[id_], children=children) if children else sessions[id_]

    roots = [with_children(id_) for id_, s in sessions.items() if s.parent not in sessions]
    return roots + [with_children(id_) for id_ in sessions if id_ not in nested_ids]
