"""Switches on any rules: summaries or a request that stay, a draft, the end of a task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ctxkit.errors import BadArguments
from ctxkit.faces import listed
from ctxkit.messages import Message, Text
from ctxkit.policies.chain import Joined, Part
from ctxkit.policies.policy import name_of
from ctxkit.policies.setting import Typed
from ctxkit.policies.summarisers import Passage, text_of
from ctxkit.policies.summary import Summary
from ctxkit.policies.summary_places import asks_anew
from ctxkit.policies.triggers import Due, Share

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import History
    from ctxkit.policies.policy import Forecast
    from ctxkit.policies.rules import Rules
    from ctxkit.policies.setting import PositiveShare
    from ctxkit.tokens.counters import Room


__all__ = ["append_only", "at_boundaries", "leveled", "prepared", "stable_first"]
__dir__ = listed(__all__)

LEVEL = "level"
"""Where the details of a summary of summaries say how many levels lie below it."""
HIGHEST = 3
"""Level above which none is made: its summaries are summarised among themselves."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Levels(Part):
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

    def using(self, summariser: Any) -> Levels:
        """Return it with a summariser, where the inner one has none."""
        return replace(self, inner=self.inner.using(summariser))

    def focused(self, focus: str) -> Levels:
        """Return it with what the user wants the summary to look at."""
        return replace(self, inner=self.inner.focused(focus))

    def __call__(self, history: History, room: Room) -> History:
        """Return the history with a summary of what came since, and with those below merged."""
        new = self.inner(history, room)
        if new is history:
            return history
        while found := self._full(new):
            first, before, level = found
            inner = self.inner
            passage = Passage(new, before, first, inner.limit, inner.told())
            made = inner.asked(inner.maker, passage)
            told = _at_level(made, min(level + 1, HIGHEST))
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
    level = message.details.get(LEVEL, 0)
    return level if isinstance(level, int) else 0


def _at_level(made: Message | str | int, level: int) -> Message | int:
    if isinstance(made, int):
        return made
    message = made if isinstance(made, Message) else Message(role="summary", parts=(Text(made),))
    return structs.replace(message, details={**message.details, LEVEL: level})


def leveled(rules: Rules, fan: int = 4) -> Rules:
    """Return rules whose summaries stay until `fan` of one level are summarised into the next.

    Raises:
        BadArguments: they write no summary.
    """

    def level(part: Summary | Levels) -> Levels:
        if isinstance(part, Levels):
            return replace(part, fan=fan)
        return Levels(inner=replace(part, summaries_stay=True), fan=fan)

    return _written(rules, level)


def append_only(rules: Rules) -> Rules:
    """Return rules whose summaries stay: each new one covers only what came since the last.

    Raises:
        BadArguments: they write no summary.
    """
    return _written(rules, partial(_set, summaries_stay=True))


def stable_first(rules: Rules) -> Rules:
    """Return rules under which the first request, and what stands before it, stays in front of the
    summary.

    Raises:
        BadArguments: they write no summary.
    """
    return _written(rules, partial(_set, request_stays=True))


def _set(part: Summary | Levels, **more: Any) -> Summary | Levels:
    if isinstance(part, Levels):
        return replace(part, inner=replace(part.inner, **more))
    return replace(part, **more)


def _written(rules: Rules, put: Callable[[Summary | Levels], Part]) -> Rules:
    """Return rules with something else in the place of each policy that writes summaries."""
    found = False

    def walk(part: Any) -> Any:
        nonlocal found
        if isinstance(part, (Summary, Levels)):
            found = True
            return put(part)
        if isinstance(part, Joined):
            return replace(part, parts=tuple(map(walk, part.parts)))
        return part

    new = walk(rules.bare)
    if not found:
        raise BadArguments(
            f"The rules {rules.label!r} write no summary that could stay or stand behind anything."
        )
    return rules.but(policy=new, config=None)


@dataclass(frozen=True)
class Prepared:
    """One summariser prepares, another commits: it is told the draft, and its words count."""

    prepare: Callable[[Passage], Message | str | int | None]
    commit: Callable[[Passage], Message | str | int | None]
    name = "prepared"

    def __call__(self, passage: Passage) -> Message | str | int | None:
        """Return what the second one makes of passage and draft, or of the passage alone."""
        text = text_of(self.prepare(passage))
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
    new = rules.but(summariser=Prepared(prepare, own))
    if new.policy == new.bare:
        raise BadArguments(
            f"The rules {rules.label!r} take no summariser from outside: give them a policy that "
            "writes summaries and has no summariser of its own."
        )
    return new


@dataclass(frozen=True)
class TaskEnds(Typed, Due):
    """Due where a new request opens a task and the prompt is over a share of the window."""

    word = "task_boundary"

    share: PositiveShare = 0.5
    """Share of the window below which the end of a task changes nothing."""

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first such call."""
        log, full = forecast.log, Share(self.share)
        call = full.first(forecast, start, stop)
        while call < stop and not (call and asks_anew(log, log.upto[call] - 1, call)):
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
    return rules.but(trigger=TaskEnds(share) | rules.trigger, config=None)
