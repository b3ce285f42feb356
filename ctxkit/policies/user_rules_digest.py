"""A digest of the user's rules that compactions removed, carried word for word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.policies.base import DataclassPolicy
from ctxkit.policies.history.history import find_end_of_summaries
from ctxkit.policies.texts.user_rules import UserRule, fit_rules, iter_user_statements
from ctxkit.session.messages import RECALLED_KIND, Message, Text

if TYPE_CHECKING:
    from ctxkit.policies.base import Positive
    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.tokens import ContextBudget


RULES_HEADING = "RULES and facts that the user stated earlier, word for word; the later one holds:"


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepUserRules(DataclassPolicy):
    """Insert the user's rules that were removed from the prompt after the summary, word for word.

    Use it after a policy that removes messages: `summary | keep_rules`. It is renewed at each
    compaction and depends on the history only, so a replay and a live session agree. Rules that
    the summary holds word for word are not stated twice.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=2000 | keep_rules", above)
        >>> replay = ck.replay(ck.read(ck.samples.path("chat")), rules)
        >>> sum(item.message.kind == "memory" for item in replay.sent(-1))
        1
    """

    tokens: Positive = 400
    """Maximum tokens of the sentences: rules that bind or forbid come first, then choices,
    then the user's other statements; newer ones first."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the history with the rules; unchanged where none was removed."""
        old = [p for p in range(history.head.size) if _is_digest(history[p])]
        rules = fit_rules(find_removed_rules(history), self.tokens, history.log.counter)
        text = "\n".join([RULES_HEADING, *(f"- {rule.text}" for rule in rules)]) if rules else ""
        if any(history[p].text == text for p in old):
            return history
        if old:
            history = history.drop(old, "rules stated anew", method="keep_rules")
        if not rules:
            return history
        place = find_end_of_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        message = Message(role="user", kind=RECALLED_KIND, parts=(Text(text),))
        return history.insert(place, message, "the user's rules, kept", method="keep_rules")


def _is_digest(message: Message) -> bool:
    return message.kind == RECALLED_KIND and message.text.startswith(RULES_HEADING)


def find_removed_rules(history: History) -> list[UserRule]:
    """Return the user's rules and statements that no message states word for word, in order.

    A rule that was stated twice has the place of its last statement.
    """
    head = [history[p] for p in range(history.head.size)]
    present_ids = {m.id for m in head}
    head_text = "\n".join(" ".join(m.text.split()) for m in head if not _is_digest(m))
    removed: dict[str, UserRule] = {}
    for row, message_id, rules in _RuleIndex.of(history.log).read_until(history.hi):
        is_visible = row >= history.lo or message_id in present_ids
        for rule in rules:
            removed.pop(rule.text, None)
            if not is_visible and rule.text not in head_text:
                removed[rule.text] = rule
    return list(removed.values())


class _RuleIndex:
    """The rules of a growing log by row; each message is read once."""

    def __init__(self, log: MessageLog) -> None:
        self._log, self._read = log, 0
        self._rows: list[tuple[int, str, tuple[UserRule, ...]]] = []

    @classmethod
    def of(cls, log: MessageLog) -> _RuleIndex:
        """Return the index of a log, from its cache."""
        index: _RuleIndex = log.memo.setdefault("user rules", cls(log))
        return index

    def read_until(self, stop: int) -> list[tuple[int, str, tuple[UserRule, ...]]]:
        """Return the rows before `stop` with rules: row, message id, rules."""
        for row in range(self._read, stop):
            message = self._log.messages[row]
            if rules := tuple(iter_user_statements(message)):
                self._rows.append((row, message.id, rules))
        self._read = max(self._read, stop)
        return [entry for entry in self._rows if entry[0] < stop]
