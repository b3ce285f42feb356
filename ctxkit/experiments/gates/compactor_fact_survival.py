"""Survival of planted facts over repeated compaction by a compactor, and validity of its output."""

# Method: canary facts, words that occur nowhere else, are planted round by round into a growing
# session, and the compactor is called once per round on its last output and the next part. A fact
# survives a round if its word is in the output. In each round a value is set that the next round
# replaces: it is stale if both words are in the output, wrong if the old one alone is. Every output
# is checked for call and result pairs, message order and the system message. Repeated runs with
# other seeds give the noise.

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    format_percent,
    pluralize,
    quote_line,
    sanitize_line,
)
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments
from ctxkit.formats.conversion_losses import select_sent_messages
from ctxkit.formats.openai import encode_chat_message
from ctxkit.tokens.message_token_counting import to_compact_json
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.session.session import Session

    ChatMessages = list[dict[str, Any]]
    Compactor = Callable[[ChatMessages], ChatMessages]


CANARY_TEXTS = {
    "constraint": "Whatever happens, the port {key} must stay closed.",
    "decision": "We decided to call the release {key}.",
    "reference": "The ticket for this is {key}.",
}
"""Text of the fact of each family that is planted in each round."""
CLIFF_SHARE = 0.5
"""Survival share below which `FactSurvival.cliff` counts facts as lost."""


class Canary(NamedTuple):
    """A planted fact with a word that occurs nowhere else, and its round (from 1)."""

    family: str
    key: str
    text: str
    round: int


class ReplacedValue(NamedTuple):
    """A value that is planted in one round and replaced in the next."""

    old: Canary
    new: Canary


class CompactionRoundResult(NamedTuple):
    """Sizes, surviving facts and faults of one round."""

    number: int
    tokens_before: int
    tokens_left: int
    is_retained: tuple[bool, ...]
    """For each fact planted so far, in order, whether its word is in the output."""
    stale_values_n: int
    """Number of values whose old and new words are both in the output."""
    wrong_n: int
    """Number of values whose old word is in the output without the new one."""
    faults: tuple[str, ...]
    changes: bool = True
    """False where the output is the input."""


