"""Clear old tool results in place: all but the last few."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME
from ctxkit.texts import contents

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural, Positive
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

CLEARED = "[Old tool result content cleared]"


@dataclass(frozen=True, kw_only=True, repr=False)
class Clear(Scheduled):
    """Put a placeholder in the place of all tool results but the last few."""

    counts = False
    keep_last: Natural = 3
    """Results at the end that stay whole."""
    allow: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose results may be cleared."""
    deny: tuple[str, ...] = ()
    """Names or globs of the tools whose results never are; stronger than `allow`."""
    at_least: Natural = 0
    """Clear only where this frees so many tokens: a cached prefix outweighs a small saving."""
    min_chars: Natural = 0
    """Results of fewer characters are left alone."""
    polling: Positive = 1
    """Clear only at every n-th result: the prefix stays in between (SWE-agent's `polling`)."""
    placeholder: str = CLEARED
    """What a cleared result says; `{lines}` is the number of lines it had."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Clear each result as soon as `keep_last` newer ones are there."""
        if self.at_least:
            stages = (None, replace(self, at_least=0))
            view.stages(stages, lambda _, size: size(0) - size(1) >= self.at_least)
            return
        text = self._cleared if "{lines}" in self.placeholder else self.placeholder
        for p, call, old in view.window("tool", self._old):
            if view.is_tool(p, self.allow) and not view.is_tool(p, self.deny):
                view.change(p, text if old else AS_IT_CAME, since=call, low=self.min_chars)

    def _old(self, n: int) -> int:
        """Return how many of so many results are cleared."""
        if self.polling > 1:
            return (n + 1) // self.polling * self.polling - self.keep_last - 1
        return n - self.keep_last

    def _text(self, text: str) -> str:
        """Return what stands for a text; itself where it stands for another one already."""
        if text.startswith(self.placeholder.partition("{lines}")[0]):
            return text
        return self.placeholder.replace("{lines}", str(contents.lines_in(text)))

    def _cleared(self, message: Message) -> Message:
        return contents.with_text(message, self._text(contents.texts(message)))
