"""`gates.gate_compactor` and `gates.survival`: which facts survive a compactor, and whether its
output is valid.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.redaction import redact
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.experiments.gates.compactor_command import command, validate_messages
from ctxkit.experiments.gates.regression_gate import (
    GateReport,
    Measurement,
    SessionFigures,
    load_baseline_or_fail,
    measure_first_with_noise,
    report_against_baseline,
)
from ctxkit.formats.losses import visible_messages
from ctxkit.formats.openai import encode_chat_message
from ctxkit.tokens.counters import to_compact_json
from ctxkit.tokens.registry import default_counter

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from ctxkit.experiments.gates.compactor_command import ChatMessages, Compactor
    from ctxkit.formats.inputs import SessionsLike
    from ctxkit.session.session import Session


COMPACTOR_LABEL = "compacted"


@dataclass(frozen=True, repr=False)
class CompactorReport(GateReport):
    """A verdict, with what outlived the rounds on each session."""

    survivals: dict[str, Survival] | None = None

    def to_text(self) -> str:
        """Return the rounds of each session, then the verdict."""
        told = [f"{name}\n{found.to_text()}" for name, found in (self.survivals or {}).items()]
        return "\n\n".join([*told, super().to_text()])


def gate_compactor(
    compact: Compactor | str,
    sessions: SessionsLike | None = None,
    baseline: str | os.PathLike[str] | None = None,
    *,
    rounds: int = 6,
    repeat: int = 1,
    timeout: float = 120.0,
    least: float = 0.0,
    update: bool = False,
    tolerance: float = 0.0,
) -> CompactorReport:
    """Return whether a compactor parts pairs or changes the order, and which facts outlive it.

    Args:
        compact: a function from messages to messages (Chat Completions, as dicts), or a command
            that gets them as JSON on stdin and prints what is left; no shell is asked.
        sessions: whose messages it gets; None: the sample that comes with the kit.
        baseline: a JSON file of what was measured before; None: only faults and `least` count.
        rounds: how often it is asked of each session.
        repeat: how often all of that is done: how far figures differ is their noise, which matters
            where a model writes summaries.
        timeout: seconds that a command may take, each time.
        least: share of the facts that must stand after the last round.
        update: write the figures of now into the baseline.
        tolerance: as in `gate`.

    Raises:
        BadArguments: it cannot be judged: it fails, hangs, or gives back no messages.
    """
    if repeat < 1 or not 0 <= least <= 1:
        raise BadArguments("repeat= is 1 or more, least= a share between 0 and 1.")
    if update and baseline is None:
        raise BadArguments("update= writes a baseline: name its file with baseline=.")
    before = None if baseline is None else load_baseline_or_fail(baseline, tolerance, update=update)
    given = _sessions_or_sample(sessions)
    work = command(compact, timeout) if isinstance(compact, str) else compact
    found = {s.id: [survival(work, s, rounds, seed=i) for i in range(repeat)] for s in given}
    now = {COMPACTOR_LABEL: {s.id: _survival_figures(s, found[s.id], rounds) for s in given}}
    faults = tuple(
        dict.fromkeys(f for every in found.values() for one in every for f in one.faults)
    )
    report = (
        GateReport(())
        if baseline is None
        else report_against_baseline(before, now, baseline, tolerance)
    )
    survived = {n: e.figures["survived"].value for n, e in now[COMPACTOR_LABEL].items()}
    faults += tuple(
        f"{n}: {share:.0%} of the facts outlive {rounds} rounds, less than {least:.0%}."
        for n, share in survived.items()
        if share < least
    )
    first = {name: every[0] for name, every in found.items()}
    return CompactorReport(report.changes, (*faults, *report.faults), report.notes, survivals=first)


def _sessions_or_sample(sessions: SessionsLike | None) -> list[Session]:
    from ctxkit.formats import samples
    from ctxkit.formats.inputs import as_sessions
    from ctxkit.session.session import with_unique_ids

    return with_unique_ids(as_sessions(samples.path() if sessions is None else sessions))


def _survival_figures(session: Session, found: list[Survival], rounds: int) -> SessionFigures:
    from ctxkit.experiments.session_runner import make_session_key

    figures: dict[str, Measurement] = {
        "faults_n": measure_first_with_noise([float(len(s.faults)) for s in found]),
        "survived": measure_first_with_noise([s.survived for s in found]),
        "cliff_round": measure_first_with_noise([float(s.cliff) for s in found]),
        "stale_n": measure_first_with_noise([float(s.rounds[-1].stale_n) for s in found]),
        "wrong_n": measure_first_with_noise([float(s.rounds[-1].wrong_n) for s in found]),
        "tokens_left": measure_first_with_noise([s.tokens_left for s in found]),
    }
    return SessionFigures(key=f"{make_session_key(session)}-{rounds}", figures=figures)


CANARY_TEXTS = {
    "constraint": "Whatever happens, the port {key} must stay closed.",
    "decision": "We decided to call the release {key}.",
    "reference": "The ticket for this is {key}.",
}
"""What is said once in each round, and must stand at every later one."""
CLIFF_SHARE = 0.5
"""Where less than this share stands, facts have fallen off."""


class Canary(NamedTuple):
    """A fact with a word that stands nowhere else, and the round in which it is said (from 1)."""

    family: str
    key: str
    text: str
    round: int


class ReplacedValue(NamedTuple):
    """A value that is said in one round and replaced in the next."""

    old: Canary
    new: Canary


class RoundResult(NamedTuple):
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
    rounds: tuple[RoundResult, ...]

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
        return next(
            (n for n, s in shares if s is not None and s < CLIFF_SHARE), len(self.rounds) + 1
        )

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
        stands = [
            [f"{n}", *(_share(self.kept(n, f)) for f in (None, *CANARY_TEXTS))] for n in numbers
        ]
        rounds = [
            [f"{n:,}" for n in (r.number, r.tokens_given, r.tokens_left, r.stale_n, r.wrong_n)]
            for r in self.rounds
        ]
        lines = [_table(["compactions", "facts that stand", *CANARY_TEXTS], stands), ""]
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
    return Table(tuple(map(Column, head)), tuple(tuple(map(Cell, r)) for r in rows)).to_text()


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
    count = default_counter()
    facts, values = make_canaries(rounds, seed)
    parts = list(split_session(session, rounds))
    shown: ChatMessages = []
    out: list[RoundResult] = []
    for number, part in enumerate(parts, 1):
        said = [c for c in (*facts, *(v for pair in values for v in pair)) if c.round == number]
        given = [*shown, *_with_canaries(part, said, random.Random(seed * 1000 + number))]  # noqa: S311
        try:
            shown = validate_messages(compact([dict(m) for m in given]))
        except BadArguments as error:
            raise BadArguments(f"Round {number}: {error}") from None
        text = to_compact_json(shown)
        kept = tuple(f.key in text for f in facts if f.round <= number)
        stands = [(v.old.key in text, v.new.key in text) for v in values if v.new.round <= number]
        stale, wrong = stands.count((True, True)), stands.count((True, False))
        sizes = count(to_compact_json(given)), count(text)
        out.append(
            RoundResult(number, *sizes, kept, stale, wrong, tuple(find_faults(given, shown)))
        )
    return Survival(facts, tuple(out))


def make_canaries(rounds: int, seed: int) -> tuple[tuple[Canary, ...], tuple[ReplacedValue, ...]]:
    """Return the facts, by round, and the values."""
    chance = random.Random(seed)  # noqa: S311  no secret
    words = iter(f"KX-{n:07d}" for n in chance.sample(range(10**7), 5 * rounds))
    facts: list[Canary] = []
    values: list[ReplacedValue] = []
    for number in range(1, rounds + 1):
        for family, text in CANARY_TEXTS.items():
            key = next(words)
            facts.append(Canary(family, key, text.format(key=key), number))
        old, new = next(words), next(words)
        if number < rounds:
            host = f"Build {number} runs on host"
            before = Canary("value", old, f"{host} {old}.", number)
            values.append(
                ReplacedValue(before, Canary("value", new, f"{host} {new} now.", number + 1))
            )
    return tuple(facts), tuple(values)


def split_session(session: Session, n: int) -> Iterator[ChatMessages]:
    """Yield the messages of a session in so many parts; no call is parted from its results."""
    messages = [encode_chat_message(m) for m in visible_messages(session.messages)]
    starts = _speaking_places(messages)
    if n < 1 or len(starts) < n:
        raise BadArguments(
            f"Session {session.id!r} can be taken in 1 to {len(starts)} parts without parting a "
            f"call from its result, not in {n}: ask for fewer rounds, or give a longer session."
        )
    cuts = [starts[i * len(starts) // n] for i in range(n)] + [len(messages)]
    for begin, end in pairwise([0, *cuts[1:]]):
        yield messages[begin:end]


def _speaking_places(messages: ChatMessages) -> list[int]:
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


def _with_canaries(
    part: ChatMessages, said: Sequence[Canary], chance: random.Random
) -> ChatMessages:
    """Return a part of a session in which the user says some facts, anywhere after the system."""
    places = [p for p in _speaking_places(part) if part[p]["role"] != "system"]
    if not places:
        return [*part, *map(_canary_message, said)]
    before: dict[int, ChatMessages] = {}
    for canary in said:
        before.setdefault(chance.choice(places), []).append(_canary_message(canary))
    return [m for i, message in enumerate(part) for m in (*before.get(i, ()), message)]


def _canary_message(canary: Canary) -> dict[str, str]:
    return {"role": "user", "content": canary.text}


def find_faults(given: ChatMessages, back: ChatMessages) -> list[str]:
    """Return in sentences what is wrong with messages that came back for those that were given."""
    return [*_pair_faults(back), *_order_faults(given, back), *_system_faults(given, back)]


def _pair_faults(back: ChatMessages) -> list[str]:
    """Each result follows its call before anybody else speaks, and each call has its result."""
    out: list[str] = []
    waiting: dict[str, int] = {}
    for i, message in enumerate(back):
        if message["role"] == "tool":
            name = str(message.get("tool_call_id", ""))
            if waiting.pop(name, None) is None:
                out.append(
                    f"Message {i} is the result of {sanitize_line(redact(name), 40)!r}, a call "
                    "that is not"
                    " before it."
                )
            continue
        out += _unanswered(waiting)
        waiting = dict.fromkeys(_calls(message), i)
    # the newest calls may still be running; those of the last message are not missed
    last = len(back) - 1
    return out + _unanswered({c: i for c, i in waiting.items() if i != last})


def _unanswered(waiting: dict[str, int]) -> list[str]:
    return [
        f"The call {sanitize_line(redact(c), 40)!r} of message {i} has lost its result."
        for c, i in waiting.items()
    ]


def _calls(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    found = calls if isinstance(calls, list) else []
    return [str(c.get("id", "")) for c in found if isinstance(c, dict)]


def _order_faults(given: ChatMessages, back: ChatMessages) -> list[str]:
    """Messages that came back as they were stand in the order in which they were given."""
    places: dict[str, list[int]] = {}
    for i, message in enumerate(given):
        places.setdefault(_message_key(message), []).append(i)
    last, out = -1, []
    for i, message in enumerate(back):
        found = places.get(_message_key(message))
        if not found:
            continue
        later = next((p for p in found if p > last), None)
        if later is None:
            out.append(f"Message {i} ({message['role']}) stands after one that was said later.")
        else:
            last = later
    return out


def _message_key(message: dict[str, Any]) -> str:
    return json.dumps(message, sort_keys=True, default=str)


def _system_faults(given: ChatMessages, back: ChatMessages) -> list[str]:
    if given and given[0]["role"] == "system" and back[0] != given[0]:
        return ["The system message does not stand first as it was."]
    return []
