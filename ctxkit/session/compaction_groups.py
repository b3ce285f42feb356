"""Compactions of a session: its edits in groups, and whether its format records compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ctxkit.session.messages import Edit, Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class HasEdits(Protocol):
    """The attributes of a `Session` that this module needs; `Session` itself imports it."""

    @property
    def path(self) -> Sequence[Message | Edit]:
        """Its messages and edits."""

    @property
    def edits(self) -> Sequence[Edit]:
        """The edits of the path."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Further values from its reader."""

    @property
    def origin(self) -> Any:
        """The session of which it is a replay; None for a recorded session."""


class EditGroup(NamedTuple):
    """The edits of one compaction, and their position in the log.

    Its effect on prompts is `metrics.compactions.Compaction`.
    """

    number: int
    position: int
    """Position of its first edit in `session.path`."""
    edits: tuple[Edit, ...]


def group_edits(session: HasEdits) -> tuple[EditGroup, ...]:
    """Return the compactions of a session's path, in order.

    The edits of a replay's n-th compaction have the ids ``rules-n.0``, ``rules-n.1``, ...: they are
    one group. Any other edit is a group of its own.
    """
    if not session.edits:
        return ()
    groups: list[EditGroup] = []
    previous_stem, previous_position = None, -1
    for position, entry in [(i, e) for i, e in enumerate(session.path) if type(e) is Edit]:
        stem = _get_group_stem(entry)
        if stem is not None and stem == previous_stem and position == previous_position + 1:
            groups[-1] = groups[-1]._replace(edits=(*groups[-1].edits, entry))
        else:
            groups.append(EditGroup(len(groups), position, (entry,)))
        previous_stem, previous_position = stem, position
    return tuple(groups)


def hides_compactions(session: HasEdits) -> bool:
    """Return True if the log's format does not record compactions and the log has none."""
    is_replay = session.origin is not None
    hidden = session.details.get("cannot_tell", ())
    return not is_replay and not session.edits and "compactions" in hidden


def count_compactions(session: HasEdits, before: int | None = None) -> int | None:
    """Return the number of a session's compactions; None if its format does not
    record them.

    Args:
        session: the session.
        before: count those that begin before this position of its path; None: all.
    """
    if hides_compactions(session):
        return None
    groups = group_edits(session)
    return len(groups) if before is None else sum(g.position < before for g in groups)


def count_affected_messages(session: HasEdits) -> list[int]:
    """Return for each compaction the number of messages that it removed, shortened or replaced.

    An edit may name messages that it inserts again as they were, such as the user's own messages
    that stay: they are not affected.
    """
    contents = {e.id: e.parts for e in session.path if isinstance(e, Message)}
    counts: list[int] = []
    for group in group_edits(session):
        inserted = {m.id: m.parts for e in group.edits for m in e.inserted}
        targets = {t for e in group.edits for t in e.targets}
        counts.append(sum(t not in inserted or inserted[t] != contents.get(t) for t in targets))
        contents |= inserted
    return counts


def _get_group_stem(edit: Edit) -> str | None:
    stem, dot, last = edit.id.rpartition(".")
    return stem if dot and stem and last.isdecimal() and edit.source == "derived" else None
