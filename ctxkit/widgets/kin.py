"""A session with its subagents, as the lines of a tree."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.display.amounts import counted, dollars, tokens
from ctxkit.frames.per_session import rows
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

_MOST, _PRICED = 500, 50
"""Sessions in the tree, and those whose cost is worked out."""


class Relative(NamedTuple):
    """A session of the tree."""

    session: Session
    depth: int

    @property
    def title(self) -> str:
        """What it is called; a subagent by its own name first."""
        name = title_of(self.session, 80)
        own = self.session.agent
        return name if not self.depth or own in ("", "main") else f"{own}: {name}"


def tree(session: Session) -> list[Relative]:
    """Return a session and its subagents, each before its own ones."""
    return list(islice(_below(session, 0), _MOST))


def figures(family: list[Relative]) -> list[str]:
    """Return what is to be said of each: calls, the largest prompt, what it cost."""
    priced = len(family) <= _PRICED
    table = rows([one.session for one in family]) if priced else {}
    out = []
    for i, one in enumerate(family):
        told = [counted(len(one.session.calls), "call")]
        if priced:
            told += [f"peak {tokens(table['peak_tokens'][i])}", dollars(table["cost_usd"][i])]
        out.append(" · ".join(told))
    return out


def _below(session: Session, depth: int) -> Iterator[Relative]:
    yield Relative(session, depth)
    for child in session.children:
        yield from _below(child, depth + 1)
