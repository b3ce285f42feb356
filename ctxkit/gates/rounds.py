"""What outlives a compactor, round after round: facts, values that were replaced, pairs, order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.display.sheets import Box, Heading, Tabular
from ctxkit.errors import BadArguments
from ctxkit.gates.pairing import faults
from ctxkit.gates.programs import checked
from ctxkit.tokens.counter_names import default
from ctxkit.tokens.counters import as_json
from ctxkit.writers.as_openai import to_message
from ctxkit.writers.losses import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.gates.programs import Compactor, Talk
    from ctxkit.session import Session

FAMILIES = {
    "constraint": "Whatever happens, the port {key} must stay closed.",
    "decision": "We decided to call the release {key}.",
    "reference": "The ticket for this is {key}.",
}
"""What is said once in each round, and must stand at every later one."""
FALLEN = 0.5
"""Where less than this share stands, facts have fallen off."""


class Canary(NamedTuple):
    """A fact with a word that stands nowhere else, and the round in which it is said (from 1)."""

    family: str
    key: str
    text: str
    round: int


class Value(NamedTuple):
    """A value that is said in one round and replaced in the next."""

    old: Canary
    new: Canary


class Round(NamedTuple):
    """What one round left."""

    number: int
    tokens_given: int
    tokens_left: int
    kept: tuple[bool, ...]
    """For each fact that was said until then, in their order, whether it stands."""
    stale_n: int
    """Values whose old one stands beside the new one."""
    wrong_n: int
    """Values whose old one stands and whose new one does not."""
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Survival:
    """What outlived the rounds, counted by how many compactions a fact went through."""

    facts: tuple[Canary, ...]
    rounds: tuple[Round, ...]

    def kept(self, times: int, family: str | None = None) -> float | None:
        """Return the share of facts that stand after so many compactions; None without any."""
        found = [
            r.kept[i]
            for r in self.rounds
            for i, f in enumerate(self.facts[: len(r.kept)])
            if r.number - f.round + 1 == times and family in (None, f.family)
        ]
        return sum(found) / len(found) if found else None

    @property
    def cliff(self) -> int:
        """After how many compactions less than half of the facts stand; rounds + 1: never."""
        shares = [(n, self.kept(n)) for n in range(1, len(self.rounds) + 1)]
        return next((n for n, s in shares if s is not None and s < FALLEN), len(self.rounds) + 1)

    @property
    def survived(self) -> float:
        """Share of all facts that stand after the last round."""
        kept = self.rounds[-1].kept
        return sum(kept) / len(kept)

    @property
    def tokens_left(self) -> float:
        """Mean share of the tokens given that came back."""
        shares = [r.tokens_left / max(r.tokens_given, 1) for r in self.rounds]
        return sum(shares) / len(shares)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with what came back, with the round."""
        return tuple(f"Round {r.number}: {told}" for r in self.rounds for told in r.faults)

    def to_text(self) -> str:
        """Return what stands by the number of compactions, and what each round left."""
        numbers = range(1, len(self.rounds) + 1)
        stands = [[f"{n}", *(_share(self.kept(n, f)) for f in (None, *FAMILIES))] for n in numbers]
        rounds = [
            [f"{n:,}" for n in (r.number, r.tokens_given, r.tokens_left, r.stale_n, r.wrong_n)]
            for r in self.rounds
        ]
        lines = [_table(["compactions", "facts that stand", *FAMILIES], stands), ""]
        lines += [_table(["round", "tokens given", "left", "stale values", "wrong"], rounds)]
        cliff = self.cliff
        fell = (
            f"Facts fall off after {cliff} compaction{'s' * (cliff != 1)}: less than half stand."
            if cliff <= len(self.rounds)
            else f"More than half of the facts outlive {len(self.rounds)} compactions."
        )
        return "\n".join([*lines, fell])

    def __repr__(self) -> str:
        return self.to_text()


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return Tabular(tuple(map(Heading, head)), tuple(tuple(map(Box, r)) for r in rows)).to_text()


