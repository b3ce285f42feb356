"""Consequences of compactions: rules restated, bans breached, stale values, calls to new work."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ctxkit.formats.session_arguments import accepts_session
from ctxkit.metrics.fact_retention import extract_exact_values, find_missing_values
from ctxkit.metrics.item_index import MAX_CACHED_TEXTS, MultiTextSearch, is_negated
from ctxkit.metrics.losable_items import MAX_SEARCHED_CHARS, iter_texts
from ctxkit.metrics.loss_analysis import CONSTRAINT_FAMILY
from ctxkit.metrics.loss_tables import analyse_loss
from ctxkit.metrics.means_with_unknowns import median_or_none
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
    "CompactionConsequences",
    "ConsequenceAnalysis",
    "SessionActions",
    "extract_value_pairs",
    "tabulate_aftermath",
]

# A name and its value in a text: `port: 80`, `limit is now 3`. The value has a digit.
_PAIR = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]{0,40}(?: [A-Za-z][\w.-]{0,40})?)"
    r"[\"'`]?(?: ?(?:=|:|->) ?| (?:is|are)(?: now)? )[\"'`]?([\w./:@-]{0,80}\d[\w./:@-]{0,80})"
)
_PAIR_END = re.compile(r"(?:[:=>] ?|\b(?:is|are)(?: now)? )[\"'`]?[\w./:@-]{0,80}\d")
"""The end of a pair: only lines that match it are searched for pairs."""


class CompactionConsequences(NamedTuple):
    """The consequences of one compaction."""

    compaction: int
    call: int
    rules_lost: tuple[str, ...]
    """The user's rules that it removed."""
    rules_restated: tuple[str, ...]
    """The removed rules that the user stated again later, in any wording."""
    rule_breach_call: int | None
    """The first call that writes or runs something that a removed ban of the user names."""
    breached_rule: str | None
    """The ban that this call breaches."""
    calls_to_resume: int | None
    """Calls until the agent did something new other than reading; None: it never did."""
    stale_values: tuple[str, ...]
    """Outdated values in inserted text, as ``name = old (now new)``."""


class SessionActions:
    """The actions of a session's calls, and the values that its messages give to names.

    They do not depend on compactions, so all runs of one session share them.
    """

    def __init__(self, item_index: ItemIndex) -> None:
        self.item_index, self.rereads = item_index, ToolCallRepeats(item_index)
        self.items = list(item_index.item_numbers)
        self._calls_against: dict[int, list[int]] = {}
        self._cached_pairs = lru_cache(MAX_CACHED_TEXTS)(self._find_pairs)

    def find_calls_against(self, item: int) -> list[int]:
        """Return the calls, in order, that write or run something that a ban names."""
        if item not in self._calls_against:
            ban = self.items[item].text
            banned = extract_exact_values(ban) if is_negated(ban) else ()
            self._calls_against[item] = [
                call
                for call, acts in enumerate(self._acts if banned else ())
                if any(len(find_missing_values(banned, text)) < len(banned) for text in acts)
            ]
        return self._calls_against[item]

    @cached_property
    def _acts(self) -> list[list[str]]:
        """The casefolded texts of the tool calls that write or run something, by call."""
        return [
            [
                _join_call_text(call.message, tool_call)
                for tool_call in call.message.tool_calls
                if not is_read_only_tool(tool_call.name)
            ]
            for call in self.item_index.session.calls
        ]

    def is_restated(self, item: int, call: int) -> bool:
        """Return True where the user states a rule again after a call, in any wording."""
        index = self.item_index
        first, stop = np.searchsorted(index.mention_item, [item, item + 1])
        rows = index.mention_row[first:stop].tolist()
        return any(
            index.arrival_call[row] > call and index.messages[row].role == "user" for row in rows
        )

    def find_stale_values(self, text: str, call: int) -> list[str]:
        """Return the values in a text that were outdated before a call."""
        index = self.item_index
        rows_n = index.rows_before_call[call] if call < index.calls else len(index.messages)
        stale = []
        for name, value in self._cached_pairs(text):
            earlier = [v for row, v in self._values_by_name.get(name, ()) if row < rows_n]
            if value in earlier and value != earlier[-1]:
                stale.append(f"{name} = {value} (now {earlier[-1]})")
        return stale

    def _find_pairs(self, text: str) -> tuple[tuple[str, str], ...]:
        """Return the values that a text gives to names that had more than one value."""
        lines = [line for line, _ in self._changed_names.lines(text[:MAX_SEARCHED_CHARS])]
        return tuple(dict.fromkeys(extract_value_pairs("\n".join(lines))))

    @cached_property
    def _changed_names(self) -> MultiTextSearch:
        """The names that had more than one value."""
        return MultiTextSearch(
            name for name, values in self._values_by_name.items() if len({v for _, v in values}) > 1
        )

    @cached_property
    def _values_by_name(self) -> dict[str, list[tuple[int, str]]]:
        """The values that user and agent gave each name, in order, with their rows."""
        values: dict[str, list[tuple[int, str]]] = {}
        for row, message in enumerate(self.item_index.messages):
            if message.role in ("user", "assistant"):
                for part in message.parts:
                    for name, value in (
                        extract_value_pairs(part.text) if isinstance(part, Text) else ()
                    ):
                        values.setdefault(name, []).append((row, value))
        return values