@dataclass(frozen=True)
class FactSurvival:
    """Survival of planted facts by the number of compactions that they went through."""

    facts: tuple[Canary, ...]
    rounds: tuple[CompactionRoundResult, ...]

    def get_share(self, times: int, family: str | None = None) -> float | None:
        """Return the share of facts that survive a number of compactions, from 0 to 1.

        Args:
            times: number of compactions.
            family: kind of fact; None: all kinds.

        Returns:
            The share; None where no fact went through so many compactions.
        """
        survived = [
            r.is_retained[i]
            for r in self.rounds
            for i, f in enumerate(self.facts[: len(r.is_retained)])
            if r.number - f.round + 1 == times and family in (None, f.family)
        ]
        return sum(survived) / len(survived) if survived else None

    @property
    def cliff(self) -> int:
        """Compactions after which less than half of the facts survive; rounds + 1: never."""
        shares = [(n, self.get_share(n)) for n in range(1, len(self.rounds) + 1)]
        return next(
            (n for n, s in shares if s is not None and s < CLIFF_SHARE), len(self.rounds) + 1
        )

    @property
    def survived(self) -> float:
        """Share of all facts that survive the last round."""
        survived = self.rounds[-1].is_retained
        return sum(survived) / len(survived)

    @property
    def changes(self) -> bool:
        """True where the compactor changed anything in any round."""
        return any(r.changes for r in self.rounds)

    @property
    def tokens_left(self) -> float:
        """Mean ratio of output tokens to input tokens over the rounds."""
        shares = [r.tokens_left / max(r.tokens_before, 1) for r in self.rounds]
        return sum(shares) / len(shares)

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of the outputs, each with its round."""
        return tuple(f"Round {r.number}: {fault}" for r in self.rounds for fault in r.faults)

    def to_text(self) -> str:
        """Return two tables, survival by number of compactions and results by round, as text."""
        numbers = range(1, len(self.rounds) + 1)
        share_rows = [
            [f"{n}", *(_format_share(self.get_share(n, f)) for f in (None, *CANARY_TEXTS))]
            for n in numbers
        ]
        round_rows = [
            [
                f"{n:,}"
                for n in (r.number, r.tokens_before, r.tokens_left, r.stale_values_n, r.wrong_n)
            ]
            for r in self.rounds
        ]
        lines = [_format_table(["compactions", "facts that stand", *CANARY_TEXTS], share_rows), ""]
        lines += [
            _format_table(["round", "tokens given", "left", "stale values", "wrong"], round_rows)
        ]
        cliff = self.cliff
        verdict = (
            f"Facts fall off after {cliff} compaction{'s' * (cliff != 1)}: less than half stand."
            if cliff <= len(self.rounds)
            else f"More than half of the facts outlive {pluralize(len(self.rounds), 'compaction')}."
        )
        return "\n".join([*lines, verdict])

    def __repr__(self) -> str:
        return self.to_text()


def _format_share(value: float | None) -> str:
    return "-" if value is None else format_percent(value)


def _format_table(head: list[str], rows: list[list[str]]) -> str:
    return Table(tuple(map(Column, head)), tuple(tuple(map(Cell, r)) for r in rows)).to_text()


def measure_fact_survival(
    compact: Compactor, session: Session, rounds: int = 6, *, seed: int = 0
) -> FactSurvival:
    """Measure which planted facts survive repeated compaction of a growing session.

    In each round the compactor gets its previous output and the next part of the session, in which
    the user states three new facts and a value. The next round replaces the value.

    Args:
        compact: function from Chat Completions messages (dictionaries) to fewer of them.
        session: the session whose messages are compacted, as recorded.
        rounds: number of compactions.
        seed: seed of the words of the facts and of their positions.

    Returns:
        The facts and the result of each round; its text shows survival by number of compactions.

    Raises:
        BadArguments: the session is too short for so many rounds, or the compactor fails or returns
            no list of messages.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.gates.compactor_fact_survival import measure_fact_survival
        >>> measure_fact_survival(lambda messages: messages, ck.read(ck.samples.path()), 2).survived
        1.0
    """
    count = default_counter()
    facts, values = make_canaries(rounds, seed)
    parts = list(split_into_rounds(session, rounds))
    compacted: ChatMessages = []
    results: list[CompactionRoundResult] = []
    for number, part in enumerate(parts, 1):
        canaries = [c for c in (*facts, *(v for pair in values for v in pair)) if c.round == number]
        chance = random.Random(seed * 1000 + number)  # noqa: S311  no secret
        messages = [*compacted, *_with_canaries(part, canaries, chance)]
        try:
            compacted = validate_compacted_messages(compact([dict(m) for m in messages]))
        except BadArguments as error:
            raise BadArguments(f"Round {number}: {error}") from None
        # A fact survives where its word is anywhere in the output, in whatever form.
        text = to_compact_json(compacted)
        is_retained = tuple(f.key in text for f in facts if f.round <= number)
        # Of each value replaced so far: is its old word in the output, and is its new one?
        value_states = [
            (v.old.key in text, v.new.key in text) for v in values if v.new.round <= number
        ]
        stale, wrong = value_states.count((True, True)), value_states.count((True, False))
        sizes = count(to_compact_json(messages)), count(text)
        results.append(
            CompactionRoundResult(
                number,
                *sizes,
                is_retained,
                stale,
                wrong,
                tuple(find_message_faults(messages, compacted)),
                compacted != messages,
            )
        )
    return FactSurvival(facts, tuple(results))


def make_canaries(rounds: int, seed: int) -> tuple[tuple[Canary, ...], tuple[ReplacedValue, ...]]:
    """Return three facts per round, and one replaced value per round but the last.

    Args:
        rounds: number of rounds.
        seed: seed of the random words.
    """
    chance = random.Random(seed)  # noqa: S311  no secret
    # distinct words without meaning, so that none occurs in a session by chance
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


def split_into_rounds(session: Session, n: int) -> Iterator[ChatMessages]:
    """Yield the messages of a session in `n` parts; no part separates a call from its result.

    Args:
        session: a session with text; its messages count as recorded.
        n: number of parts.

    Yields:
        Chat Completions messages of each part, about the same number in each.

    Raises:
        BadArguments: the session has too few places where it can be split.
    """
    messages = [encode_chat_message(m) for m in select_sent_messages(session.messages)]
    starts = _find_insert_positions(messages)
    if n < 1 or len(starts) < n:
        raise BadArguments(
            f"Session {quote_line(session.id)} can be taken in 1 to {len(starts)} parts"
            f" without parting a call from its result, not in {n}: ask for fewer rounds, or give a"
            " longer session."
        )
    cuts = [starts[i * len(starts) // n] for i in range(n)] + [len(messages)]
    for begin, end in pairwise([0, *cuts[1:]]):
        yield messages[begin:end]


def _find_insert_positions(messages: ChatMessages) -> list[int]:
    """Return the positions at which a message may be inserted: no earlier call lacks its result."""
    # `waiting` holds the ids of calls whose results have not come yet
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
    part: ChatMessages, canaries: Sequence[Canary], chance: random.Random
) -> ChatMessages:
    """Return a part of a session with facts inserted as user messages at random positions."""
    places = [p for p in _find_insert_positions(part) if part[p]["role"] != "system"]
    if not places:
        return [*part, *map(_canary_message, canaries)]
    before: dict[int, ChatMessages] = {}
    for canary in canaries:
        before.setdefault(chance.choice(places), []).append(_canary_message(canary))
    return [m for i, message in enumerate(part) for m in (*before.get(i, ()), message)]


def _canary_message(canary: Canary) -> dict[str, str]:
    return {"role": "user", "content": canary.text}


def find_message_faults(before: ChatMessages, after: ChatMessages) -> list[str]:
    """Return the faults of compacted messages as sentences: pairs, order, system message.

    Args:
        before: the messages that the compactor was given.
        after: those that it returned.
    """
    return [
        *_find_pair_faults(after),
        *_find_order_faults(before, after),
        *_find_system_faults(before, after),
    ]


def _find_pair_faults(after: ChatMessages) -> list[str]:
    """Return results without a preceding call, and calls without a result."""
    faults: list[str] = []
    waiting: dict[str, int] = {}
    for i, message in enumerate(after):
        if message["role"] == "tool":
            name = str(message.get("tool_call_id", ""))
            if waiting.pop(name, None) is None:
                faults.append(
                    f"Message {i} is the result of {sanitize_line(name, 40)!r}, a call "
                    "that is not"
                    " before it."
                )
            continue
        faults += _list_unanswered(waiting)
        waiting = dict.fromkeys(_get_call_ids(message), i)
    # calls of the last message may still be running, so their results are not missed
    last = len(after) - 1
    return faults + _list_unanswered({c: i for c, i in waiting.items() if i != last})


def _list_unanswered(waiting: dict[str, int]) -> list[str]:
    return [
        f"The call {sanitize_line(c, 40)!r} of message {i} has lost its result."
        for c, i in waiting.items()
    ]


def _get_call_ids(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    entries = calls if isinstance(calls, list) else []
    return [str(c.get("id", "")) for c in entries if isinstance(c, dict)]


def _find_order_faults(before: ChatMessages, after: ChatMessages) -> list[str]:
    """Return unchanged messages that are no longer in their original order.

    Greedy subsequence match: each unchanged message must occur behind the previous match.
    """
    places: dict[str, list[int]] = {}
    for i, message in enumerate(before):
        places.setdefault(_message_key(message), []).append(i)
    last, faults = -1, []
    for i, message in enumerate(after):
        positions = places.get(_message_key(message))
        if not positions:
            continue
        later = next((p for p in positions if p > last), None)
        if later is None:
            faults.append(f"Message {i} ({message['role']}) stands after one that was said later.")
        else:
            last = later
    return faults


def _message_key(message: dict[str, Any]) -> str:
    return json.dumps(message, sort_keys=True, default=str)


def _find_system_faults(before: ChatMessages, after: ChatMessages) -> list[str]:
    if before and before[0]["role"] == "system" and after[0] != before[0]:
        return ["The system message does not stand first as it was."]
    return []


ROLES = ("system", "developer", "user", "assistant", "tool")


def validate_compacted_messages(answer: Any) -> ChatMessages:
    """Return an answer that is a list of messages.

    Args:
        answer: what a compactor returned.

    Returns:
        The answer as it is; each message has a known role and a content.

    Raises:
        BadArguments: it is not one; the sentence names the first fault.
    """
    if not isinstance(answer, list) or not answer:
        what = "an empty list" if answer == [] else f"a {type(answer).__name__}"
        raise BadArguments(f"The compactor's answer is {what}: expected a list of messages.")
    for i, message in enumerate(answer):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise BadArguments(
                f"Message {i} of the compactor's answer has no role: expected an object with "
                f"`role` ({', '.join(ROLES)}) and `content`."
            )
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise BadArguments(
                f"The content of message {i} of the compactor's answer is no text and no list."
            )
    return answer
