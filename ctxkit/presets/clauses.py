"""LangChain's words for how much: `("tokens", 4000)`, `("fraction", 0.8)`, their AND and OR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Above, Both, Count, Either, Share

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.tokens import Room

KINDS = ("tokens", "messages", "fraction")
INSTRUCTIONS = (
    "Extract the most important context from this conversation; your words will stand in its place."
    " Sections: session intent, summary, artifacts, next steps; say None where there is nothing."
)
ROLES = ("user", "assistant", "tool", "summary")
"""Roles that LangChain keeps in its state; the system prompt is not among them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepsByClause(Summary):
    """Summarise all but what is kept in LangChain's words."""

    apart: bool = False
    keep: tuple[str, float] = ("messages", 20)
    """What is kept: a number of messages or tokens, or a share of the window."""

    def cut(self, history: History, room: Room) -> int:
        """Return the first position that is kept."""
        return cut(history, room, self.keep)


def checked(size: Any, what: str) -> tuple[str, float]:
    """Return a size that is one.

    Raises:
        BadArguments: it is none; the sentence says how one is written.
    """
    if isinstance(size, (list, tuple)) and len(size) == 2:
        kind, value = size
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        whole = kind == "fraction" or (number and value == int(value))
        if kind in KINDS and number and whole and value > 0 and (kind != "fraction" or value <= 1):
            return str(kind), value
    raise BadArguments(
        f"{what} is a pair such as ('tokens', 4000), ('messages', 20) or ('fraction', 0.8), not"
        f" {size!r}."
    )


def trigger(clauses: Any) -> Any:
    """Return a trigger: a pair, a table of pairs that must all hold, or a list of which one must;
    None for never.

    Raises:
        BadArguments: it is none of these.
    """
    if clauses is None:
        return None
    if isinstance(clauses, dict):
        if not clauses:
            raise BadArguments("A trigger without tokens, messages or fraction is none.")
        parts = tuple(_one(checked((k, v), "trigger")) for k, v in clauses.items())
        return parts[0] if len(parts) == 1 else Both(parts)
    if isinstance(clauses, list):
        if not clauses:
            return None
        either = tuple(trigger(c) for c in clauses)
        return either[0] if len(either) == 1 else Either(either)
    return _one(checked(clauses, "trigger"))


def _one(size: tuple[str, float]) -> Any:
    kind, value = size
    if kind == "messages":
        return Count(int(value), ROLES)
    return Above(value, or_equal=True) if kind == "tokens" else Share(value, or_equal=True)


def cut(history: History, room: Room, keep: tuple[str, float]) -> int:
    """Return LangChain's cut: so many messages or tokens at the end, with the calls they answer."""
    kind, value = keep
    n = len(history)
    if kind == "messages":
        return history.safe_before(max(n - int(value), 0))
    tokens = max(int(value if kind == "tokens" else value * room.limit), 1)
    if history.before(n) <= tokens:
        return 0
    return history.safe_before(min(history.back(tokens + 1) + 1, n - 1))
