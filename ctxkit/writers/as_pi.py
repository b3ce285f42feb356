"""Pi's session format, version 3, without marks of ours: what Pi itself would have written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.messages import Edit
from ctxkit.writers.entries import Tree, compaction, header, iso, message, to_entry, to_line
from ctxkit.writers.losses import losses

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from ctxkit.session import Session

_HOLDS = {
    "compactions",
    "usages",
    "times",
    "models of calls",
    "stop reasons",
    "error texts",
    "error marks",
    "thoughts",
    "images",
    "entries of other branches",
    "latencies",
}


def convert(session: Session) -> tuple[Iterator[bytes], Counter[str]]:
    """Return the lines of a file, and what it cannot hold."""
    lost = losses(session, _HOLDS)
    hours = sum(1 for e in session.log if e.usage is not None and e.usage.cache_write_1h_tokens)
    lost["lives of cache writes (one hour)"] += hours
    return _lines(session), lost


def _lines(session: Session) -> Iterator[bytes]:
    yield to_line(header(session))
    tree = Tree(session)
    told: dict[int, str | None] = {-1: None}
    for i, entry in enumerate(session.log):
        before = told[tree.before(i)]
        if isinstance(entry, Edit):
            line = compaction(entry, tree.first_kept(i, entry))
        else:
            said = message(entry)
            line = None if said is None else {"type": "message", "message": said}
        if line is None:
            told[i] = before  # Pi has nothing like it: what follows hangs on what came before
            continue
        told[i] = tree.id(i)
        yield to_entry(line, tree.id(i), before, iso(entry.time))
