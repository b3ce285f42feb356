"""Subagents' sessions put under those that started them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from ctxkit.session import Session


def nested(sessions: dict[str, Session]) -> list[Session]:
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