def survival(compact: Compactor, session: Session, rounds: int = 6, *, seed: int = 0) -> Survival:
    """Return what outlives a compactor that is asked once in each round, as a session grows.

    In each round it gets what it left of the round before, then the next part of the session, in
    which the user says three new facts and a value. The next round replaces the value.

    Args:
        compact: takes Chat Completions messages (dicts), and returns what is left of them.
        session: whose messages it gets, as they were said.
        rounds: how often it is asked.
        seed: of the words of the facts.

    Raises:
        BadArguments: the session is too short for so many rounds, or what came back is no list of
            messages; a command says so in its own words.
    """
    count = default()
    facts, values = canaries(rounds, seed)
    parts = list(pieces(session, rounds))
    shown: Talk = []
    out: list[Round] = []
    for number, part in enumerate(parts, 1):
        said = [c for c in (*facts, *(v for pair in values for v in pair)) if c.round == number]
        given = [*shown, *_with(part, said, random.Random(seed * 1000 + number))]  # noqa: S311
        try:
            shown = checked(compact([dict(m) for m in given]))
        except BadArguments as error:
            raise BadArguments(f"Round {number}: {error}") from None
        text = as_json(shown)
        kept = tuple(f.key in text for f in facts if f.round <= number)
        stands = [(v.old.key in text, v.new.key in text) for v in values if v.new.round <= number]
        stale, wrong = stands.count((True, True)), stands.count((True, False))
        sizes = count(as_json(given)), count(text)
        out.append(Round(number, *sizes, kept, stale, wrong, tuple(faults(given, shown))))
    return Survival(facts, tuple(out))


def canaries(rounds: int, seed: int) -> tuple[tuple[Canary, ...], tuple[Value, ...]]:
    """Return the facts, by round, and the values."""
    chance = random.Random(seed)  # noqa: S311  no secret
    words = iter(f"KX-{n:07d}" for n in chance.sample(range(10**7), 5 * rounds))
    facts: list[Canary] = []
    values: list[Value] = []
    for number in range(1, rounds + 1):
        for family, text in FAMILIES.items():
            key = next(words)
            facts.append(Canary(family, key, text.format(key=key), number))
        old, new = next(words), next(words)
        if number < rounds:
            host = f"Build {number} runs on host"
            before = Canary("value", old, f"{host} {old}.", number)
            values.append(Value(before, Canary("value", new, f"{host} {new} now.", number + 1)))
    return tuple(facts), tuple(values)


def pieces(session: Session, n: int) -> Iterator[Talk]:
    """Yield the messages of a session in so many parts; no call is parted from its results."""
    messages = [to_message(m) for m in visible(session.messages)]
    starts = _places(messages)
    if n < 1 or len(starts) < n:
        raise BadArguments(
            f"Session {session.id!r} can be taken in 1 to {len(starts)} parts without parting a "
            f"call from its result, not in {n}: ask for fewer rounds, or give a longer session."
        )
    cuts = [starts[i * len(starts) // n] for i in range(n)] + [len(messages)]
    for begin, end in pairwise([0, *cuts[1:]]):
        yield messages[begin:end]


def _places(messages: Talk) -> list[int]:
    """Return where somebody may begin to speak: no call before waits for its result."""
    waiting: set[str] = set()
    out = []
    for i, m in enumerate(messages):
        if m["role"] == "tool":
            waiting.discard(m["tool_call_id"])
            continue
        if not waiting:
            out.append(i)
        waiting = {c["id"] for c in m.get("tool_calls", ())}
    return out


def _with(part: Talk, said: Sequence[Canary], chance: random.Random) -> Talk:
    """Return a part of a session in which the user says some facts, anywhere after the system."""
    places = [p for p in _places(part) if part[p]["role"] != "system"]
    if not places:
        return [*part, *map(_said, said)]
    before: dict[int, Talk] = {}
    for canary in said:
        before.setdefault(chance.choice(places), []).append(_said(canary))
    return [m for i, message in enumerate(part) for m in (*before.get(i, ()), message)]


def _said(canary: Canary) -> dict[str, str]:
    return {"role": "user", "content": canary.text}