class ConsequenceAnalysis:
    """The consequences of each compaction of a session, a replay or a run."""

    def __init__(self, analysis: LossAnalysis, acts: SessionActions) -> None:
        self._analysis, self._acts = analysis, acts

    @cached_property
    def consequences(self) -> tuple[CompactionConsequences, ...]:
        """One value for each compaction, in order."""
        visibility, acts, aftermaths = (
            self._analysis.visibility,
            self._acts,
            list[CompactionConsequences](),
        )
        removed_rules, inserted_texts = self._removed_rules, self._inserted_texts
        for number, call in zip(
            visibility.compaction_numbers, visibility.moments.tolist(), strict=True
        ):
            tick = 2 * call + 1
            rules = removed_rules.get(tick, [])
            # The earliest breach of any removed ban, before the ban is visible again.
            breaches = (self._find_breach(rule, call, stop) for rule, stop in rules)
            rule_breach_call, breached_rule = min(filter(None, breaches), default=(None, None))
            texts = (visibility.text_contents[n] for n in inserted_texts.get(tick, ()))
            stale = dict.fromkeys(v for text in texts for v in acts.find_stale_values(text, call))
            aftermaths.append(
                CompactionConsequences(
                    compaction=number,
                    call=call,
                    rules_lost=tuple(acts.items[rule].text for rule, _ in rules),
                    rules_restated=tuple(
                        acts.items[rule].text for rule, _ in rules if acts.is_restated(rule, call)
                    ),
                    rule_breach_call=rule_breach_call,
                    breached_rule=breached_rule,
                    calls_to_resume=acts.rereads.count_calls_to_resume(call)
                    if call < acts.item_index.calls
                    else None,
                    stale_values=tuple(stale),
                )
            )
        return tuple(aftermaths)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a score that describe consequences."""
        breaches = (
            c.rule_breach_call - c.call for c in self.consequences if c.rule_breach_call is not None
        )
        return {
            "user_rules_restated_n": len({r for c in self.consequences for r in c.rules_restated}),
            "calls_to_rule_breach": median_or_none(breaches),
            "calls_to_resume": median_or_none(c.calls_to_resume for c in self.consequences),
            "stale_values_n": len({s for c in self.consequences for s in c.stale_values}),
        }

    @cached_property
    def _removed_rules(self) -> dict[int, list[tuple[int, int]]]:
        """The user's rules removed at each tick, each with the first call that sees it again."""
        removals, index = self._analysis.removals, self._analysis.memory
        visible_spans = self._analysis.visible_spans
        is_rule = index.family[removals.item] == CONSTRAINT_FAMILY
        rules: dict[int, list[tuple[int, int]]] = {}
        for item, tick in zip(
            removals.item[is_rule].tolist(), removals.tick[is_rule].tolist(), strict=True
        ):
            _, spans = visible_spans.find_spans(np.array([item]))
            later = [start for start in visible_spans.starts[spans].tolist() if start > tick]
            stop = min(later, default=2 * index.calls) // 2
            rules.setdefault(tick, []).append((item, stop))
        return rules

    @cached_property
    def _inserted_texts(self) -> dict[int, list[int]]:
        """The texts inserted at each tick."""
        texts: dict[int, list[int]] = {}
        for text, start, _ in self._analysis.visibility.text_spans.tolist():
            texts.setdefault(start, []).append(text)
        return texts

    def _find_breach(self, rule: int, call: int, stop: int) -> tuple[int, str] | None:
        """Return the first call in ``call..stop`` that breaches a ban, and the ban."""
        calls = self._acts.find_calls_against(rule)
        at = bisect_left(calls, call)
        is_breach = at < len(calls) and calls[at] < stop
        return (calls[at], self._acts.items[rule].text) if is_breach else None


def extract_value_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a name and a value with a digit in a text."""
    lines = [line for line in text[:MAX_SEARCHED_CHARS].split("\n") if _PAIR_END.search(line)]
    for name, value in _PAIR.findall("\n".join(lines)):
        yield name.casefold().removeprefix("the "), value.rstrip(".:")


def _join_call_text(message: Message, tool_call: ToolCall) -> str:
    return " ".join(iter_texts(replace(message, parts=(tool_call,)))).casefold()


@accepts_session
def tabulate_aftermath(session: Session) -> pd.DataFrame:
    """Tabulate what followed each compaction of a session or a replay.

    Args:
        session: any session; without text the result has no rows.

    Returns:
        One row per compaction with the columns `session` and those of `CompactionConsequences`;
        several rules or values are in one cell, one per line.
    """
    import pandas as pd

    analysis = analyse_loss(session)
    aftermaths = (
        ConsequenceAnalysis(analysis, SessionActions(analysis.memory)).consequences
        if analysis is not None
        else ()
    )
    rows = [
        (session.id, *("\n".join(v) if isinstance(v, tuple) else v for v in row))
        for row in aftermaths
    ]
    return pd.DataFrame(rows, columns=["session", *CompactionConsequences._fields]).astype(
        {"rule_breach_call": "Int64", "calls_to_resume": "Int64", "breached_rule": "string"}
    )
