"""Summaries without a model: extracted sentences, a fixed size, a share of the input, or the recorded summary."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import log as ln
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.faces import listed
from ctxkit.messages import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.history import History

__all__ = ["Extractive", "Fixed", "Passage", "Recorded", "Share", "named"]
__dir__ = listed(__all__)


@dataclass(frozen=True)
class Passage:
    """What is to be summarised: the messages at positions start..before of a history, those that stay left out."""

    history: History
    before: int
    """One past the last position."""
    start: int = 0
    limit: int | None = None
    """Most tokens that the summary may have; None: the summariser's own."""
    instructions: str = ""
    """What to look at, in plain words."""

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Positions of the messages that will go."""
        stays = self.history.stays
        return tuple(p for p in range(self.start, min(self.before, len(self.history))) if not stays[p])

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """The messages that will go; made when asked for."""
        return tuple(self.history[p] for p in self.positions)

    @property
    def previous(self) -> Message | None:
        """The newest summary among them."""
        return next((m for m in reversed(self.messages) if m.role == "summary"), None)

    @cached_property
    def tokens(self) -> int:
        """Tokens of all that stands between the two positions."""
        return self.history.before(self.before) - self.history.before(self.start)


Summariser = Callable[[Passage], Message | str | int | None]
"""Writes the summary of a passage: text, a message, or only its size in tokens; None or an empty text is a failure."""


@dataclass(frozen=True)
class Fixed:
    """A summary of a fixed size, without text."""

    tokens: int = 1500
    name = "fixed"

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise BadArguments(f"A summary of {self.tokens} tokens is none: give 1 or more.")

    def __call__(self, passage: Passage) -> int:
        """Return the size, or the passage's limit where that is smaller."""
        return self.tokens if passage.limit is None else min(self.tokens, passage.limit)


@dataclass(frozen=True)
class Share:
    """A summary as large as a share of its input, with a least and a most size, without text."""

    share: float = 0.1
    cap: int = 4000
    floor: int = 100
    name = "share"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or not 0 < self.floor <= self.cap:
            raise BadArguments(
                f"A summary's share lies above 0 and up to 1, its floor between 1 and its cap; got {self}."
            )

    def __call__(self, passage: Passage) -> int:
        """Return ``min(cap, max(floor, share x input))``, never more than the passage's limit."""
        size = min(self.cap, max(self.floor, round(self.share * passage.tokens)))
        return size if passage.limit is None else min(size, passage.limit)


@dataclass(frozen=True)
class Recorded:
    """The recorded summary where the cut coincides with a recorded one, else another summariser's."""

    otherwise: Summariser | None = None
    """None: the extractive one."""
    name = "recorded"

    def __call__(self, passage: Passage) -> Message | str | int | None:
        """Return the recorded summary message, or the other summariser's."""
        history, log = passage.history, passage.history.log
        row = history.row(passage.before) if passage.before < len(history) else history.hi
        for call, edit in log.recorded:
            if call > history.call:
                break
            gone = [log.index[t] for t in edit.targets if t in log.index]
            if edit.kind == "summarised" and edit.inserted and gone and max(gone) + 1 == row:
                return edit.inserted[0]
        return (self.otherwise or Extractive())(passage)


@dataclass(frozen=True)
class Extractive:
    """The most telling sentences, in their order, each tagged with who said it: deterministic, offline, no model.

    A sentence weighs the information of its words in this passage (TF-IDF), more where it holds a cue (must, never, a
    path, an error) and where it is recent; sentences that repeat a chosen one weigh less (maximal marginal relevance).
    More than half of the room is the user's.
    """

    tokens: int = 1500
    """Most tokens; a passage's own limit goes first."""
    share: float = 0.3
    """Most tokens as a share of the passage."""
    user: float = 0.55
    """Share of the room for what the user said."""
    name = "extractive"

    def __post_init__(self) -> None:
        if self.tokens < 1 or not 0 < self.share <= 1 or not 0 <= self.user <= 1:
            raise BadArguments(f"An extract needs 1 token or more and shares up to 1; got {self}.")

    def __call__(self, passage: Passage) -> str:
        """Return the extract, one line a sentence; empty where nothing readable is in the passage."""
        room = min(self.tokens, max(int(self.share * passage.tokens), 40))
        return self.extract(passage.messages, room if passage.limit is None else min(room, passage.limit))

    def extract(self, messages: Iterable[Message], tokens: int) -> str:
        """Return the extract of messages in about so many tokens (3.5 characters each); empty only where they are."""
        messages = list(messages)
        units = _units(messages)
        room = tokens * 3.5
        asked = [u for u in units if u.tag == "User"]
        rest = [u for u in units if u.tag != "User"]
        weights = _weights(units)
        chosen = _choose(asked, weights, room * self.user)
        left = room - sum(u.cost for u in chosen)
        chosen += _choose(rest, weights, left, chosen)
        left = room - sum(u.cost for u in chosen)
        chosen += _choose([u for u in asked if u not in chosen], weights, left, chosen)
        if not chosen:  # nothing but signs ("y", "?"), or no line that fits: its beginning, as it stands
            said = (f"{_TAGS.get(m.role, 'Result')}: {' '.join(m.text.split())}" for m in messages if m.text.strip())
            return "\n".join(said)[: max(int(room), 1)]
        return "\n".join(f"{u.tag}: {u.text}" for u in sorted(chosen, key=lambda u: u.place))


