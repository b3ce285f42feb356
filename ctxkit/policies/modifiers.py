"""Functions that change rules: summaries that stay or stack, a drafted summary, compaction at task
boundaries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments
from ctxkit.policies.base import BasePolicy, CompositePolicy, Validated
from ctxkit.policies.history.history import is_new_request
from ctxkit.policies.offline_summarisers import Passage, summary_text
from ctxkit.policies.protocols import name_of
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import BaseTrigger, Share
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.base import PositiveShare
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import Forecast
    from ctxkit.policies.rules import Rules
    from ctxkit.tokens.counters import ContextBudget


__all__ = ["append_only", "at_boundaries", "leveled", "prepared", "stable_first"]
__dir__ = public_dir(__all__)

LEVEL_KEY = "level"
"""Where the details of a summary of summaries say how many levels lie below it."""
MAX_LEVEL = 3
"""Level above which none is made: its summaries are summarised among themselves."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LeveledSummary(BasePolicy):
    """Summaries of summaries: as soon as so many of one level stand in a row, one of the next level
    takes their place (pulse-coder's document wishes for it; a log-structured merge tree does it).

    What is old is then written anew once a level, not at every compaction, and the prompt holds no
    more than `fan - 1` summaries of each level.
    """

    inner: Summary
    """Writes the summaries, which stay."""
    fan: int = 4
    """Summaries of a level that become one of the next."""

    def __post_init__(self) -> None:
        if self.fan < 2:
            raise BadArguments("Levels need a fan of 2 or more.")

    @property
    def name(self) -> str:
        """What the inner one calls itself."""
        return name_of(self.inner)

    @property
    def keeps(self) -> int | None:
        """What the inner one keeps."""
        return self.inner.keeps

    def using(self, summariser: Any) -> LeveledSummary:
        """Return it with a summariser, where the inner one has none."""
        return replace(self, inner=self.inner.using(summariser))

    def focused(self, focus: str) -> LeveledSummary:
        """Return it with what the user wants the summary to look at."""
        return replace(self, inner=self.inner.focused(focus))

    def __call__(self, history: History, room: ContextBudget) -> History:
        """Return the history with a summary of what came since, and with those below merged."""
        new = self.inner(history, room)
        if new is history:
            return history
        while found := self._full(new):
            first, before, level = found
            inner = self.inner
            passage = Passage(new, before, first, inner.limit, inner.told())
            made = inner.asked(inner.maker, passage)
            told = _at_level(made, min(level + 1, MAX_LEVEL))
            why = f"{before - first} summaries of level {level}"
            merged = new.summarise(before, told, why, start=first, method="summary")
            if merged.tokens >= new.tokens:
                break
            new = merged
        return new

    def _full(self, history: History) -> tuple[int, int, int] | None:
        """Return where so many summaries of one level stand in a row at the end of them, and which.

        None where they do not.
        """
        stop = self.inner.front(history)
        levels = [_level(history[p]) for p in range(stop)]
        for start in range(stop):
            row = levels[start:]
            if len(row) >= self.fan and row[0] is not None and set(row) == {row[0]}:
                return start, stop, row[0]
        return None


def _level(message: Message) -> int | None:
    """Return the level of a summary; None for any other message."""
    if message.role != "summary":
        return None
    level = message.details.get(LEVEL_KEY, 0)
    return level if isinstance(level, int) else 0


def _at_level(made: Message | str | int, level: int) -> Message | int:
    if isinstance(made, int):
        return made
    message = made if isinstance(made, Message) else Message(role="summary", parts=(Text(made),))
    return structs.replace(message, details={**message.details, LEVEL_KEY: level})


def leveled(rules: Rules, fan: int = 4) -> Rules:
    """Return rules whose summaries stay until `fan` of one level are summarised into the next.

    Raises:
        BadArguments: they write no summary.
    """

    def level(part: Summary | LeveledSummary) -> LeveledSummary:
        if isinstance(part, LeveledSummary):
            return replace(part, fan=fan)
        return LeveledSummary(inner=replace(part, summaries_stay=True), fan=fan)

    return _replace_summaries(rules, level)


