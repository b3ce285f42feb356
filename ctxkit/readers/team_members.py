"""A team's ledger, read from a file of its own, with the sessions of its agents that lie beside."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import msgspec

from ctxkit.errors import ReadError
from ctxkit.messages import Fault
from ctxkit.readers.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ctxkit.session import Session

_PREFIX = 30
"""Characters of a team's name that the names of its agents' files begin with."""
_MOST = 400
"""Files beside a ledger that are read: a team has at most 200 agents, each of which may ask one."""
_TEAM = "team"
"""In the details of a ledger: the names of its agents."""
_replace = msgspec.structs.replace


def with_members(session: Session, path: Path, read: Callable[[Source], list[Session]]) -> Session:
    """Return a team's ledger with its agents' sessions as children; any other session as it is.

    They are the files `TEAM.AGENT.jsonl` in the same folder that name the ledger as their parent;
    links are not followed.

    Args:
        session: what was read.
        path: its file.
        read: reads a session of our own format; ReadError where it is none.
    """
    names = session.details.get(_TEAM)
    if not isinstance(names, list) or session.children:
        return session
    beside, faults = _beside(path, read)
    order = {str(name): n for n, name in enumerate(names)}
    mine = sorted((s for s in beside if s.parent == session.id),
                  key=lambda s: order.get(s.agent, len(order)))  # fmt: skip
    children = [_replace(s, children=tuple(x for x in beside if x.parent == s.id)) for s in mine]
    return _replace(session, children=tuple(children), faults=(*session.faults, *faults),
                    path_=str(path))  # fmt: skip


def _beside(
    path: Path, read: Callable[[Source], list[Session]]
) -> tuple[list[Session], list[Fault]]:
    found: list[Session] = []
    faults: list[Fault] = []
    start = f"{path.stem[:_PREFIX]}."
    files = (f for f in path.parent.iterdir() if f.name.startswith(start) and f.suffix == ".jsonl")
    for file in sorted(f for f in files if f != path)[:_MOST]:
        try:
            if stat.S_ISREG(file.lstat().st_mode):
                own = [s for s in read(Source(file)) if _TEAM not in s.details]
                found += [_replace(s, path_=str(file)) for s in own]
        except (ReadError, OSError) as e:
            faults.append(Fault(0, f"agent's session {file.name}: {e}"))
    return found, faults
