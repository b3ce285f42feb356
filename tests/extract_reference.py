"""The extractive summary by its plain definition, over strings: what the fast one is held to."""

from __future__ import annotations

from dataclasses import dataclass
from math import log as ln

from ctxkit.policies import CUE_PATTERN, FOCUS_MARK, MAX_LINE_CHARS, MAX_READ_CHARS
from ctxkit.session import Message  # noqa: TC001  plain values of the tests

CANDIDATES = 400
TAGS = {"user": "User", "assistant": "Assistant", "summary": "Earlier", "system": "System"}


@dataclass(frozen=True, eq=False)
class Unit:
    tag: str
    text: str
    place: int
    words: frozenset[str]

    @property
    def cost(self) -> int:
        return len(self.tag) + len(self.text) + 3


def extract(messages: list[Message], tokens: int, user: float = 0.55) -> str:
    units = units_of(messages)
    budget = tokens * 3.5
    asked = [u for u in units if u.tag == "User"]
    rest = [u for u in units if u.tag != "User"]
    weights = weights_of(units)
    chosen = choose(asked, weights, budget * user, [])
    left = budget - sum(u.cost for u in chosen)
    chosen += choose(rest, weights, left, chosen)
    left = budget - sum(u.cost for u in chosen)
    chosen += choose([u for u in asked if u not in chosen], weights, left, chosen)
    if not chosen:
        said = (
            f"{TAGS.get(m.role, 'Result')}: {' '.join(m.text.split())}"
            for m in messages
            if m.text.strip()
        )
        return "\n".join(said)[: max(int(budget), 1)]
    return "\n".join(f"{u.tag}: {u.text}" for u in sorted(chosen, key=lambda u: u.place))


def units_of(messages: list[Message]) -> list[Unit]:
    import re

    out: list[Unit] = []

    def add(tag: str, text: str) -> None:
        line = " ".join(text.split())
        if len(line) > MAX_LINE_CHARS:
            line = line[: MAX_LINE_CHARS - 1] + "…"
        words = frozenset(w.lower() for w in re.findall(r"[\w./-]{2,}", line))
        if words:
            out.append(Unit(tag, line, len(out), words))

    for message in messages:
        whole = message.text
        texts = (
            [whole]
            if len(whole) <= MAX_READ_CHARS
            else [whole[: MAX_READ_CHARS // 2], whole[-MAX_READ_CHARS // 2 :]]
        )
        if message.role == "tool":
            lines = [s for text in texts for s in text.splitlines() if s.strip()]
            telling = [s for s in lines if CUE_PATTERN.search(s)][:3] or lines[-1:]
            for line in telling[: 3 if message.is_error else 1]:
                add(f"Result of {message.tool or 'a tool'}", line)
            continue
        for text in texts:
            for sentence in re.split(r"(?<=[.!?])\s+|\n+", text):
                if message.role != "summary" or not sentence.startswith(FOCUS_MARK):
                    tag, said = TAGS[message.role], sentence
                    while tag == "Earlier" and (nested := re.match("(User|Earlier): ", said)):
                        tag, said = nested[1], said[nested.end() :]  # a line keeps its first tag
                    add(tag, said)
        for call in message.tool_calls:
            found = (v for v in call.arguments.values() if isinstance(v, str) and v)
            add("Call", f"{call.name} {next(found, call.raw or '')[:120]}")
    return out


def weights_of(units: list[Unit]) -> dict[int, float]:
    n = len(units)
    seen: dict[str, int] = {}
    for unit in units:
        for word in unit.words:
            seen[word] = seen.get(word, 0) + 1
    out = {}
    for unit in units:
        # in steps of 2^-40 sums are exact, in whatever order a set gives its words
        known = sum(round(ln(1 + n / seen[w]) * 2**40) / 2**40 for w in unit.words)
        information = known / (8 + len(unit.words)) ** 0.9
        cue = 1.6 if CUE_PATTERN.search(unit.text) else 1.0
        first = 1.5 if unit.tag == "Earlier" or unit.place == 0 else 1.0
        out[unit.place] = information * cue * first * (0.7 + 0.6 * (unit.place + 1) / n)
    return out


def choose(
    units: list[Unit], weights: dict[int, float], budget: float, known: list[Unit]
) -> list[Unit]:
    left = sorted(units, key=lambda u: (-weights[u.place], u.place))[:CANDIDATES]
    chosen: list[Unit] = []

    def worth(unit: Unit) -> float:
        alike = max((overlap(unit, k) for k in (*known, *chosen)), default=0.0)
        return weights[unit.place] * (1 - 0.8 * alike)

    while left := [u for u in left if u.cost <= budget and u not in chosen]:
        best = max(left, key=lambda u: (worth(u), -u.place))
        chosen.append(best)
        budget -= best.cost
    return chosen


def overlap(a: Unit, b: Unit) -> float:
    return len(a.words & b.words) / min(len(a.words), len(b.words))
