"""Clear old tool results in place: all but the last, all but the last pairs, or beyond a budget."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.policies.base import ScheduledPruning
from ctxkit.policies.history.columns import TOOL
from ctxkit.policies.schedules.message_changes import AS_IT_CAME
from ctxkit.policies.schedules.schedule_input import OrderedTexts, SlidingWindow
from ctxkit.policies.texts import content
from ctxkit.session.messages import Message, Text, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.base import Natural, Positive
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import ToolCall
    from ctxkit.tokens import ContextBudget


CLEARED_PLACEHOLDER = "[Old tool result content cleared]"


@dataclass(frozen=True, kw_only=True, repr=False)
class Clear(ScheduledPruning):
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
    placeholder: str = CLEARED_PLACEHOLDER
    """What a cleared result says; `{lines}` is the number of lines it had."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
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
        return self.placeholder.replace("{lines}", str(content.count_lines(text)))

    def _cleared(self, message: Message) -> Message:
        return content.replace_text(message, self._text(plain_text(message)))


PAIR_PLACEHOLDER = "[result omitted — sliding window]"


@dataclass(frozen=True, kw_only=True, repr=False)
class ToolPairs(ScheduledPruning):
    """Keep the last pairs whole; older results become a placeholder (fuseraft's in-turn window)."""

    counts = False
    keep_pairs: Natural = 12
    """Replies with tool calls at the end whose results stay whole."""
    step: Positive = 1
    """The window grows by `step - 1` pairs before it shrinks: the prefix stays in between."""
    from_chars: Natural = 0
    """Do nothing while all messages together have fewer characters."""
    placeholder: str = PAIR_PLACEHOLDER
    """What an omitted result says; its call keeps its id."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Omit the results of each pair as soon as enough newer ones are there."""
        if self.from_chars:
            stages = (None, replace(self, from_chars=0))
            view.stages(stages, lambda call, _: view.chars(call) >= self.from_chars)
            return
        window: SlidingWindow = view.memory.setdefault("window", SlidingWindow())
        shown: dict[int, list[int]] = view.memory.setdefault("results of each pair", {})
        for call, came, went, _ in view.news("tool"):
            for p in went:
                pair = view.rows.group(p)
                shown[pair].remove(p)
                if window.is_old(pair):
                    view.change(p, AS_IT_CAME, since=call)
                if not shown[pair]:
                    window.out(pair)
            for p in came:
                pair = view.rows.group(p)
                results = shown.setdefault(pair, [])
                results.append(p)
                if window.put(pair) if len(results) == 1 else window.is_old(pair):
                    view.change(p, self.placeholder, since=call)
            n = len(window.found)
            for pair, old in window.settle(n - stable_window_size(n, self.keep_pairs, self.step)):
                for p in shown[pair]:
                    view.change(p, self.placeholder if old else AS_IT_CAME, since=call)


def stable_window_size(groups: int, least: int, step: int = 8) -> int:
    """Return fuseraft's stable window: `least`, and what has come beyond it modulo `step`."""
    return least if groups <= least else least + (groups - least) % step


LABEL_KEYS = ("path", "command", "query", "content", "name")
"""Arguments by which a label names a call, the first of them that it has."""
EVICTED_PREFIX = "[tool result — evicted: "


@dataclass(frozen=True, kw_only=True, repr=False)
class Tombstones(ScheduledPruning):
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

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
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

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Evict each result as soon as enough newer ones are there."""
        for p, call, old in view.window("tool", self._old):
            what = partial(_evicted, name=_result_label(view, p)) if old else AS_IT_CAME
            view.change(p, what, since=call)
        if self.listed:
            self._list(view)

    def _list(self, view: ScheduleView) -> None:
        names: OrderedTexts = view.memory.setdefault("names", OrderedTexts())
        news = {call: (came, went) for call, came, went, _ in view.news("tool")}
        for call in view.calls():
            came, went = news.get(call, ((), ()))
            for p in went:
                names.out(p)
            for p in came:
                names.put(p, f"- {_result_label(view, p)}")
            shown, n = names.now()
            view.append(partial(_manifest_message, shown, n, max(self._old(n), 0)), call)

    def _old(self, n: int) -> int:
        return n - self.keep_last


def _result_label(view: ScheduleView, p: int) -> str:
    return call_label(view.asked(p), view.rows.message(p))


def _manifest_message(lines: list[str], n: int, old: int) -> Message:
    """Return the list of the first so many results, of which the oldest are evicted."""
    here = ["[Context Manifest]", f"Active tool results ({n - old}):", *lines[old:n]]
    gone = [f"Superseded ({old}) — evicted to save context:", *lines[:old]]
    return Message(role="user", kind="injected", parts=(Text("\n".join([*here, *gone])),))


def call_label(call: ToolCall | None, result: Message) -> str:
    """Return `tool(argument)`, cut to 50 characters; the call's id where that is not known."""
    if call is None:
        return f"{result.tool or 'tool'}({result.call_id or ''})"
    key = next((k for k in LABEL_KEYS if isinstance(call.arguments.get(k), str)), None)
    return f"{call.name}({content.one_line(str(call.arguments[key]), 50) if key else ''})"


def tombstone_line(name: str, text: str) -> str:
    """Return the line that stands for an evicted result."""
    preview = content.one_line(text, 300)
    return f'{EVICTED_PREFIX}{name}. Preview: "{preview}". Re-read with targeted ranges if needed.]'


def _evicted(result: Message, name: str) -> Message:
    text = plain_text(result)
    return (
        result
        if text.startswith(EVICTED_PREFIX)
        else content.replace_text(result, tombstone_line(name, text))
    )


