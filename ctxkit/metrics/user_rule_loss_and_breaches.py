"""The user's rules after compactions: which compaction removed each, breaches, restatements, stale
values.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from ctxkit._internal.formatting_and_sanitizing import pluralize, sanitize_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_outcomes import ToolCallRequestIndex
from ctxkit.metrics.item_index_and_rule_matching import (
    MAX_CACHED_TEXTS,
    MultiTextSearch,
    is_negated,
)
from ctxkit.metrics.losable_items import (
    MAX_SEARCHED_CHARS,
    LosableItem,
    MessageItemCache,
    extract_exact_values,
    find_missing_values,
    iter_texts_and_argument_strings,
)
from ctxkit.metrics.loss_analysis import CONSTRAINT_FAMILY
from ctxkit.metrics.loss_tables import analyse_loss
from ctxkit.metrics.means_and_prediction_intervals import median_or_none
from ctxkit.policies.user_rule_extraction import (
    SentenceKind,
    UserRule,
    extract_user_rules,
    iter_message_rules,
)
from ctxkit.session.messages import Message, Text
from ctxkit.session.tool_call_paths_and_descriptions import is_read_only_tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
    from ctxkit.metrics.loss_analysis import LossAnalysis
    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session


__all__ = [
    "BreachAndStaleValueIndex",
    "CompactionConsequenceAnalysis",
    "CompactionConsequences",
    "UserRuleTimeline",
    "UserRuleTimelines",
    "extract_value_pairs",
    "tabulate_compaction_consequences",
    "trace_user_rules",
    "user_rules",
]
__dir__ = make_dunder_dir(__all__)


class UserRuleTimeline(NamedTuple):
    """The fate of one rule of the user."""

    rule: str
    """The sentence of the user."""
    binds: bool
    """True: it binds or forbids; False: it chooses or names a value."""
    stated_call: int
    """The first call whose prompt contains it."""
    removed_by: int | None
    """The number of the compaction that first removed it from the prompt; None: none did."""
    last_call: int
    """The last call whose prompt states it, in any wording."""
    in_sight: bool
    """True where the next prompt states it."""
    spans: tuple[tuple[int, int], ...]
    """The calls whose prompts state it, as half-open ranges."""
    against_call: int | None
    """The first call that writes or runs what the rule bans while the rule is out of sight."""
    against: str | None
    """The tool call that does so, in one line."""


class UserRuleTimelines(NamedTuple):
    """The user's rules of a session, in the order of their statement."""

    fates: tuple[UserRuleTimeline, ...]
    compaction_calls: tuple[int, ...]
    """The calls before which something left the prompt or came back."""

    @property
    def answer(self) -> str:
        """The fates of the rules, in one sentence."""
        n, gone = len(self.fates), sum(not fate.in_sight for fate in self.fates)
        if not n:
            return "The user stated no rule that could be recognised, or the log has no text."
        if not self.compaction_calls:
            return f"{pluralize(n, 'rule')} of the user, all in sight: nothing was compacted."
        against = sum(fate.against_call is not None for fate in self.fates)
        acts = f"; {against} named in an action after that" if against else ""
        return (
            f"{n - gone} of {pluralize(n, 'rule')} of the user"
            f" {'is' if n - gone == 1 else 'are'} still in sight; {gone} went with a"
            f" compaction{acts}."
        )


COLUMNS = {
    "session": "string",
    "rule": "string",
    "binds": "boolean",
    "stated_call": "Int64",
    "removed_by": "Int64",
    "last_call": "Int64",
    "in_sight": "boolean",
    "against_call": "Int64",
    "against": "string",
}


