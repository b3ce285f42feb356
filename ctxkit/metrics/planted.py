"""Facts put into a session to see which survive, and an exact test of whether two settings keep
them differently.

Availability is an upper bound: what no longer stands in the context cannot be answered, what does
may be missed.
"""

from __future__ import annotations

import random
from math import comb
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ctxkit.errors import BadArguments
from ctxkit.messages import Message, Text
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.messages import Edit
    from ctxkit.session import Session

__all__ = ["Fact", "PairedVerdict", "available", "facts", "mcnemar", "plant"]

Family = Literal["constraint", "decision", "reference", "superseded"]
_SAID: dict[str, str] = {
    "constraint": "Whatever happens, the port {key} must stay closed.",
    "decision": "We decided to call the release {key}.",
    "reference": "The ticket for this is {key}.",
    "superseded": "The build number is 0000; no, it is {key} now.",
}


class Fact(NamedTuple):
    """One planted fact: what is said, and the word that must still stand somewhere."""

    family: Family
    key: str
    text: str


def facts(n: int = 12, seed: int = 0) -> tuple[Fact, ...]:
    """Return facts with words that stand nowhere else, as many of each family as of the others."""
    chance = random.Random(seed)  # noqa: S311  no secret
    families = get_args(Family)
    out = []
    for i in range(n):
        key = f"KX-{chance.randrange(10**7):07d}-{i}"
        out.append(Fact(families[i % 4], key, _SAID[families[i % 4]].format(key=key)))
    return tuple(out)


@of_session
def plant(session: Session, given: Iterable[Fact], seed: int = 0, *, until: float = 0.5) -> Session:
    """Return a recorded session in which each fact is said by the user, before a user's message in
    its first part.

    Args:
        session: a recorded session; its usage stays as it was, so the facts count as what they are
            estimated at.
        given: the facts.
        seed: of the places.
        until: share of the session in which they are said.

    Raises:
        BadArguments: the session has no user message there.
    """
    import msgspec

    path = session.path
    places = [
        i
        for i, e in enumerate(path)
        if isinstance(e, Message) and e.role == "user" and i <= max(until * len(path), 1)
    ]
    if not places:
        raise BadArguments(
            f"Session {session.id!r} has no user message in its first part to plant facts before."
        )
    chance = random.Random(seed)  # noqa: S311  no secret
    before: dict[int, list[Message]] = {}
    for n, fact in enumerate(given):
        message = Message(role="user", id=f"planted-{n}", parts=(Text(fact.text),), kind="planted")
        before.setdefault(chance.choice(places), []).append(message)
    log: list[Message | Edit] = []
    for i, entry in enumerate(path):
        log += before.get(i, [])
        log.append(entry)
    return msgspec.structs.replace(session, log=tuple(log), parents=(), leaf=-1)


@of_session
def available(session: Session, given: Iterable[Fact], call: int | None = None) -> dict[Fact, bool]:
    """Return for each fact whether its word stands in what a call was shown, or would be next.

    Where the word is an exact value that a model is asked for, this foretells its answer: 600 of
    600 in a published exam after real compactions (see docs/scores.md).
    """
    text = "\n".join(m.text for m in session.view(call))
    return {fact: fact.key in text for fact in given}


class PairedVerdict(NamedTuple):
    """Two settings over the same facts, paired: no pooling, no approximation."""

    both: int
    only_one: int
    only_other: int
    neither: int
    p: float
    """Two-sided exact McNemar: how likely a split as uneven as this is if both keep
    equally well.
    """


def mcnemar(one: Sequence[bool], other: Sequence[bool]) -> PairedVerdict:
    """Return the paired exact test of two lists of outcomes, one pair a fact.

    Raises:
        BadArguments: the lists are not of one length.
    """
    if len(one) != len(other):
        raise BadArguments(f"Outcomes are paired: {len(one)} and {len(other)} do not match.")
    pairs = list(zip(one, other, strict=True))
    b, c = pairs.count((True, False)), pairs.count((False, True))
    n = b + c
    tail = sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n if n else 1.0
    return PairedVerdict(
        pairs.count((True, True)), b, c, pairs.count((False, False)), min(2 * tail, 1.0)
    )
