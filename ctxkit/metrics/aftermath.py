"""What followed each compaction: rules restated, bans breached, stale values, calls until work
resumed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.item_index import CACHED_TEXTS, MultiTextSearch, parse_rule
from ctxkit.metrics.items import MAX_SEARCHED_CHARS, iter_texts
from ctxkit.metrics.loss import analyse_loss
from ctxkit.metrics.loss_analysis import CONSTRAINT_FAMILY
from ctxkit.metrics.semantic import find_missing_values
from ctxkit.metrics.stats import median_or_none
from ctxkit.metrics.thrashing import ToolCallRepeats
from ctxkit.session.messages import Text
from ctxkit.session.tool_calls import is_read_only_tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.metrics.item_index import ItemIndex
    from ctxkit.metrics.loss_analysis import LossAnalysis
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.session.session import Session

__all__ = [
    "Aftermath",
    "AftermathAnalysis",
    "SessionActs",
    "extract_value_pairs",
    "tabulate_aftermath",
]

_PAIR = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]{0,40}(?: [A-Za-z][\w.-]{0,40})?)"
    r"[\"'`]?(?: ?(?:=|:|->) ?| (?:is|are)(?: now)? )[\"'`]?([\w./:@-]{0,80}\d[\w./:@-]{0,80})"
)
_GIVES = re.compile(r"(?:[:=>] ?|\b(?:is|are)(?: now)? )[\"'`]?[\w./:@-]{0,80}\d")
"""What each pair ends with; lines without it are not read for pairs."""


class Aftermath(NamedTuple):
    """What followed one cut."""

    cut: int
    call: int
    rules_lost: tuple[str, ...]
    """The user's rules that it took."""
    rules_restated: tuple[str, ...]
    """Those of them that the user said again later, in whatever words."""
    breach_call: int | None
    """The first call that writes or runs something which a lost ban of the user's names."""
    breached: str | None
    """That ban."""
    resume_calls: int | None
    """Calls until the agent did something new and not only looked; None: it never did."""
    stale: tuple[str, ...]
    """Values put in that others had replaced before, as ``name = old (now new)``."""


class SessionActs:
    """What a session's calls did and what its messages gave as values: made once for all
    its runs.
    """

    def __init__(self, memory: ItemIndex) -> None:
        self.memory, self.rereads = memory, ToolCallRepeats(memory)
        self.names = list(memory.numbers)
        self._against: dict[int, list[int]] = {}
        self._given = lru_cache(CACHED_TEXTS)(self._pairs)

    def against(self, item: int) -> list[int]:
        """Return the calls that write or run what a ban names, in order."""
        if item not in self._against:
            told = parse_rule(self.names[item].text)
            banned = told.exact if told.forbids else ()
            self._against[item] = [
                call
                for call, acts in enumerate(self._acts if banned else ())
                if any(len(find_missing_values(banned, text)) < len(banned) for text in acts)
            ]
        return self._against[item]

    @cached_property
    def _acts(self) -> list[list[str]]:
        """For each call what its tool calls write or run, in lower case."""
        return [
            [
                _call_text(call.message, c)
                for c in call.message.tool_calls
                if not is_read_only_tool(c.name)
            ]
            for call in self.memory.session.calls
        ]

    def restated(self, item: int, call: int) -> bool:
        """Say whether the user gives a rule again after a call, in whatever words."""
        memory = self.memory
        first, stop = np.searchsorted(memory.names_item, [item, item + 1])
        rows = memory.names_row[first:stop].tolist()
        return any(memory.arrival[r] > call and memory.messages[r].role == "user" for r in rows)

    def stale(self, text: str, call: int) -> list[str]:
        """Return the values that a text gives and that others had replaced before a call."""
        upto = self.memory.upto[call] if call < self.memory.calls else len(self.memory.messages)
        out = []
        for name, value in self._given(text):
            said = [v for row, v in self._values.get(name, ()) if row < upto]
            if value in said and value != said[-1]:
                out.append(f"{name} = {value} (now {said[-1]})")
        return out

    def _pairs(self, text: str) -> tuple[tuple[str, str], ...]:
        """Return what a text gives of the names that were given more than one value."""
        lines = [line for line, _ in self._replaced.lines(text[:MAX_SEARCHED_CHARS])]
        return tuple(dict.fromkeys(extract_value_pairs("\n".join(lines))))

    @cached_property
    def _replaced(self) -> MultiTextSearch:
        """The names that were given more than one value."""
        return MultiTextSearch(
            n for n, said in self._values.items() if len({v for _, v in said}) > 1
        )

    @cached_property
    def _values(self) -> dict[str, list[tuple[int, str]]]:
        """For each name the values that the user and the agent gave it: row and value, in order."""
        out: dict[str, list[tuple[int, str]]] = {}
        for row, message in enumerate(self.memory.messages):
            if message.role in ("user", "assistant"):
                for part in message.parts:
                    for name, value in (
                        extract_value_pairs(part.text) if isinstance(part, Text) else ()
                    ):
                        out.setdefault(name, []).append((row, value))
        return out


