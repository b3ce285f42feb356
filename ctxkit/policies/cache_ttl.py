"""Trim and clear tool results after a pause longer than the prompt cache lives (OpenClaw,
Fased).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ctxkit.policies.base import ScheduledPruning, at_least
from ctxkit.policies.clearing import CLEARED_PLACEHOLDER
from ctxkit.policies.history.columns import ASSISTANT, TOOL, USER, count_chars
from ctxkit.policies.schedules.message_changes import AS_IT_CAME
from ctxkit.policies.schedules.schedule_input import SlidingWindow
from ctxkit.policies.texts import content
from ctxkit.session.messages import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.policies.base import Natural, Proportion
    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget

IMAGE_REMOVED = "[image removed during context pruning]"
"""What stands for an image in a result that was trimmed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class CacheTtl(ScheduledPruning):
    """After a pause longer than the cache lives, trim large old results; clear the oldest where
    that is not enough.

    The pause is read off the log: from the end of the call before to this one. Where times are
    unknown nothing is done.
    """

    counts = False
    ttl_seconds: float = 300.0
    """Seconds since the last call before which nothing is done; 0: at every call."""
    keep_last_assistants: Natural = 3
    """From this reply from the end on, nothing is touched; 0: everything may be."""
    soft_trim_ratio: Proportion = 0.3
    """Share of the window, in characters, from which results are trimmed."""
    hard_clear_ratio: Proportion = 0.5
    """Share of the window, in characters, from which results are cleared, until it is below."""
    min_prunable_tool_chars: Natural = 50_000
    """Results are cleared only where there are at least so many characters of them."""
    soft_trim_max_chars: Natural = 4000
    """Results of more characters are trimmed."""
    soft_trim_head_chars: Natural = 1500
    """Characters that a trimmed result keeps at its head."""
    soft_trim_tail_chars: Natural = 1500
    """Characters that it keeps at its tail."""
    hard_clear: bool = True
    """Whether results are cleared at all."""
    placeholder: str = CLEARED_PLACEHOLDER
    """What a cleared result says."""
    allow: tuple[str, ...] = ("*",)
    """Names or globs of the tools this concerns; empty: all, as in the program."""
    deny: tuple[str, ...] = ()
    """Names or globs of the tools it never concerns; stronger than `allow`."""
    keep_images: Natural = 0
    """Of results with images the last so many are skipped; 0: all of them (OpenClaw: 3)."""

    cut_images: bool = False
    """Put a marker in the place of images, and skip no result (OpenClaw from 2026.9 on)."""
    persists: bool = False
    """What a call after a pause was sent is sent again from then on (OpenClaw from 2026.9 on)."""

    def __post_init__(self) -> None:
        at_least(self, 0, "ttl_seconds")

    def schedule(self, view: ScheduleView, room: ContextBudget) -> None:
        """Leave each call as it came, but those after a pause."""
        if self.persists:
            _AfterPause(self).schedule(view, room)
            return
        view.stages((None, _AfterPause(self)), lambda call, _: self.acts(view, room, call))

    def begin(self, history: History) -> int:
        """Return the call of the last compaction, where what was sent once is sent again."""
        return history.since if self.persists else history.call

    def acts(self, view: ScheduleView, room: ContextBudget, call: int, freed: int = 0) -> bool:
        """Return True where a call comes after a long pause, and is large enough.

        Args:
            view: the calls.
            room: the window.
            call: the call.
            freed: characters that it is not sent anyway.
        """
        if self.ttl_seconds and not view.pause(call) >= self.ttl_seconds:
            return False
        return view.chars(call) - freed >= self.soft_trim_ratio * room.limit * 4

    def concerns(self, view: ScheduleView, p: int) -> bool:
        """Return True for the result of a tool that may be touched."""
        return view.is_tool(p, self.allow or ("*",)) and not view.is_tool(p, self.deny)

    @property
    def whole(self) -> int:
        """Characters up to which a result is left whole."""
        return max(self.soft_trim_max_chars, self.soft_trim_head_chars + self.soft_trim_tail_chars)

    def trim(self, message: Message) -> Message:
        """Return a long result as head and tail; itself where it is not long, or was trimmed."""
        if self.cut_images and content.has_images(message):
            text = content.text_with_image_marker(message, IMAGE_REMOVED)
            return content.replace_text(message, self._shorter(text))
        text = plain_text(message)
        trimmed = "\n\n[Tool result trimmed: " in text[-200:]
        if trimmed or min(count_chars(message), len(text)) <= self.whole:
            return message
        return content.replace_text(message, self._shorter(text))

    def _shorter(self, text: str) -> str:
        head, tail = self.soft_trim_head_chars, self.soft_trim_tail_chars
        return text if len(text) <= self.whole else soft_trim_text(text, head, tail)