ELIDED_PLACEHOLDER = (
    "[RESULT ELIDED — not the real output, do not reuse this as data. "
    "Re-run the tool if you need this result again.]"
)
TRUNCATED_HERE = (
    "\n[TRUNCATED HERE — everything after this point was cut for context budget; "
    "this is not the complete output. Re-run the tool if you need the rest.]"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Budget(ScheduledPruning):
    """While all messages have more characters than the budget, elide the oldest results and pure
    replies (fuseraft).
    """

    counts = False
    max_chars: Positive = 200_000
    """Characters that all messages together may have."""
    step: Positive = 8
    """How many are elided is a multiple of this: the prefix stays the same in between."""
    min_chars: Natural = 200
    """Characters that a result keeps at least when even this is not enough and the rest is cut."""
    placeholder: str = ELIDED_PLACEHOLDER
    """What an elided message says."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Elide the oldest at each call, so many that what is left fits; else cut the rest."""
        elidable: _Elidable = view.memory.setdefault("elidable", _Elidable(self.placeholder))
        news = {call: more for call, *more in view.news("assistant", "tool")}
        events = view.events("assistant", "tool")
        for call in view.calls():
            for p in sorted({*events.get(call, ()), *(p for ps in news.get(call, ()) for p in ps)}):
                elidable.look(view, p, call)
            over = view.chars(call) - self.max_chars
            n = min(self._needed(elidable, over), elidable.before(_newest_position(view, call)))
            for p, old in elidable.window.settle(n):
                view.change(p, self.placeholder if old else AS_IT_CAME, since=call)
            if over > elidable.taken(n):
                self._cut_rest(view, elidable, call)

    def _needed(self, elidable: _Elidable, over: int) -> int:
        """Return how many must be elided to save so many characters, in whole steps."""
        if over <= 0:
            return 0
        return -(-elidable.count(over) // self.step) * self.step

    def _cut_rest(self, view: ScheduleView, elidable: _Elidable, call: int) -> None:
        """Cut, for one call, what results are left to equal shares of what is left for them."""
        sizes = {p: elidable.sizes[p][0] for p in elidable.left() if view.role(p) == TOOL}
        if not sizes:
            return
        taken = elidable.taken(elidable.window.old)
        free = self.max_chars - (view.chars(call) - taken - sum(sizes.values()))
        share = max(free // len(sizes) - len(TRUNCATED_HERE), self.min_chars)
        for p, size in sizes.items():
            if size > share + len(TRUNCATED_HERE):
                view.change(p, partial(_cut_to_share, share=share), since=call, until=call + 1)


class _Elidable:
    """The messages that may be elided, the oldest first, and what eliding them takes away."""

    def __init__(self, placeholder: str) -> None:
        self.placeholder, self.window = placeholder, SlidingWindow()
        self.sizes: dict[int, tuple[int, int]] = {}
        """Characters of each, and of them those that eliding it takes away."""
        self._meant, self._taken = [0], [0]
        """Sums over the first ones, by the length of the placeholder, and as it really is."""
        self._kept: set[int] = set()
        """Those that say in no more tokens what they say than the placeholder does."""

    def look(self, view: ScheduleView, p: int, call: int) -> None:
        """Take in a message, or leave it out, as it stands at a call."""
        old = p in self.window and self.window.is_old(p)
        if p in self.window:
            del self._meant[self._place(p) :], self._taken[self._place(p) :]
            self.window.out(p)
            self._kept.discard(p)
        if self._concerns(view, p, call):
            size = view.left(p, call).chars
            saved = size - view.after(p, self.placeholder, call).chars
            self.sizes[p] = size, saved
            if not saved:
                self._kept.add(p)
            now = self.window.put(p)
            del self._meant[self._place(p) :], self._taken[self._place(p) :]
            if now and not old:
                view.change(p, self.placeholder, since=call)
            old = old and not now
        if old:
            view.change(p, AS_IT_CAME, since=call)

    def _concerns(self, view: ScheduleView, p: int, call: int) -> bool:
        state = view.left(p, call)
        if state.message is None or state.chars <= len(self.placeholder) or view.stays(p, call):
            return False
        return view.role(p) == TOOL or content.is_text_only(state.message)

    def _place(self, p: int) -> int:
        return bisect_left(self.window.found, p) + 1

    def before(self, newest: int) -> int:
        """Return how many there are before a position."""
        return bisect_left(self.window.found, newest)

    def count(self, over: int) -> int:
        """Return how many must go to save so many characters; one too many: all are not enough."""
        for p in self.window.found[len(self._meant) - 1 :]:
            size, saved = self.sizes[p]
            self._meant.append(self._meant[-1] + size - len(self.placeholder))
            self._taken.append(self._taken[-1] + saved)
        return bisect_left(self._meant, over, 1)

    def taken(self, n: int) -> int:
        """Return the characters that eliding the first ones takes away."""
        return self._taken[n]

    def left(self) -> list[int]:
        """Return those that are there with all that they said."""
        window = self.window
        return [*sorted(p for p in self._kept if window.is_old(p)), *window.found[window.old :]]


def _newest_position(view: ScheduleView, call: int) -> int:
    """Return the position of the newest message, which is never elided."""
    p = view.shown(call)
    if view.before.added(call) is not None:
        return p
    while p and view.message(p - 1, call) is None:
        p -= 1
    return p - 1


def _cut_to_share(result: Message, share: int) -> Message:
    return content.replace_text(
        result, content.truncate_end(plain_text(result), share, TRUNCATED_HERE)
    )