def append_only(rules: Rules) -> Rules:
    """Return rules whose summaries stay: each new one covers only what came since the last.

    Raises:
        BadArguments: they write no summary.
    """
    return _replace_summaries(rules, partial(_with_settings, summaries_stay=True))


def stable_first(rules: Rules) -> Rules:
    """Return rules under which the first request, and what stands before it, stays in front of the
    summary.

    Raises:
        BadArguments: they write no summary.
    """
    return _replace_summaries(rules, partial(_with_settings, request_stays=True))


def _with_settings(part: Summary | LeveledSummary, **more: Any) -> Summary | LeveledSummary:
    if isinstance(part, LeveledSummary):
        return replace(part, inner=replace(part.inner, **more))
    return replace(part, **more)


def _replace_summaries(
    rules: Rules, put: Callable[[Summary | LeveledSummary], BasePolicy]
) -> Rules:
    """Return rules with something else in the place of each policy that writes summaries."""
    found = False

    def walk(part: Any) -> Any:
        nonlocal found
        if isinstance(part, (Summary, LeveledSummary)):
            found = True
            return put(part)
        if isinstance(part, CompositePolicy):
            return replace(part, parts=tuple(map(walk, part.parts)))
        return part

    new = walk(rules.bare)
    if not found:
        raise BadArguments(
            f"The rules {rules.label!r} write no summary that could stay or stand behind anything."
        )
    return rules.but(policy=new, config=None)


@dataclass(frozen=True)
class DraftThenCommit:
    """One summariser prepares, another commits: it is told the draft, and its words count."""

    prepare: Callable[[Passage], Message | str | int | None]
    commit: Callable[[Passage], Message | str | int | None]
    name = "prepared"

    def __call__(self, passage: Passage) -> Message | str | int | None:
        """Return what the second one makes of passage and draft, or of the passage alone."""
        text = summary_text(self.prepare(passage))
        if not text.strip():
            return self.commit(passage)
        draft = f"A draft of the summary, to be checked and finished:\n{text}"
        told = f"{passage.instructions}\n\n{draft}".strip()
        return self.commit(replace(passage, instructions=told))


def prepared(
    rules: Rules, prepare: Callable[[Passage], Any], commit: Callable[[Passage], Any] | None = None
) -> Rules:
    """Return rules whose summary one model prepares and another, or their own, commits.

    Raises:
        BadArguments: they write no summary, or its policy has a summariser of its own.
    """
    own = rules.summariser if commit is None else commit
    new = rules.but(summariser=DraftThenCommit(prepare, own))
    if new.policy == new.bare:
        raise BadArguments(
            f"The rules {rules.label!r} take no summariser from outside: give them a policy that "
            "writes summaries and has no summariser of its own."
        )
    return new


@dataclass(frozen=True)
class TaskBoundary(Validated, BaseTrigger):
    """Due where a new request opens a task and the prompt is over a share of the window."""

    word = "task_boundary"

    share: PositiveShare = 0.5
    """Share of the window below which the end of a task changes nothing."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first such call."""
        log, full = forecast.log, Share(self.share)
        call = full.first(forecast, start, stop)
        while call < stop and not (call and is_new_request(log, log.upto[call] - 1, call)):
            call = full.first(forecast, call + 1, stop)
        return call


def at_boundaries(rules: Rules, share: float = 0.5) -> Rules:
    """Return rules that compact at the boundary of a task, too, from a share of the window on.

    Raises:
        BadArguments: they compact nothing.
    """
    if rules.policy is None or rules.trigger is None:
        raise BadArguments(
            f"The rules {rules.label!r} compact nothing, so no boundary matters to them."
        )
    return rules.but(trigger=TaskBoundary(share) | rules.trigger, config=None)
