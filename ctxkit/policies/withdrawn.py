"""Short cuts that parts could once offer beside their call; nothing asks for them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ctxkit.errors import BadArguments
from ctxkit.policies.chain import Chain, Ladder
from ctxkit.policies.dues import Both, Either, Not
from ctxkit.policies.policy import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    Kind = Literal["policy", "trigger", "pruning"]

_WITHDRAWN: dict[Kind, tuple[str, str]] = {
    "policy": ("leap", "what a replay bills follows from what the policy returns"),
    "trigger": ("level", "`first(outlook, start, stop)` alone says when it is due"),
    "pruning": ("curve", "what each call bills follows from what the pruning returns"),
}
"""For each kind of part its short cut, and what holds instead."""


def refuse(kind: Kind, part: Any) -> None:
    """Refuse a part that still has the short cut of its kind, or is joined from one that has.

    Raises:
        BadArguments: it has; the sentence says what to do.
    """
    name, instead = _WITHDRAWN[kind]
    for each in _joined(part):
        if callable(getattr(each, name, None)):
            raise BadArguments(
                f"The {kind} {name_of(each)} has a method `{name}`, which nothing asks any more: "
                f"take it out; {instead}."
            )


def _joined(part: Any) -> Iterator[Any]:
    """Yield a part and all that it is joined from."""
    yield part
    if isinstance(part, (Chain, Ladder, Either, Both)):
        for each in part.parts:
            yield from _joined(each)
    elif isinstance(part, Not):
        yield from _joined(part.part)
