"""Memory as a policy: what compactions take is promoted, and a digest of it is recalled (Tyrum)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.history import USER
from ctxkit.memory.digests import Budgets, digest_of, fitted
from ctxkit.memory.ranking import score, terms
from ctxkit.messages import INJECTED, RECALLED, Message, Text
from ctxkit.policies.setting import Setting
from ctxkit.texts import lessons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.history import History
    from ctxkit.memory.entry import MemoryEntry
    from ctxkit.policies.setting import Natural
    from ctxkit.tokens import Room

HEAD = "MEMORY — recalled from what is no longer shown:"


@dataclass(frozen=True, kw_only=True, repr=False)
class Recall(Setting):
    """Put a digest of what is no longer shown behind the summary: `summary | recall`.

    It stands behind a policy that takes messages out. What they say that may outlive them
    (`lessons`) is promoted, and as much of it as the budgets hold is shown in one message, ranked
    by type, by the words of the user's last prompt, and then by age. It is made anew at each
    compaction, when the prompt behind it is read anew in any case, and is the same for the same
    history, so that a replay and a live session agree.
    """

    items: Natural = 12
    """Entries at most."""
    chars: Natural = 2_400
    """Characters at most; the budgets of each kind are Tyrum's, in proportion."""

    @property
    def budgets(self) -> Budgets:
        """What the digest may take."""
        whole = Budgets()
        kinds = {
            kind: (max(n * self.items // whole.items, 1), chars * self.chars // whole.chars)
            for kind, (n, chars) in whole.kinds.items()
        }
        return Budgets(items=self.items, chars=self.chars, kinds=kinds)

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with the digest of what is gone; itself where that is nothing."""
        gone = promoted(history)
        text = digest_of(fitted(self.ranked(history, gone), self.budgets))
        old = [p for p in range(history.head.size) if history[p].kind == RECALLED]
        if not text or any(history[p].text == f"{HEAD}\n{text}" for p in old):
            return history
        if old:
            history = history.drop(old, "recalled anew", method="recall")
        place = _behind_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        return history.insert(place, _message(text), "recalled from memory", method="recall")

    def ranked(self, history: History, gone: Sequence[lessons.Lesson]) -> list[MemoryEntry]:
        """Return what was promoted as entries, the best first; of equals the newest."""
        words = terms(_asked(history))
        entries = [lesson.entry() for lesson in reversed(gone)]
        return sorted(entries, key=lambda e: -score(e, words))


def promoted(history: History) -> list[lessons.Lesson]:
    """Return what the messages said that are no longer shown, under their ids."""
    log, memo = history.log, history.log.memo
    shown = {history[p].id for p in range(history.head.size)}
    gone = [row for row in range(history.lo) if log.messages[row].id not in shown]
    for row in gone:
        if (RECALLED, row) not in memo:
            memo[RECALLED, row] = lessons.said(log.messages[row])
    known = (memo[RECALLED, row] for row in gone)
    return lessons.lessons([log.messages[row] for row in gone], known)


def _asked(history: History) -> str:
    """Return the user's last prompt."""
    log = history.log
    for row in reversed(log.of_role[USER]):
        if row < history.hi and log.messages[row].kind != INJECTED:
            return log.messages[row].text
    return ""


def _behind_summaries(history: History) -> int:
    """Return the position behind the last summary, or behind what is first and stays."""
    roles = [history[p].role for p in range(history.head.size)]
    last = max((p for p, role in enumerate(roles) if role == "summary"), default=-1)
    if last >= 0:
        return last + 1
    return next((p for p, m in enumerate(history.messages) if m.role != "system"), len(history))


def _message(text: str) -> Message:
    return Message(role="user", kind=RECALLED, parts=(Text(f"{HEAD}\n{text}"),))