@dataclass(frozen=True)
class _AfterPause:
    """What calls after a pause are sent; of others it says nothing: the work grows with pauses."""

    rule: CacheTtl

    def schedule(self, view: ScheduleView, room: ContextBudget) -> None:
        """Trim what may be touched at each call after a pause, and clear the oldest of it."""
        visible: _Shown = view.memory.setdefault("shown", _Shown(self.rule))
        touched: _Touched = view.memory.setdefault("touched", _Touched(self.rule))
        news = {call: more for call, *more in view.news("user", "assistant", "tool")}
        events = view.events("tool")
        for call in view.calls():
            added, hidden, settled = news.get(call, ((), (), ()))
            visible.follow(view, added, hidden)
            visible.looked_at.update(settled, events.get(call, ()))
            if self.rule.acts(view, room, call, touched.freed if self.rule.persists else 0):
                touched.follow(view, visible, call)
                touched.clear(view, room.limit * 4, call)


class _Shown:
    """The messages that are shown: results that the rule concerns, and those that bound them."""

    def __init__(self, rule: CacheTtl) -> None:
        self.rule = rule
        self._of_role: dict[int, list[int]] = {TOOL: [], ASSISTANT: [], USER: []}
        self.looked_at: set[int] = set()
        """Results of which something changed since the last call after a pause."""

    def follow(self, view: ScheduleView, added: Iterable[int], hidden: Iterable[int]) -> None:
        """Take in what a call shows, and no more shows."""
        for p in hidden:
            positions = self._of_role[view.role(p)]
            i = bisect_left(positions, p)
            if positions[i : i + 1] == [p]:
                del positions[i]
            self.looked_at.add(p)
        for p in added:
            if view.role(p) != TOOL or self.rule.concerns(view, p):
                insort(self._of_role[view.role(p)], p)
                self.looked_at.add(p)

    def span(self, view: ScheduleView, call: int) -> tuple[int, int]:
        """Return from where to where results may be touched."""
        users, replies = self._of_role[USER], self._of_role[ASSISTANT]
        last = self.rule.keep_last_assistants
        if not users or len(replies) < last:
            return 0, 0
        return users[0], replies[-last] if last else view.shown(call)

    def between(self, a: int, b: int) -> list[int]:
        """Return the results between two positions."""
        tools = self._of_role[TOOL]
        return tools[bisect_left(tools, min(a, b)) : bisect_left(tools, max(a, b))]

    def is_result(self, p: int) -> bool:
        """Return True for a result that is shown and concerned."""
        return self.between(p, p + 1) == [p]


