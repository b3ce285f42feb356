"""Short cuts that parts could once offer beside their call; nothing asks for them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ctxkit.errors import BadArguments
from ctxkit.policies.chain import Joined
from ctxkit.policies.dues import Due, Not
from ctxkit.policies.hinges import written
from ctxkit.policies.policy import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.chain import Part

    Kind = Literal["policy", "trigger", "pruning"]

_WITHDRAWN: dict[Kind, tuple[str, str]] = {
    "policy": ("leap", "what a replay bills follows from what the policy returns"),
    "trigger": ("level", "`first(forecast, start, stop)` alone says when it is due"),
    "pruning": ("curve", "what each call bills follows from what the pruning returns"),
}
"""For each kind of part its short cut, and what holds instead."""


def refuse(kind: Kind, part: Part | Due | None) -> None:
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


def _joined(part: Part | Due | None) -> Iterator[object]:
    """Yield a part, as it was written, and all that it is joined from."""
    yield written(part)
    if isinstance(part, Not):
        yield from _joined(part.part)
    elif isinstance(part, (Joined, Due)):
        for each in part.parts:
            yield from _joined(each)