@accepts_session
def user_rules(session: Session) -> pd.DataFrame:
    """List every rule that the user stated, and the last call whose prompt contains it.

    A rule is a sentence of the user that binds, forbids or chooses: "never touch prod", "answer in
    German", a version, an id. A prompt contains it if a message or a summary states it in any
    wording.

    Args:
        session: a session or a replay; without text the result has no rows.

    Returns:
        One row per rule, in the order in which they were stated:

        ============  ============================================================================
        session       id of the session
        rule          the sentence
        binds         True where it binds or forbids; False where it chooses or names a value
        stated_call   the first call whose prompt contains it
        removed_by    number of the compaction that first removed it; missing: none did
        last_call     the last call whose prompt states it
        in_sight      True where the next prompt states it
        against_call  the first call that writes or runs what it bans while it is out of sight
        against       that tool call in one line: a candidate that a person should check
        ============  ============================================================================

    Example:
        >>> import ctxkit as ck
        >>> rules = ck.metrics.user_rules(ck.samples.path("billing"))
        >>> rules["in_sight"].tolist()
        [True, True, False, False, True]
    """
    import pandas as pd

    rows = [
        (session.id, *(getattr(fate, name) for name in list(COLUMNS)[1:]))
        for fate in trace_user_rules(session).fates
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


@accepts_session
def trace_user_rules(session: Session) -> UserRuleTimelines:
    """Return the fate of each rule of the user; see `user_rules`.

    Args:
        session: a session or a replay; without text there are no rules.
    """
    analysis = analyse_loss(session, UserRuleCache())
    if analysis is None:
        return UserRuleTimelines((), ())
    stated = extract_user_rules(analysis.memory.messages)
    actions = _list_actions(session) if any(is_negated(rule.text) for rule in stated) else []
    fates = [_trace_rule(analysis, rule, actions) for rule in stated]
    return UserRuleTimelines(
        fates=tuple(sorted(fates, key=lambda fate: fate.stated_call)),
        compaction_calls=tuple(analysis.visibility.change_calls.tolist()),
    )


class UserRuleCache(MessageItemCache):
    """Cache of one kind of item, the user's rules."""

    def extract(self, message: Message) -> tuple[frozenset[LosableItem], frozenset[LosableItem]]:
        """Return the rules of a message; none of its thinking."""
        rules = (LosableItem("constraint", rule.text) for rule in iter_message_rules(message))
        return frozenset(rules), frozenset()


class _Action(NamedTuple):
    """A tool call that writes or runs something."""

    call: int
    text: str
    """Its name and arguments in one line."""


def _list_actions(session: Session) -> list[_Action]:
    return [
        _Action(number, " ".join([tool_call.name, *_call_texts(tool_call)]))
        for number, call in enumerate(session.calls)
        for tool_call in call.message.tool_calls
        if not is_read_only_tool(tool_call.name)
    ]


def _call_texts(tool_call: Any) -> Iterator[str]:
    return iter_texts_and_argument_strings(Message(role="assistant", parts=(tool_call,)))


def _trace_rule(analysis: LossAnalysis, rule: UserRule, actions: list[_Action]) -> UserRuleTimeline:
    index, visibility = analysis.memory, analysis.visibility
    number = index.item_numbers[LosableItem("constraint", rule.text)]
    spans, calls = _find_spans(analysis, number), index.calls
    first_gap = next((end for _, end in spans if end < visibility.end), None)
    removed_by = None
    if first_gap is not None:
        change = int(np.searchsorted(analysis.change_ticks, first_gap))
        removed_by = visibility.compaction_numbers[
            min(change, len(visibility.compaction_numbers) - 1)
        ]
    # The prompt of call c has the tick 2 c + 1; a span contains its start but not its end.
    ranges = tuple((start // 2, min(end // 2, calls)) for start, end in spans)
    against = _find_action_against(rule.text, ranges, actions)
    return UserRuleTimeline(
        rule=rule.text,
        binds=rule.kind == SentenceKind.BINDS,
        stated_call=ranges[0][0],
        removed_by=removed_by,
        last_call=max(ranges[-1][1] - 1, 0),
        in_sight=spans[-1][1] >= visibility.end,
        spans=ranges,
        against_call=None if against is None else against.call,
        against=None if against is None else sanitize_line(against.text, 200),
    )


def _find_spans(analysis: LossAnalysis, item: int) -> list[tuple[int, int]]:
    """Return the half-open spans of ticks in which a rule is in sight."""
    index, end = analysis.memory, analysis.visibility.end
    if not analysis.is_removed[item]:
        rows = index.mention_row[index.mention_item == item]
        return [(int(2 * index.arrival_call[rows].min()), end)]
    _, at = analysis.visible_spans.find_spans(np.array([item]))
    spans = analysis.visible_spans
    return list(zip(spans.starts[at].tolist(), spans.ends[at].tolist(), strict=True))


_BAN = re.compile(
    r"(?<!\w)(?:never|not|n['’]t|dont|no|without|avoid|cannot|forbidden to)\s+(?:ever\s+|to\s+)?"
    r"(?P<verb>us(?=ing\s)|[a-z]{3,12}?)(?P<ing>ing)?\s+(?:(?:to|on|in|into|from|the|a|an|any|my|our|this|that)\s+){0,3}"
    r"[\"'`]?(?P<object>[\w./-]{3,60})",
    re.IGNORECASE,
)
_GENERAL_VERBS = frozenset(
    ("touch", "change", "edit", "modify", "alter", "write", "use", "add", "run", "call")
)
"""Verbs of a ban that an action does not have to name."""
_NO_OBJECTS = frozenset(("anything", "them", "these", "those", "before", "until", "yet", "more"))


def _find_action_against(
    rule: str, ranges: tuple[tuple[int, int], ...], actions: list[_Action]
) -> _Action | None:
    """Return the first action that names what a rule bans while the rule is out of sight."""
    bans = list(_iter_bans(rule)) if is_negated(rule) else []
    for action in actions if bans else ():
        is_in_sight = any(start <= action.call < stop for start, stop in ranges)
        if is_in_sight or action.call < ranges[0][0]:
            continue
        folded = action.text.casefold()
        if any(not find_missing_values(words, folded) for words in bans):
            return action
    return None


def _iter_bans(rule: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of an action against a rule: an exact value, or verb and object."""
    for value in extract_exact_values(rule):
        yield (value,)
    for ban in _BAN.finditer(rule):
        verb, name = ban["verb"].casefold(), ban["object"].rstrip(".").casefold()
        if name in _NO_OBJECTS:
            continue
        for base in _list_base_forms(verb) if ban["ing"] else (verb,):
            yield (name,) if base in _GENERAL_VERBS else (base, name)


def _list_base_forms(stem: str) -> tuple[str, ...]:
    """Return the verbs whose -ing form has a stem: "us" is of use, "dropp" of drop."""
    doubled = (stem[:-1],) if stem[-1] == stem[-2] else ()
    return (stem, f"{stem}e", *doubled)


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


class BreachAndStaleValueIndex:
    """The actions of a session's calls, and the values that its messages give to names.

    They do not depend on compactions, so all runs of one session share them.
    """

    def __init__(self, item_index: ItemIndex) -> None:
        self.item_index, self.rereads = item_index, ToolCallRequestIndex(item_index)
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
        """Return True where the user states a rule again after a call, in any wording.

        Args:
            item: number of the rule in the item index.
            call: number of the call, from 0.
        """
        index = self.item_index
        first, stop = np.searchsorted(index.mention_item, [item, item + 1])
        rows = index.mention_row[first:stop].tolist()
        return any(
            index.arrival_call[row] > call and index.messages[row].role == "user" for row in rows
        )

    def find_stale_values(self, text: str, call: int) -> list[str]:
        """Return the values in a text that were outdated before a call.

        Args:
            text: text of a reply.
            call: number of the call, from 0; messages that arrive later do not count.

        Returns:
            Sentences such as `port = 80 (now 8080)`.
        """
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


class CompactionConsequenceAnalysis:
    """The consequences of each compaction of a session, a replay or a run."""

    def __init__(self, loss_analysis: LossAnalysis, actions: BreachAndStaleValueIndex) -> None:
        self._analysis, self._acts = loss_analysis, actions

    @cached_property
    def by_compaction(self) -> tuple[CompactionConsequences, ...]:
        """One value for each compaction, in order."""
        visibility, acts, aftermaths = (
            self._analysis.visibility,
            self._acts,
            list[CompactionConsequences](),
        )
        removed_rules, inserted_texts = self._removed_rules, self._inserted_texts
        for number, call in zip(
            visibility.compaction_numbers, visibility.change_calls.tolist(), strict=True
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
            c.rule_breach_call - c.call
            for c in self.by_compaction
            if c.rule_breach_call is not None
        )
        return {
            "user_rules_restated_n": len({r for c in self.by_compaction for r in c.rules_restated}),
            "calls_to_rule_breach": median_or_none(breaches),
            "calls_to_resume": median_or_none(c.calls_to_resume for c in self.by_compaction),
            "stale_values_n": len({s for c in self.by_compaction for s in c.stale_values}),
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
    return " ".join(
        iter_texts_and_argument_strings(replace(message, parts=(tool_call,)))
    ).casefold()


@accepts_session
def tabulate_compaction_consequences(session: Session) -> pd.DataFrame:
    """Tabulate what followed each compaction of a session or a replay.

    Args:
        session: any session; without text the result has no rows.

    Returns:
        One row per compaction with the columns `session` and those of
        `CompactionConsequences`; several rules or values are in one cell, one per line.
    """
    import pandas as pd

    analysis = analyse_loss(session)
    aftermaths = (
        CompactionConsequenceAnalysis(
            analysis, BreachAndStaleValueIndex(analysis.memory)
        ).by_compaction
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