class AftermathAnalysis:
    """What followed the cuts of a session, a replay or a run."""

    def __init__(self, found: LossAnalysis, acts: SessionActs) -> None:
        self._found, self._acts = found, acts

    @cached_property
    def cuts(self) -> tuple[Aftermath, ...]:
        """What followed each cut."""
        shown, acts, out = self._found.shown, self._acts, list[Aftermath]()
        rules, came = self._rules, self._came
        for number, call in zip(shown.numbers, shown.moments.tolist(), strict=True):
            gone = rules.get(2 * call + 1, [])
            again = tuple(acts.names[i].text for i, _ in gone if acts.restated(i, call))
            breach = min((b for i, end in gone if (b := self._breach(i, call, end))), default=None)
            resume = acts.rereads.resumed(call) if call < acts.memory.calls else None
            told = tuple(acts.names[i].text for i, _ in gone)
            texts = (shown.words[i] for i in came.get(2 * call + 1, ()))
            stale = dict.fromkeys(s for text in texts for s in acts.stale(text, call))
            act, ban = breach or (None, None)
            out.append(Aftermath(number, call, told, again, act, ban, resume, tuple(stale)))
        return tuple(out)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a score."""
        breaches = (c.breach_call - c.call for c in self.cuts if c.breach_call is not None)
        return {
            "rules_restated_n": len({r for c in self.cuts for r in c.rules_restated}),
            "breach_calls": median_or_none(breaches),
            "resume_calls": median_or_none(c.resume_calls for c in self.cuts),
            "stale_n": len({s for c in self.cuts for s in c.stale}),
        }

    @cached_property
    def _rules(self) -> dict[int, list[tuple[int, int]]]:
        """For each time the rules of the user's that went then, and the call that saw
        them again.
        """
        taken, memory = self._found.taken, self._found.memory
        mine = np.flatnonzero(memory.family[taken.item] == CONSTRAINT_FAMILY)
        out: dict[int, list[tuple[int, int]]] = {}
        for item, time in zip(taken.item[mine].tolist(), taken.time[mine].tolist(), strict=True):
            _, at = self._found.seen.of_each(np.array([item]))
            later = [t for t in self._found.seen.starts[at].tolist() if t > time]
            out.setdefault(time, []).append((item, min(later, default=2 * memory.calls) // 2))
        return out

    @cached_property
    def _came(self) -> dict[int, list[int]]:
        """For each time the texts that were put in then."""
        out: dict[int, list[int]] = {}
        for which, start, _ in self._found.shown.texts.tolist():
            out.setdefault(start, []).append(which)
        return out

    def _breach(self, item: int, call: int, end: int) -> tuple[int, str] | None:
        calls = self._acts.against(item)
        at = bisect_left(calls, call)
        found = at < len(calls) and calls[at] < end
        return (calls[at], self._acts.names[item].text) if found else None


def extract_value_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and the values with a digit that a text gives them: `port: 80`, `limit
    is now 3`.
    """
    lines = [line for line in text[:MAX_SEARCHED_CHARS].split("\n") if _GIVES.search(line)]
    for name, value in _PAIR.findall("\n".join(lines)):
        yield name.casefold().removeprefix("the "), value.rstrip(".:")


def _call_text(message: Message, own: ToolCall) -> str:
    return " ".join(iter_texts(replace(message, parts=(own,)))).casefold()


@accepts_session
def tabulate_aftermath(session: Session) -> pd.DataFrame:
    """Return one row for each cut of a session or a replay: what followed it.

    Columns: `session cut call rules_lost rules_restated breach_call breached resume_calls stale`
    (see `Followed`); several rules or values stand in one cell, a line each. No rows without text.
    """
    import pandas as pd

    found = analyse_loss(session)
    told = AftermathAnalysis(found, SessionActs(found.memory)).cuts if found is not None else ()
    rows = [
        (session.id, *("\n".join(v) if isinstance(v, tuple) else v for v in cut)) for cut in told
    ]
    return pd.DataFrame(rows, columns=["session", *Aftermath._fields]).astype(
        {"breach_call": "Int64", "resume_calls": "Int64", "breached": "string"}
    )
