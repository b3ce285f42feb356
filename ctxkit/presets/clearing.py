"""Clear old tool uses where the prompt is over a limit, as Anthropic, LangChain and Inspect do."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.history.columns import ASSISTANT
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME, OldFirst
from ctxkit.schedules.rows import NEVER
from ctxkit.texts import contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class ClearUses(Scheduled):
    """Put a placeholder in the place of old tool results, where the prompt is over a limit."""

    counts = False
    trigger: Natural = 100_000
    """Tokens of the prompt up to which nothing is done."""
    keep: Natural = 3
    """Tool uses at the end that stay whole."""
    exclude: tuple[str, ...] = ()
    """Names or globs of the tools whose uses are never cleared; they count among the kept."""
    clear_inputs: bool = False
    """Clear the arguments of the calls too."""
    clear_at_least: Natural = 0
    """Tokens to free: with `enough` the clearing stops there.

    Without it nothing is done where fewer would be freed.
    """
    enough: bool = False
    """Clear the oldest until `clear_at_least` is freed, instead of all or nothing."""
    placeholder: str = "[cleared]"
    """What a cleared result says."""

    def __post_init__(self) -> None:
        if not self.placeholder:
            raise BadArguments(
                "A cleared result needs a placeholder: providers refuse an empty one."
            )

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Clear where the prompt is over the trigger and enough is freed."""
        part = _Uses(self)
        view.stages((None, part), lambda _, size: part.is_due(size(0), lambda: size(1)))


@dataclass(frozen=True)
class _Uses:
    """What `ClearUses` sends where it is due."""

    rule: ClearUses

    def is_due(self, whole: int, cleared: Callable[[], int]) -> bool:
        """Return True where a prompt is over the trigger, and its clearing frees enough."""
        rule = self.rule
        return whole > rule.trigger and (rule.enough or whole - cleared() >= rule.clear_at_least)

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Clear each use as soon as `keep` newer ones are there, until enough is freed."""
        uses: _Seen = view.memory.setdefault("uses", _Seen(self.rule))
        remade = view.events() if uses.aim else {}
        news = {call: rest for call, *rest in view.news("tool")}
        for call in sorted(news.keys() | remade.keys()):
            came, went, settled = news.get(call, ((), (), ()))
            uses.forget(view, remade.get(call, ()), call)
            replies = uses.follow(view, came, went, settled, call)
            for p, old in uses.settled(view, call):
                view.change(p, self.rule.placeholder if old else AS_IT_CAME, since=call)
                replies.add(p)
            if self.rule.clear_inputs:
                for p in sorted({uses.reply(view, p, call) for p in replies} - {-1}):
                    view.change(p, partial(_emptied, ids=uses.ids(view, p, call)), since=call)


class _Seen:
    """What a schedule of `ClearUses` knows of the calls before."""

    def __init__(self, rule: ClearUses) -> None:
        self.rule = rule
        self.aim = rule.clear_at_least if rule.enough else 0
        """Tokens after which the clearing stops; 0: all that may be cleared is."""
        self._counted, self._able = OldFirst(), OldFirst()
        self._freed = [0]
        """Tokens that the first ones free, as far as this was worked out."""

    def forget(self, view: ScheduleView, remade: Iterable[int], call: int) -> None:
        """Work out anew what is freed from messages that a part before left otherwise."""
        for p in remade:
            for q in view.rows.members(view.rows.group(p), call):
                self._anew(q)

    def follow(
        self,
        view: ScheduleView,
        came: Sequence[int],
        went: Sequence[int],
        settled: Sequence[int],
        call: int,
    ) -> set[int]:
        """Take in what became of the results; return those that came among the cleared, or went."""
        odd = set[int]()
        for p in (*went, *settled):
            if p in self._able:
                self._anew(p)
                if self._able.out(p):
                    view.change(p, AS_IT_CAME, since=call)
                odd.add(p)
        for p in went:
            if p in self._counted:
                self._counted.out(p)
        for p in came:
            excluded = bool(self.rule.exclude) and view.is_tool(p, self.rule.exclude)
            self._counted.put(p)
            if not excluded and not view.stays(p, call):
                self._anew(p)
                if self._able.put(p):
                    view.change(p, self.rule.placeholder, since=call)
                    odd.add(p)
        return odd

    def settled(self, view: ScheduleView, call: int) -> list[tuple[int, bool]]:
        """Let the oldest be cleared; return each that is so now (True), or no more (False)."""
        counted, able = self._counted.found, self._able.found
        n = len(counted) - self.rule.keep
        most = 0 if n <= 0 else bisect_left(able, counted[n]) if self.rule.keep else len(able)
        if self.aim:
            while self._freed[-1] < self.aim and len(self._freed) <= most:
                self._freed.append(self._freed[-1] + self._frees(view, len(self._freed) - 1, call))
            most = min(most, bisect_left(self._freed, self.aim))
        return list(self._able.settle(most))

    def reply(self, view: ScheduleView, p: int, call: int) -> int:
        """Return the position of the reply that a result answers; -1: it is not shown."""
        group = view.rows.members(view.rows.group(p), call)
        return group[0] if view.role(group[0]) == ASSISTANT else -1

    def ids(self, view: ScheduleView, reply: int, call: int, stop: int = NEVER) -> frozenset[str]:
        """Return the ids of the cleared results of a reply, of those before a position."""
        group = view.rows.members(view.rows.group(reply), call)
        shown = (q for q in group if q < stop and q in self._able)
        cleared = (q for q in shown if stop < NEVER or self._able.is_old(q))
        return frozenset(view.rows.message(q).call_id or "" for q in cleared)

    def _frees(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the tokens that one more clearing frees where all before it are cleared."""
        p = self._able.found[i]
        tokens = view.left(p, call).tokens
        freed = tokens - view.after(p, self.rule.placeholder, call).tokens
        reply = self.reply(view, p, call) if self.rule.clear_inputs else -1
        if reply >= 0:
            before, after = (self.ids(view, reply, call, stop) for stop in (p, p + 1))
            freed += view.after(reply, partial(_emptied, ids=before), call).tokens
            freed -= view.after(reply, partial(_emptied, ids=after), call).tokens
        return freed

    def _anew(self, p: int) -> None:
        del self._freed[bisect_left(self._able.found, p) + 1 :]


def _emptied(message: Message, *, ids: frozenset[str]) -> Message:
    """Return a reply without the arguments of some calls, by their ids."""
    if not any(c.id in ids and c.arguments for c in message.tool_calls):
        return message
    return contents.with_arguments(message, lambda c: {} if c.id in ids else None)
