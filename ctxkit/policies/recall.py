"""Memory as a policy: what compactions take is promoted, and a digest of it is recalled (Tyrum)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ctxkit.history import USER
from ctxkit.memory.digests import Budgets, digest_of, fitted, row_size
from ctxkit.memory.ranking import RankedEntries, terms
from ctxkit.messages import INJECTED, RECALLED, Message, Text
from ctxkit.policies.setting import Setting
from ctxkit.redaction import secrets
from ctxkit.texts import lessons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.history import History, Log
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
        text = digest_of(_Promoted.of(history.log).fitting(gone, _asked(history), self.budgets))
        old = [p for p in range(history.head.size) if history[p].kind == RECALLED]
        if not text or any(history[p].text == f"{HEAD}\n{text}" for p in old):
            return history
        if old:
            history = history.drop(old, "recalled anew", method="recall")
        place = _behind_summaries(history)
        place = history.safe(place) or history.safe_before(place)
        return history.insert(place, _message(text), "recalled from memory", method="recall")


def promoted(history: History) -> list[tuple[str, str]]:
    """Return types and texts of what the messages said that are no longer shown, in the order it
    came.
    """
    log = history.log
    shown = {history[p].id for p in range(history.head.size)}
    gone = [row for row, m in enumerate(log.messages[: history.lo]) if m.id not in shown]
    index: lessons.LessonIndex | None = log.memo.get("lessons")
    if index is None:
        index = log.memo["lessons"] = lessons.LessonIndex(log.messages)
    return list(index.of(gone))


class _Promoted:
    """The entries of a log's lessons, each made once as long as the environment's secrets stay."""

    def __init__(self, known: list[str]) -> None:
        self.known = known
        self._ranked = RankedEntries()
        self._numbers: dict[tuple[str, str], int] = {}
        self._sizes: dict[str, int] = {}

    @classmethod
    def of(cls, log: Log) -> _Promoted:
        """Return those of a log."""
        now, made = secrets(), log.memo.get("entries of lessons")
        if made is None or made.known != now:
            made = log.memo["entries of lessons"] = cls(now)
        return cast("_Promoted", made)

    def fitting(
        self, found: Sequence[tuple[str, str]], asked: str, budgets: Budgets
    ) -> list[MemoryEntry]:
        """Return the entries that budgets have room for, the best for a prompt first; of equals the
        newest.
        """
        for pair in found:
            if pair not in self._numbers:
                self._take(pair)
        numbers = [self._numbers[pair] for pair in reversed(found)]
        return fitted(self._ranked.ranked(numbers, terms(asked)), budgets, self._sizes)

    def _take(self, pair: tuple[str, str]) -> None:
        entry = lessons.Lesson(*pair).entry(self.known)
        self._numbers[pair] = self._ranked.add(entry)
        self._sizes[entry.guid] = row_size(entry)


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