class _Touched:
    """The results that a call after a pause may touch, and how many of the oldest are cleared."""

    def __init__(self, rule: CacheTtl) -> None:
        self.rule, self._span = rule, (0, 0)
        self._sizes: dict[int, tuple[int, int]] = {}
        """Characters of each as it came, and trimmed."""
        self._less = 0
        """Characters that trimming all of them takes away."""
        self._window = SlidingWindow()
        """Those that clearing makes shorter; the old ones are cleared."""
        self._saved = [0]
        """Sums of the characters that clearing the first of them takes away."""
        self._images: list[int] = []
        self._spared: set[int] = set()
        self._cleared = 0
        self.freed = 0
        """Characters that the last call after a pause was not sent."""

    def follow(self, view: ScheduleView, visible: _Shown, call: int) -> None:
        """Bring it up to a call."""
        was, self._span = self._span, visible.span(view, call)
        (a, b), (start, stop) = was, self._span
        candidates = visible.looked_at | {*visible.between(a, start), *visible.between(b, stop)}
        inside = {p for p in candidates if start <= p < stop and visible.is_result(p)}
        for p in sorted(candidates | self._respared(view, candidates, inside, call)):
            is_prunable = p not in self._spared and (p in inside or p in self._images)
            self._look(view, p, call, is_prunable=is_prunable)
        visible.looked_at = set()

    def _respared(
        self, view: ScheduleView, candidates: set[int], inside: set[int], call: int
    ) -> set[int]:
        """Note which have images; return those that are spared for that, or are so no more."""
        if self.rule.cut_images:
            return set()
        images = set(self._images).difference(candidates) if self._images else set()
        for p in inside:
            message = view.message(p, call)
            if message is not None and content.has_images(message):
                images.add(p)
        was, self._images = self._spared, sorted(images)
        self._spared = set(self._images[-self.rule.keep_images :])
        return was ^ self._spared

    def _look(self, view: ScheduleView, p: int, call: int, *, is_prunable: bool) -> None:
        """Take in a result, or leave it out, as it stands at a call."""
        old_sizes = self._sizes.pop(p, None)
        if old_sizes is not None:
            self._less -= old_sizes[0] - old_sizes[1]
            if p in self._window:
                del self._saved[bisect_left(self._window.found, p) + 1 :]
                self._window.out(p)
        if not is_prunable:
            if old_sizes is not None:
                view.change(p, AS_IT_CAME, since=call)
            return
        original, trimmed = view.left(p, call).chars, view.after(p, self.rule.trim, call).chars
        self._less += original - trimmed
        self._sizes[p] = original, trimmed
        is_cleared = False
        if trimmed > len(self.rule.placeholder):
            is_cleared = self._window.put(p)
            del self._saved[bisect_left(self._window.found, p) + 1 :]
        if old_sizes is not None or is_cleared or original > self.rule.whole or trimmed < original:
            self._say(view, p, call, cleared=is_cleared)

    def _say(self, view: ScheduleView, p: int, call: int, *, cleared: bool) -> None:
        trim = self.rule.trim
        view.change(p, (trim, self.rule.placeholder) if cleared else trim, since=call)

    def clear(self, view: ScheduleView, window: int, call: int) -> None:
        """Clear the oldest until the call is below the share of the window, in characters."""
        count = self._needed(view, window, call)
        if self.rule.persists:  # what was cleared once stays so
            count = max(min(count, len(self._window.found)), self._cleared)
        for p, cleared in self._window.settle(count):
            self._say(view, p, call, cleared=cleared)
        self._cleared = min(count, len(self._window.found))
        self.freed = self._less + self._saved[min(self._cleared, len(self._saved) - 1)]

    def _needed(self, view: ScheduleView, window: int, call: int) -> int:
        """Return how many of the oldest must be cleared; one too many: all are not enough."""
        mark, positions, saved = len(self.rule.placeholder), self._window.found, self._saved
        for p in positions[len(saved) - 1 :]:
            saved.append(saved[-1] + self._sizes[p][1] - mark)
        over = view.chars(call) - self._less - ceil(self.rule.hard_clear_ratio * window)
        done = min(self._cleared, len(positions)) if self.rule.persists else 0
        remaining = saved[-1] - saved[done] + mark * (len(positions) - done)
        enough = remaining >= self.rule.min_prunable_tool_chars
        return bisect_right(saved, over) if self.rule.hard_clear and over >= 0 and enough else 0


def soft_trim_text(text: str, head: int, tail: int) -> str:
    """Return head and tail of a text with OpenClaw's note on what it was."""
    note = (
        f"\n\n[Tool result trimmed: kept first {head} chars and last {tail} chars of {len(text)}"
        " chars.]"
    )
    return content.truncate_middle(text, head, tail, "\n...\n") + note
