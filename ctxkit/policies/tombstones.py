"""Evict tool results beyond a budget, each behind a line on what it was; list both (fuseraft)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.messages import Message, Text
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME, Roll
from ctxkit.texts import contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.messages import ToolCall
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

KEYS = ("path", "command", "query", "content", "name")
"""Arguments by which a label names a call, the first of them that it has."""
EVICTED = "[tool result — evicted: "


@dataclass(frozen=True, kw_only=True, repr=False)
class Tombstones(Scheduled):
    """Evict all tool results but the last, where all of them together are over a budget."""

    max_tokens: Natural = 8000
    """Characters of all results divided by four; up to this nothing is done."""
    keep_last: Natural = 20
    """Results at the end that stay whole."""
    manifest: bool = True
    """Add a message that lists what is there and what was evicted."""

    @property
    def appends(self) -> bool:
        """True where it lists what was evicted."""
        return self.manifest

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Evict at the calls whose results are over the budget; list them where that saves, too."""
        evict = _Evict(self.keep_last)
        listed = (_Evict(self.keep_last, listed=True),) if self.manifest else ()

        def which(call: int, size: Callable[[int], int]) -> int:
            over = view.chars(call, of_results=True) // 4 > self.max_tokens
            if not over or size(1) == size(0):
                return 0
            return 2 if listed and size(2) < size(0) else 1

        view.stages((None, evict, *listed), which)


@dataclass(frozen=True)
class _Evict:
    """What is evicted where the budget is passed, and the list of what is there and what is not."""

    keep_last: int
    listed: bool = False

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Evict each result as soon as enough newer ones are there."""
        for p, call, old in view.window("tool", self._old):
            what = partial(_evicted, name=_named(view, p)) if old else AS_IT_CAME
            view.change(p, what, since=call)
        if self.listed:
            self._list(view)

    def _list(self, view: ScheduleView) -> None:
        names: Roll = view.memory.setdefault("names", Roll())
        news = {call: (came, went) for call, came, went, _ in view.news("tool")}
        for call in view.calls():
            came, went = news.get(call, ((), ()))
            for p in went:
                names.out(p)
            for p in came:
                names.put(p, f"- {_named(view, p)}")
            shown, n = names.now()
            view.append(partial(_told, shown, n, max(self._old(n), 0)), call)

    def _old(self, n: int) -> int:
        return n - self.keep_last


def _named(view: ScheduleView, p: int) -> str:
    return label(view.asked(p), view.rows.message(p))


def _told(lines: list[str], n: int, old: int) -> Message:
    """Return the list of the first so many results, of which the oldest are evicted."""
    here = ["[Context Manifest]", f"Active tool results ({n - old}):", *lines[old:n]]
    gone = [f"Superseded ({old}) — evicted to save context:", *lines[:old]]
    return Message(role="user", kind="injected", parts=(Text("\n".join([*here, *gone])),))


def label(call: ToolCall | None, result: Message) -> str:
    """Return `tool(argument)`, cut to 50 characters; the call's id where that is not known."""
    if call is None:
        return f"{result.tool or 'tool'}({result.call_id or ''})"
    key = next((k for k in KEYS if isinstance(call.arguments.get(k), str)), None)
    return f"{call.name}({contents.one_line(str(call.arguments[key]), 50) if key else ''})"


def tombstone(name: str, text: str) -> str:
    """Return the line that stands for an evicted result."""
    preview = contents.one_line(text, 300)
    return f'{EVICTED}{name}. Preview: "{preview}". Re-read with targeted ranges if needed.]'


def _evicted(result: Message, name: str) -> Message:
    text = contents.texts(result)
    return result if text.startswith(EVICTED) else contents.with_text(result, tombstone(name, text))
