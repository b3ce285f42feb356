"""Clear old tool results in place: by number of results, of pairs, or by a character budget."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.policies.base import ScheduledPruning
from ctxkit.policies.history.columns import TOOL
from ctxkit.policies.schedules.message_changes import UNDO_CHANGE
from ctxkit.policies.schedules.schedule_method_input import OrderedTexts, SlidingWindow
from ctxkit.policies.texts import message_content
from ctxkit.session.messages import Message, Text, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.policies.base import Natural, Positive
    from ctxkit.policies.schedules.schedule_method_input import ScheduleView
    from ctxkit.session.messages import ToolCall
    from ctxkit.tokens import ContextBudget


CLEARED_PLACEHOLDER = "[Old tool result content cleared]"


@dataclass(frozen=True, kw_only=True, repr=False)
class Clear(ScheduledPruning):
    """Replace all tool results but the newest by a placeholder.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=Clear(keep_last=3)))
        >>> sum(item.changed_by == "Clear" for item in pruned.sent(-1))
        39
    """

    counts = False
    keep_last: Natural = 3
    """Number of newest results that stay."""
    allow: tuple[str, ...] = ("*",)
    """Names or globs of tools whose results may be cleared."""
    deny: tuple[str, ...] = ()
    """Names or globs of tools whose results are never cleared; stronger than `allow`."""
    at_least: Natural = 0
    """Minimum tokens to free: a small saving does not pay for a broken cache prefix."""
    min_chars: Natural = 0
    """Results of fewer characters stay."""
    polling: Positive = 1
    """Clear at every n-th result only: the prefix is stable in between (SWE-agent's `polling`)."""
    placeholder: str = CLEARED_PLACEHOLDER
    """Text of a cleared result; `{lines}` is the number of lines it had."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Clear each result when it is older than the newest `keep_last`."""
        # Two stages: unchanged, and cleared without this condition; each call gets the second one
        # where it saves enough.
        if self.at_least:
            stages = (None, replace(self, at_least=0))
            view.stages(stages, lambda _, size: size(0) - size(1) >= self.at_least)
            return
        text = self._cleared if "{lines}" in self.placeholder else self.placeholder
        for p, call, old in view.window("tool", self._old):
            if view.is_tool(p, self.allow) and not view.is_tool(p, self.deny):
                view.change(p, text if old else UNDO_CHANGE, since=call, min_chars=self.min_chars)

    def _old(self, n: int) -> int:
        """Return how many of n results are cleared."""
        # With polling the number of cleared results only changes at every n-th result.
        if self.polling > 1:
            return (n + 1) // self.polling * self.polling - self.keep_last - 1
        return n - self.keep_last

    def _text(self, text: str) -> str:
        """Return the placeholder for a text; the text itself where it is one."""
        if text.startswith(self.placeholder.partition("{lines}")[0]):
            return text
        return self.placeholder.replace("{lines}", str(message_content.count_lines(text)))

    def _cleared(self, message: Message) -> Message:
        return message_content.replace_text(message, self._text(get_plain_text(message)))


PAIR_PLACEHOLDER = "[result omitted — sliding window]"


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepToolPairs(ScheduledPruning):
    """Keep the newest call-result pairs; older results become a placeholder (fuseraft).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=KeepToolPairs(keep_pairs=3)))
        >>> sum(item.changed_by == "KeepToolPairs" for item in pruned.sent(-1))
        39
    """

    counts = False
    keep_pairs: Natural = 12
    """Number of newest replies with tool calls whose results stay."""
    step: Positive = 1
    """The window grows by `step - 1` pairs before it shrinks: the prefix is stable in between."""
    from_chars: Natural = 0
    """Do nothing while all messages together have fewer characters than this."""
    placeholder: str = PAIR_PLACEHOLDER
    """Text of an omitted result; it still answers its call."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Omit the results of each pair when enough newer pairs follow."""
        if self.from_chars:
            stages = (None, replace(self, from_chars=0))
            view.stages(stages, lambda call, _: view.chars(call) >= self.from_chars)
            return
        window: SlidingWindow = view.memory.setdefault("window", SlidingWindow())
        results_of_pair: dict[int, list[int]] = view.memory.setdefault("results of each pair", {})
        for call, added, hidden, _ in view.news("tool"):
            for p in hidden:
                pair = view.rows.group(p)
                results_of_pair[pair].remove(p)
                if window.is_old(pair):
                    view.change(p, UNDO_CHANGE, since=call)
                if not results_of_pair[pair]:
                    window.out(pair)
            for p in added:
                pair = view.rows.group(p)
                results = results_of_pair.setdefault(pair, [])
                results.append(p)
                if window.put(pair) if len(results) == 1 else window.is_old(pair):
                    view.change(p, self.placeholder, since=call)
            count = len(window.positions)
            for pair, old in window.settle(
                count - stable_window_size(count, self.keep_pairs, self.step)
            ):
                for p in results_of_pair[pair]:
                    view.change(p, self.placeholder if old else UNDO_CHANGE, since=call)


def stable_window_size(groups: int, least: int, step: int = 8) -> int:
    """Return fuseraft's stable window size: `least`, plus the excess of groups modulo `step`."""
    return least if groups <= least else least + (groups - least) % step


LABEL_KEYS = ("path", "command", "query", "content", "name")
"""Arguments for the label of a call; the first that is present is used."""
EVICTED_PREFIX = "[tool result — evicted: "


@dataclass(frozen=True, kw_only=True, repr=False)
class TombstoneEviction(ScheduledPruning):
    """Evict all tool results but the newest where all results together are over a budget.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> evict = TombstoneEviction(max_tokens=1_000, keep_last=3)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=evict))
        >>> sum(item.changed_by == "TombstoneEviction" for item in pruned.sent(-1))
        24
    """

    max_tokens: Natural = 8000
    """Budget: the characters of all results divided by four."""
    keep_last: Natural = 20
    """Number of newest results that stay."""
    manifest: bool = True
    """Append a message that lists active and evicted results."""

    @property
    def appends(self) -> bool:
        """True where it appends the list of results."""
        return self.manifest

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Evict at calls over the budget; append the list where the prompt is smaller with it."""
        evict = _Evict(self.keep_last)
        listed = (_Evict(self.keep_last, listed=True),) if self.manifest else ()

        def choose_stage(call: int, size: Callable[[int], int]) -> int:
            over = view.chars(call, of_results=True) // 4 > self.max_tokens
            if not over or size(1) == size(0):
                return 0
            return 2 if listed and size(2) < size(0) else 1

        view.stages((None, evict, *listed), choose_stage)


@dataclass(frozen=True)
class _Evict:
    """The stage of `TombstoneEviction` for calls over the budget."""

    keep_last: int
    listed: bool = False

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Evict each result when enough newer ones follow; append the list if asked."""
        for p, call, old in view.window("tool", self._old):
            what = partial(_evicted, name=_result_label(view, p)) if old else UNDO_CHANGE
            view.change(p, what, since=call)
        if self.listed:
            self._list(view)

    def _list(self, view: ScheduleView) -> None:
        names: OrderedTexts = view.memory.setdefault("names", OrderedTexts())
        news = {call: (added, hidden) for call, added, hidden, _ in view.news("tool")}
        for call in view.calls():
            added, hidden = news.get(call, ((), ()))
            for p in hidden:
                names.out(p)
            for p in added:
                names.put(p, f"- {_result_label(view, p)}")
            lines, n = names.now()
            view.append(partial(_manifest_message, lines, n, max(self._old(n), 0)), call)

    def _old(self, n: int) -> int:
        return n - self.keep_last


def _result_label(view: ScheduleView, p: int) -> str:
    return call_label(view.answered_call(p), view.rows.message(p))


def _manifest_message(lines: list[str], n: int, old: int) -> Message:
    """Return the message that lists the first n results, the oldest of them as evicted."""
    active = ["[Context Manifest]", f"Active tool results ({n - old}):", *lines[old:n]]
    evicted = [f"Superseded ({old}) — evicted to save context:", *lines[:old]]
    return Message(role="user", kind="injected", parts=(Text("\n".join([*active, *evicted])),))


def call_label(call: ToolCall | None, result: Message) -> str:
    """Return the label `tool(argument)`, cut to 50 characters; the call's id if unknown."""
    if call is None:
        return f"{result.tool or 'tool'}({result.call_id or ''})"
    key = next((k for k in LABEL_KEYS if isinstance(call.arguments.get(k), str)), None)
    return f"{call.name}({message_content.one_line(str(call.arguments[key]), 50) if key else ''})"


def tombstone_line(name: str, text: str) -> str:
    """Return the text of an evicted result."""
    preview = message_content.one_line(text, 300)
    return f'{EVICTED_PREFIX}{name}. Preview: "{preview}". Re-read with targeted ranges if needed.]'


def _evicted(result: Message, name: str) -> Message:
    text = get_plain_text(result)
    return (
        result
        if text.startswith(EVICTED_PREFIX)
        else message_content.replace_text(result, tombstone_line(name, text))
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
class CharacterBudget(ScheduledPruning):
    """Elide the oldest results and text replies while all messages exceed a budget (fuseraft).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = CharacterBudget(max_chars=10_000)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "CharacterBudget" for item in pruned.sent(-1))
        38
    """

    counts = False
    max_chars: Positive = 200_000
    """Maximum characters of all messages together."""
    step: Positive = 8
    """The number of elided messages is a multiple of this: the prefix is stable in between."""
    min_chars: Natural = 200
    """Minimum characters of a result where eliding is not enough and the rest is cut."""
    placeholder: str = ELIDED_PLACEHOLDER
    """Text of an elided message."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Elide as many of the oldest as each call needs; if all are not enough, cut the rest."""
        elidable: _Elidable = view.memory.setdefault("elidable", _Elidable(self.placeholder))
        news = {call: more for call, *more in view.news("assistant", "tool")}
        events = view.events("assistant", "tool")
        for call in view.calls():
            for p in sorted({*events.get(call, ()), *(p for ps in news.get(call, ()) for p in ps)}):
                elidable.update(view, p, call)
            # `over` is the number of characters to save; the newest message is never elided.
            over = view.chars(call) - self.max_chars
            n = min(
                self._count_needed(elidable, over), elidable.before(_newest_position(view, call))
            )
            for p, old in elidable.window.settle(n):
                view.change(p, self.placeholder if old else UNDO_CHANGE, since=call)
            if over > elidable.saved_chars(n):
                self._cut_rest(view, elidable, call)

    def _count_needed(self, elidable: _Elidable, over: int) -> int:
        """Return how many must be elided to save `over` characters, in whole steps."""
        if over <= 0:
            return 0
        return -(-elidable.count(over) // self.step) * self.step

    def _cut_rest(self, view: ScheduleView, elidable: _Elidable, call: int) -> None:
        """Cut the remaining results to equal shares of the remaining budget, for one call."""
        sizes = {p: elidable.sizes[p][0] for p in elidable.unelided() if view.role(p) == TOOL}
        if not sizes:
            return
        freed = elidable.saved_chars(elidable.window.old)
        free = self.max_chars - (view.chars(call) - freed - sum(sizes.values()))
        # What the budget leaves for results, in equal shares, less the note of the cut.
        share = max(free // len(sizes) - len(TRUNCATED_HERE), self.min_chars)
        for p, size in sizes.items():
            if size > share + len(TRUNCATED_HERE):
                view.change(p, partial(_cut_to_share, share=share), since=call, until=call + 1)


class _Elidable:
    """The messages that may be elided, the oldest first, and the characters that this saves.

    Running sums over the window answer "how many must go?" by bisection; a change of a message
    invalidates the sums from its place on.
    """

    def __init__(self, placeholder: str) -> None:
        self.placeholder, self.window = placeholder, SlidingWindow()
        self.sizes: dict[int, tuple[int, int]] = {}
        """For each position its characters, and the characters that eliding it saves."""
        self._nominal_sums, self._saved_sums = [0], [0]
        """Sums of savings over the first n: by the placeholder's length, and as measured."""
        self._unchanged: set[int] = set()
        """Positions that eliding would not make smaller, in tokens."""

    def update(self, view: ScheduleView, p: int, call: int) -> None:
        """Add, update or remove a message by its state at a call."""
        is_elided = p in self.window and self.window.is_old(p)
        if p in self.window:
            self._truncate_sums(p)
            self.window.out(p)
            self._unchanged.discard(p)
        if self._is_elidable(view, p, call):
            size = view.state_before(p, call).chars
            saved = size - view.after(p, self.placeholder, call).chars
            self.sizes[p] = size, saved
            if not saved:
                self._unchanged.add(p)
            is_old = self.window.put(p)
            self._truncate_sums(p)
            if is_old and not is_elided:
                view.change(p, self.placeholder, since=call)
            is_elided = is_elided and not is_old
        if is_elided:
            view.change(p, UNDO_CHANGE, since=call)

    def _is_elidable(self, view: ScheduleView, p: int, call: int) -> bool:
        state = view.state_before(p, call)
        if state.message is None or state.chars <= len(self.placeholder) or view.stays(p, call):
            return False
        return view.role(p) == TOOL or message_content.is_text_only(state.message)

    def _truncate_sums(self, p: int) -> None:
        """Drop the sums that include a position."""
        n = bisect_left(self.window.positions, p) + 1
        del self._nominal_sums[n:], self._saved_sums[n:]

    def before(self, newest: int) -> int:
        """Return the number of elidable messages before a position."""
        return bisect_left(self.window.positions, newest)

    def count(self, over: int) -> int:
        """Return how many to elide to save `over` characters; one more than all if not enough."""
        for p in self.window.positions[len(self._nominal_sums) - 1 :]:
            size, saved = self.sizes[p]
            self._nominal_sums.append(self._nominal_sums[-1] + size - len(self.placeholder))
            self._saved_sums.append(self._saved_sums[-1] + saved)
        return bisect_left(self._nominal_sums, over, 1)

    def saved_chars(self, n: int) -> int:
        """Return the characters that eliding the first n saves."""
        return self._saved_sums[n]

    def unelided(self) -> list[int]:
        """Return the positions whose text is in the prompt as it is."""
        window = self.window
        return [
            *sorted(p for p in self._unchanged if window.is_old(p)),
            *window.positions[window.old :],
        ]


def _newest_position(view: ScheduleView, call: int) -> int:
    """Return the position of the newest message, which is never elided."""
    p = view.count_arrived(call)
    if view.before.added(call) is not None:
        return p
    while p and view.message(p - 1, call) is None:
        p -= 1
    return p - 1


def _cut_to_share(result: Message, share: int) -> Message:
    return message_content.replace_text(
        result, message_content.truncate_end(get_plain_text(result), share, TRUNCATED_HERE)
    )
