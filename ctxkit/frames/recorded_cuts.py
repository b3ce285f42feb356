"""Compactions of a session: one each time, also where a chain of policies made several edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.messages import Edit

if TYPE_CHECKING:
    from ctxkit.session import Session


class EditGroup(NamedTuple):
    """The edits of one compaction, and where they stand.

    What it did to the prompts, and how it held, is `metrics.compaction.Compaction`.
    """

    number: int
    position: int
    """Place of its first edit in `session.path`."""
    edits: tuple[Edit, ...]


def cuts(session: Session) -> tuple[EditGroup, ...]:
    """Return the compactions that stand, in order.

    A replay names the edits of its n-th compaction ``rules-n.0``, ``rules-n.1``, ...: those are
    one. Every other edit is a compaction by itself.
    """
    if not session.edits:
        return ()
    out: list[EditGroup] = []
    before: str | None = None
    for position, entry in enumerate(session.path):
        stem = _stem(entry) if isinstance(entry, Edit) else None
        if isinstance(entry, Edit):
            if stem is not None and stem == before:
                out[-1] = out[-1]._replace(edits=(*out[-1].edits, entry))
            else:
                out.append(EditGroup(len(out), position, (entry,)))
        before = stem
    return tuple(out)


def _stem(edit: Edit) -> str | None:
    stem, dot, last = edit.id.rpartition(".")
    return stem if dot and stem and last.isdecimal() and edit.source == "derived" else None
