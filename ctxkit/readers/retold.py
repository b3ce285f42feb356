"""A compaction that a log tells as the whole history after it: what of that is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.readers.logs import ReaderLog


def retold(
    log: ReaderLog, history: Iterable[Message], when: float | None
) -> tuple[set[str], list[Message]]:
    """Return the ids of what a history repeats of what is shown, and what is new in it; of that,
    the first that the user seems to say is the summary.
    """
    known: dict[Any, list[str]] = {}
    for own in reversed(log.shown):
        entry = log.entries[log.where[own]] if log.where[own] >= 0 else None
        if isinstance(entry, Message):
            known.setdefault(_key(entry), []).append(own)
    kept, inserted, summed = set[str](), list[Message](), False
    for m in history:
        same = known.get(_key(m))
        if same:
            kept.add(same.pop())
            continue
        role = "summary" if m.role == "user" and not summed else m.role
        summed = summed or role == "summary"
        inserted.append(replace(m, id=log.new_id(), role=role, time=when, usage=None))
    return kept, inserted


def _key(m: Message) -> tuple[str, str, tuple[str, ...], str | None]:
    return m.role, m.text, tuple(c.id for c in m.tool_calls), m.call_id
