"""The user's rules: which compaction removed each, the last prompt with it, and breaches of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit._internal.formatting import pluralize, sanitize_line
from ctxkit._internal.lazy import public_dir
from ctxkit.formats.session_arguments import accepts_session
from ctxkit.metrics.fact_retention import extract_exact_values, find_missing_values
from ctxkit.metrics.item_index import is_negated
from ctxkit.metrics.losable_items import LosableItem, MessageItemCache, iter_texts
from ctxkit.metrics.loss_tables import analyse_loss
from ctxkit.policies.texts.user_rules import (
    SentenceKind,
    UserRule,
    extract_user_rules,
    iter_message_rules,
)
from ctxkit.session.messages import Message
from ctxkit.session.tool_calls import is_read_only_tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ctxkit.metrics.loss_analysis import LossAnalysis
    from ctxkit.session.session import Session


__all__ = ["UserRuleFate", "UserRuleFates", "trace_user_rules", "user_rules"]
__dir__ = public_dir(__all__)


class UserRuleFate(NamedTuple):
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


class UserRuleFates(NamedTuple):
    """The user's rules of a session, in the order of their statement."""

    fates: tuple[UserRuleFate, ...]
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
def trace_user_rules(session: Session) -> UserRuleFates:
    """Return the fate of each rule of the user; see `user_rules`.

    Args:
        session: a session or a replay; without text there are no rules.
    """
    analysis = analyse_loss(session, UserRuleCache())
    if analysis is None:
        return UserRuleFates((), ())
    stated = extract_user_rules(analysis.memory.messages)
    actions = _list_actions(session) if any(is_negated(rule.text) for rule in stated) else []
    fates = [_trace_rule(analysis, rule, actions) for rule in stated]
    return UserRuleFates(
        fates=tuple(sorted(fates, key=lambda fate: fate.stated_call)),
        compaction_calls=tuple(analysis.visibility.moments.tolist()),
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
    return iter_texts(Message(role="assistant", parts=(tool_call,)))


def _trace_rule(analysis: LossAnalysis, rule: UserRule, actions: list[_Action]) -> UserRuleFate:
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
    return UserRuleFate(
        rule=rule.text,
        binds=rule.strength == SentenceKind.BINDS,
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
    r"(?P<verb>[a-z]{3,12}?)(?:ing)?\s+(?:(?:to|on|in|into|from|the|a|an|any|my|our|this|that)\s+){0,3}"
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
        if name not in _NO_OBJECTS:
            yield (name,) if verb in _GENERAL_VERBS else (verb, name)