@dataclass(frozen=True, eq=False)
class _Unit:
    """One line that can be taken over."""

    tag: str
    text: str
    place: int
    words: frozenset[str]

    @property
    def cost(self) -> int:
        return len(self.tag) + len(self.text) + 3


LONGEST = 300
"""Characters of one line of an extract."""
CANDIDATES = 400
"""Lines looked at closely, the weightiest ones: comparing all with all grows with the square."""
_TAGS = {"user": "User", "assistant": "Assistant", "summary": "Earlier", "system": "System"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"[\w./-]{2,}")
_CUE = re.compile(
    r"\b(?:must|never|always|don't|do not|only|need|should|because|decided?|instead|fix(?:ed)?|todo|next|error|"
    r"fail(?:ed|s)?|"
    r"exception|wrong|bug|done|works?|passed|created|changed|exit code)\b|(?<![\w-])[\w-]{1,200}/[\w./-]|`[^`]+`|https?://",
    re.IGNORECASE,
)


@lru_cache(maxsize=1 << 15)
def _words(line: str) -> frozenset[str]:
    return frozenset(w.lower() for w in _WORD.findall(line))


@lru_cache(maxsize=1 << 15)
def _cued(line: str) -> bool:
    return bool(_CUE.search(line))


def _units(messages: Iterable[Message]) -> list[_Unit]:
    out: list[_Unit] = []

    def add(tag: str, text: str) -> None:
        line = " ".join(text.split())
        if len(line) > LONGEST:
            line = line[: LONGEST - 1] + "…"
        words = _words(line)
        if words:
            out.append(_Unit(tag, line, len(out), words))

    for message in messages:
        if message.role == "tool":
            lines = [s for s in message.text.splitlines() if s.strip()]
            telling = list(islice((s for s in lines if _CUE.search(s)), 3)) or lines[-1:]
            for line in telling[: 3 if message.is_error else 1]:
                add(f"Result of {message.tool or 'a tool'}", line)
            continue
        tag = _TAGS[message.role]
        for sentence in _SENTENCE.split(message.text):
            add(tag, sentence)
        for call in message.tool_calls:
            target = next((str(v) for v in call.arguments.values() if isinstance(v, str) and v), call.raw or "")
            add("Call", f"{call.name} {target[:120]}")
    return out


def _weights(units: list[_Unit]) -> dict[int, float]:
    """Return the weight of each unit by its place."""
    n = len(units)
    seen: dict[str, int] = {}
    for unit in units:
        for word in unit.words:
            seen[word] = seen.get(word, 0) + 1
    out = {}
    for unit in units:
        information = sum(ln(1 + n / seen[w]) for w in unit.words) / (8 + len(unit.words)) ** 0.9
        cue = 1.6 if _cued(unit.text) else 1.0
        first = 1.5 if unit.tag == "Earlier" or unit.place == 0 else 1.0
        out[unit.place] = information * cue * first * (0.7 + 0.6 * (unit.place + 1) / n)
    return out


def _choose(units: list[_Unit], weights: dict[int, float], room: float, known: Iterable[_Unit] = ()) -> list[_Unit]:
    """Return units that fit the room, one by one the weightiest that repeats the least.

    What a unit repeats can only grow, so its worth only falls: one is held against what was chosen when it comes first.
    """
    left = sorted(units, key=lambda u: (-weights[u.place], u.place))[:CANDIDATES]
    against = list(known)
    alike, upto = dict.fromkeys((u.place for u in left), 0.0), dict.fromkeys((u.place for u in left), 0)
    heap = [(-weights[u.place], u.place, u) for u in left]
    heapify(heap)
    chosen: list[_Unit] = []
    while heap:
        _, place, unit = heap[0]
        if unit.cost > room:
            heappop(heap)
        elif upto[place] < len(against):
            alike[place] = max(alike[place], *(_overlap(unit, k) for k in against[upto[place] :]))
            upto[place] = len(against)
            heapreplace(heap, (-weights[place] * (1 - 0.8 * alike[place]), place, unit))
        else:
            heappop(heap)
            chosen.append(unit)
            against.append(unit)
            room -= unit.cost
    return chosen


def _overlap(a: _Unit, b: _Unit) -> float:
    return len(a.words & b.words) / (min(len(a.words), len(b.words)) or 1)


_KINDS = {"extractive": Extractive, "fixed": Fixed, "share": Share, "recorded": Recorded}


def named(words: str) -> Summariser:
    """Return a summariser by name and numbers: `extractive:800`, `fixed:1500`, `share:0.1:4000`, `recorded`.

    Raises:
        BadArguments: there is no such summariser, or its numbers do not fit.
    """
    name, *numbers = words.strip().split(":")
    kind = _KINDS.get(name.strip().lower())
    if kind is None:
        raise BadArguments(
            f"No summariser is called {name!r}; there are {', '.join(_KINDS)}.{did_you_mean(name, _KINDS)}"
        )
    try:
        values = [float(n) if "." in n else int(n) for n in numbers]
        return kind(*values)  # type: ignore[no-any-return]
    except (ValueError, TypeError):
        raise BadArguments(f"Summariser {words!r} has numbers that it cannot take; write it as fixed:1500.") from None
