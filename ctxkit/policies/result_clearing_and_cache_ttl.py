"""Prunings that clear old tool results: by number, by pairs, over a budget, after a long pause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT, TOOL, USER, count_chars
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.schedules.pruning_changes_at_new_calls import PositionsByAge, TextsByPosition
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import (
    ScheduledPruning,
    check_at_least,
)
from ctxkit.session.messages import Message, Text, get_plain_text
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import (
        Natural,
        Positive,
        Proportion,
    )
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
        return self.placeholder.replace(
            "{lines}", str(message_content_and_truncation.count_lines(text))
        )

    def _cleared(self, message: Message) -> Message:
        return message_content_and_truncation.replace_text(
            message, self._text(get_plain_text(message))
        )


PAIR_PLACEHOLDER = "[result omitted — sliding window]"


@dataclass(frozen=True, kw_only=True, repr=False)
class KeepNewestToolPairs(ScheduledPruning):
    """Keep the newest call-result pairs; older results become a placeholder (fuseraft).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> rules = ck.policies.Rules(pruning=KeepNewestToolPairs(keep_pairs=3))
        >>> pruned = ck.replay(session, rules)
        >>> sum(item.changed_by == "KeepNewestToolPairs" for item in pruned.sent(-1))
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
        window: PositionsByAge = view.memory.setdefault("window", PositionsByAge())
        results_of_pair: dict[int, list[int]] = view.memory.setdefault("results of each pair", {})
        for call, added, hidden, _ in view.iter_visibility_changes("tool"):
            for p in hidden:
                pair = view.rows.group(p)
                results_of_pair[pair].remove(p)
                if window.is_old(pair):
                    view.change(p, UNDO_CHANGE, since=call)
                if not results_of_pair[pair]:
                    window.remove(pair)
            for p in added:
                pair = view.rows.group(p)
                results = results_of_pair.setdefault(pair, [])
                results.append(p)
                if window.insert(pair) if len(results) == 1 else window.is_old(pair):
                    view.change(p, self.placeholder, since=call)
            count = len(window.positions)
            for pair, old in window.set_old_count(
                count - compute_stable_window_size(count, self.keep_pairs, self.step)
            ):
                for p in results_of_pair[pair]:
                    view.change(p, self.placeholder if old else UNDO_CHANGE, since=call)


def compute_stable_window_size(groups: int, least: int, step: int = 8) -> int:
    """Return fuseraft's stable window size: the minimum, plus the excess of groups modulo `step`.

    Groups leave the window `step` at a time, so that the prompt's prefix stays the same in between.

    Args:
        groups: number of groups of messages.
        least: minimum number of groups in the window.
        step: number of groups that leave it together.
    """
    return least if groups <= least else least + (groups - least) % step


LABEL_KEYS = ("path", "command", "query", "content", "name")
"""Arguments for the label of a call; the first that is present is used."""
EVICTED_PREFIX = "[tool result — evicted: "


@dataclass(frozen=True, kw_only=True, repr=False)
class ResultEvictionOverBudget(ScheduledPruning):
    """Evict all tool results but the newest where all results together are over a budget.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> evict = ResultEvictionOverBudget(max_tokens=1_000, keep_last=3)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=evict))
        >>> sum(item.changed_by == "ResultEvictionOverBudget" for item in pruned.sent(-1))
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
    """The stage of `ResultEvictionOverBudget` for calls over the budget."""

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
        names: TextsByPosition = view.memory.setdefault("names", TextsByPosition())
        news = {
            call: (added, hidden) for call, added, hidden, _ in view.iter_visibility_changes("tool")
        }
        for call in view.calls():
            added, hidden = news.get(call, ((), ()))
            for p in hidden:
                names.remove(p)
            for p in added:
                names.insert(p, f"- {_result_label(view, p)}")
            lines, n = names.take_snapshot()
            view.append(partial(_manifest_message, lines, n, max(self._old(n), 0)), call)

    def _old(self, n: int) -> int:
        return n - self.keep_last


def _result_label(view: ScheduleView, p: int) -> str:
    return format_call_label(view.answered_call(p), view.rows.message(p))


def _manifest_message(lines: list[str], n: int, old: int) -> Message:
    """Return the message that lists the first n results, the oldest of them as evicted."""
    active = ["[Context Manifest]", f"Active tool results ({n - old}):", *lines[old:n]]
    evicted = [f"Superseded ({old}) — evicted to save context:", *lines[:old]]
    return Message(role="user", kind="injected", parts=(Text("\n".join([*active, *evicted])),))


def format_call_label(call: ToolCall | None, result: Message) -> str:
    """Return the label `tool(argument)`, cut to 50 characters; the call's id if unknown.

    Args:
        call: the call that the result answers; None: the log does not hold it.
        result: the result, for the label without a call.
    """
    if call is None:
        return f"{result.tool or 'tool'}({result.call_id or ''})"
    key = next((k for k in LABEL_KEYS if isinstance(call.arguments.get(k), str)), None)
    argument = (
        message_content_and_truncation.format_one_line(str(call.arguments[key]), 50) if key else ""
    )
    return f"{call.name}({argument})"


def format_tombstone(name: str, text: str) -> str:
    """Return the text of an evicted result.

    Args:
        name: label of the call, as `format_call_label` writes it.
        text: the result, of which 300 characters are shown.
    """
    preview = message_content_and_truncation.format_one_line(text, 300)
    return f'{EVICTED_PREFIX}{name}. Preview: "{preview}". Re-read with targeted ranges if needed.]'


def _evicted(result: Message, name: str) -> Message:
    text = get_plain_text(result)
    return (
        result
        if text.startswith(EVICTED_PREFIX)
        else message_content_and_truncation.replace_text(result, format_tombstone(name, text))
    )


IMAGE_REMOVED = "[image removed during context pruning]"
"""Text in place of an image in a trimmed result."""


# The pause is one in which the prompt cache expires: clearing then costs no cached prefix.
@dataclass(frozen=True, kw_only=True, repr=False)
class CacheTtl(ScheduledPruning):
    """After a pause in which the cache expires, trim large old results, then clear the oldest.

    The pause is the time from the end of the last call to this one in the log. Where times are
    unknown nothing changes.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = CacheTtl(ttl_seconds=0, soft_trim_max_chars=200, min_prunable_tool_chars=0)
        >>> rules = ck.policies.Rules(pruning=pruning, window=10_000)
        >>> sum(item.changed_by == "CacheTtl" for item in ck.replay(session, rules).sent(-1))
        24
    """

    counts = False
    ttl_seconds: float = DEFAULT_CACHE_LIFE
    """Minimum pause in seconds; 0: act at every call."""
    keep_last_assistants: Natural = 3
    """Number of newest replies whose results stay, with all that follows; 0: none."""
    soft_trim_ratio: Proportion = 0.3
    """Share of the window (4 characters per token) from which results are trimmed."""
    hard_clear_ratio: Proportion = 0.5
    """Share of the window (4 characters per token) from which results are cleared."""
    min_prunable_tool_chars: Natural = 50_000
    """Minimum characters of all prunable results for clearing."""
    soft_trim_max_chars: Natural = 4000
    """Characters above which a result is trimmed."""
    soft_trim_head_chars: Natural = 1500
    """Characters at the start of a trimmed result."""
    soft_trim_tail_chars: Natural = 1500
    """Characters at the end of a trimmed result."""
    hard_clear: bool = True
    """True: results may be cleared; False: only trimmed."""
    placeholder: str = CLEARED_PLACEHOLDER
    """Text of a cleared result."""
    allow: tuple[str, ...] = ("*",)
    """Names or globs of tools whose results are pruned; empty: all, as in the program."""
    deny: tuple[str, ...] = ()
    """Names or globs of tools whose results are never pruned; stronger than `allow`."""
    keep_images: Natural = 0
    """Number of newest results with images that stay; 0: all of them (OpenClaw: 3)."""

    cut_images: bool = False
    """Replace images by a marker, and prune all results (OpenClaw from 2026.9 on)."""
    persists: bool = False
    """Later calls keep what a call after a pause changed (OpenClaw from 2026.9 on)."""

    def __post_init__(self) -> None:
        check_at_least(self, 0, "ttl_seconds")

    def schedule(self, view: ScheduleView, budget: ContextBudget) -> None:
        """Change the calls after a pause; with `persists`, the later ones too."""
        if self.persists:
            _AfterPause(self).schedule(view, budget)
            return
        view.stages((None, _AfterPause(self)), lambda call, _: self.acts(view, budget, call))

    def begin(self, history: History) -> int:
        """Return the first call that this one depends on; with `persists`, the last compaction."""
        return history.since if self.persists else history.call

    def acts(self, view: ScheduleView, budget: ContextBudget, call: int, freed: int = 0) -> bool:
        """Return True where a call follows a long pause, and its messages are large enough.

        Args:
            view: the calls and messages.
            budget: the context budget.
            call: the call.
            freed: characters that are pruned already.
        """
        if self.ttl_seconds and not view.pause(call) >= self.ttl_seconds:
            return False
        return view.chars(call) - freed >= self.soft_trim_ratio * budget.limit * 4

    def concerns(self, view: ScheduleView, p: int) -> bool:
        """Return True for the result of a tool that may be pruned.

        Args:
            view: the messages of the schedule.
            p: position of the message.
        """
        return view.is_tool(p, self.allow or ("*",)) and not view.is_tool(p, self.deny)

    @property
    def whole(self) -> int:
        """Characters up to which a result is not trimmed."""
        return max(self.soft_trim_max_chars, self.soft_trim_head_chars + self.soft_trim_tail_chars)

    def trim(self, message: Message) -> Message:
        """Return a long result as head and tail; itself where it is short, or trimmed already."""
        if self.cut_images and message_content_and_truncation.has_images(message):
            text = message_content_and_truncation.replace_images_by_marker(message, IMAGE_REMOVED)
            return message_content_and_truncation.replace_text(message, self._shorter(text))
        text = get_plain_text(message)
        trimmed = "\n\n[Tool result trimmed: " in text[-200:]
        if trimmed or min(count_chars(message), len(text)) <= self.whole:
            return message
        return message_content_and_truncation.replace_text(message, self._shorter(text))

    def _shorter(self, text: str) -> str:
        head, tail = self.soft_trim_head_chars, self.soft_trim_tail_chars
        return text if len(text) <= self.whole else soft_trim_text(text, head, tail)


@dataclass(frozen=True)
class _AfterPause:
    """The changes of calls after a pause. Other calls change nothing: the cost grows with pauses.

    Three steps at a call after a pause: (1) find the prunable results between the first user
    message and the newest replies; (2) trim the long ones; (3) while the prompt is above the hard
    share, clear the oldest. Sizes are running sums, so the number to clear is found by bisection.
    """

    rule: CacheTtl

    def schedule(self, view: ScheduleView, budget: ContextBudget) -> None:
        """Trim the prunable results of each call after a pause, and clear the oldest."""
        visible: _VisibleMessages = view.memory.setdefault("shown", _VisibleMessages(self.rule))
        results: _PrunedResults = view.memory.setdefault("touched", _PrunedResults(self.rule))
        news = {
            call: more for call, *more in view.iter_visibility_changes("user", "assistant", "tool")
        }
        events = view.events("tool")
        for call in view.calls():
            added, hidden, settled = news.get(call, ((), (), ()))
            visible.follow(view, added, hidden)
            visible.changed_results.update(settled, events.get(call, ()))
            if self.rule.acts(view, budget, call, results.freed if self.rule.persists else 0):
                results.follow(view, visible, call)
                results.clear(view, budget.limit * 4, call)


class _VisibleMessages:
    """The visible user messages, replies, and results of tools that may be pruned."""

    def __init__(self, rule: CacheTtl) -> None:
        self.rule = rule
        self._of_role: dict[int, list[int]] = {TOOL: [], ASSISTANT: [], USER: []}
        self.changed_results: set[int] = set()
        """Results that changed since the last call after a pause."""

    def follow(self, view: ScheduleView, added: Iterable[int], hidden: Iterable[int]) -> None:
        """Apply the news of a call; a hidden result is also among the events of the call."""
        for p in hidden:
            positions = self._of_role[view.role(p)]
            i = bisect_left(positions, p)
            if positions[i : i + 1] == [p]:
                del positions[i]
        for p in added:
            if view.role(p) != TOOL or self.rule.concerns(view, p):
                insort(self._of_role[view.role(p)], p)
                self.changed_results.add(p)

    def span(self, view: ScheduleView, call: int) -> tuple[int, int]:
        """Return the range of positions whose results may be pruned."""
        users, replies = self._of_role[USER], self._of_role[ASSISTANT]
        last = self.rule.keep_last_assistants
        if not users or len(replies) < last:
            return 0, 0
        return users[0], replies[-last] if last else view.count_arrived(call)

    def between(self, a: int, b: int) -> list[int]:
        """Return the results between two positions."""
        tools = self._of_role[TOOL]
        return tools[bisect_left(tools, min(a, b)) : bisect_left(tools, max(a, b))]

    def is_result(self, p: int) -> bool:
        """Return True for a visible result of a tool that may be pruned."""
        return self.between(p, p + 1) == [p]


class _PrunedResults:
    """The results that are trimmed or cleared at a call after a pause."""

    def __init__(self, rule: CacheTtl) -> None:
        self.rule, self._span = rule, (0, 0)
        self._sizes: dict[int, tuple[int, int]] = {}
        """For each result its characters before and after trimming."""
        self._trim_savings = 0
        """Characters that trimming all of them saves."""
        self._window = PositionsByAge()
        """Results that clearing makes shorter; the old ones are cleared."""
        self._clear_sums = [0]
        """Sums of the characters that clearing the first n saves."""
        self._images: list[int] = []
        self._exempt: set[int] = set()
        self._cleared = 0
        self.freed = 0
        """Characters that the last call after a pause saved."""

    def follow(self, view: ScheduleView, visible: _VisibleMessages, call: int) -> None:
        """Update the prunable results for a call."""
        was, self._span = self._span, visible.span(view, call)
        # Results can change if they changed themselves, or if the range moved over them.
        (a, b), (start, stop) = was, self._span
        candidates = visible.changed_results | {
            *visible.between(a, start),
            *visible.between(b, stop),
        }
        inside = {p for p in candidates if start <= p < stop and visible.is_result(p)}
        for p in sorted(candidates | self._update_exempt(view, candidates, inside, call)):
            is_prunable = p not in self._exempt and (p in inside or p in self._images)
            self._update_result(view, p, call, is_prunable=is_prunable)
        visible.changed_results = set()

    def _update_exempt(
        self, view: ScheduleView, candidates: set[int], inside: set[int], call: int
    ) -> set[int]:
        """Update which results have images; return those whose exemption changes."""
        if self.rule.cut_images:
            return set()
        # The newest results with images are exempt from trimming; all of them by default.
        images = set(self._images).difference(candidates) if self._images else set()
        for p in inside:
            message = view.message(p, call)
            if message is not None and message_content_and_truncation.has_images(message):
                images.add(p)
        was, self._images = self._exempt, sorted(images)
        self._exempt = set(self._images[-self.rule.keep_images :])
        return was ^ self._exempt

    def _update_result(self, view: ScheduleView, p: int, call: int, *, is_prunable: bool) -> None:
        """Add, update or remove a result by its state at a call."""
        # Remove the old entry from all sums, then add the new one.
        old_sizes = self._sizes.pop(p, None)
        if old_sizes is not None:
            self._trim_savings -= old_sizes[0] - old_sizes[1]
            if p in self._window:
                del self._clear_sums[bisect_left(self._window.positions, p) + 1 :]
                self._window.remove(p)
        if not is_prunable:
            if old_sizes is not None:
                view.change(p, UNDO_CHANGE, since=call)
            return
        original, trimmed = (
            view.state_before(p, call).chars,
            view.state_after_change(p, self.rule.trim, call).chars,
        )
        self._trim_savings += original - trimmed
        self._sizes[p] = original, trimmed
        is_cleared = False
        if trimmed > len(self.rule.placeholder):
            is_cleared = self._window.insert(p)
            del self._clear_sums[bisect_left(self._window.positions, p) + 1 :]
        if old_sizes is not None or is_cleared or original > self.rule.whole or trimmed < original:
            self._change(view, p, call, cleared=is_cleared)

    def _change(self, view: ScheduleView, p: int, call: int, *, cleared: bool) -> None:
        trim = self.rule.trim
        view.change(p, (trim, self.rule.placeholder) if cleared else trim, since=call)

    def clear(self, view: ScheduleView, window: int, call: int) -> None:
        """Clear the oldest results until the call is below the share of the window."""
        # Without `persists` the number of cleared results is computed again for each call.
        count = self._count_needed(view, window, call)
        if self.rule.persists:  # a cleared result stays cleared
            count = max(min(count, len(self._window.positions)), self._cleared)
        for p, cleared in self._window.set_old_count(count):
            self._change(view, p, call, cleared=cleared)
        self._cleared = min(count, len(self._window.positions))
        self.freed = (
            self._trim_savings + self._clear_sums[min(self._cleared, len(self._clear_sums) - 1)]
        )

    def _count_needed(self, view: ScheduleView, window: int, call: int) -> int:
        """Return how many of the oldest must be cleared; one more than all if not enough."""
        mark, positions, saved = (
            len(self.rule.placeholder),
            self._window.positions,
            self._clear_sums,
        )
        for p in positions[len(saved) - 1 :]:
            saved.append(saved[-1] + self._sizes[p][1] - mark)
        over = view.chars(call) - self._trim_savings - ceil(self.rule.hard_clear_ratio * window)
        # Clear only where enough characters are left to clear, and the prompt is over the share.
        done = min(self._cleared, len(positions)) if self.rule.persists else 0
        remaining = saved[-1] - saved[done] + mark * (len(positions) - done)
        enough = remaining >= self.rule.min_prunable_tool_chars
        return bisect_right(saved, over) if self.rule.hard_clear and over >= 0 and enough else 0


def soft_trim_text(text: str, head: int, tail: int) -> str:
    """Return head and tail of a text with OpenClaw's note on its original length.

    Args:
        text: a tool result.
        head: characters kept at the start.
        tail: characters kept at the end.
    """
    note = (
        f"\n\n[Tool result trimmed: kept first {head} chars and last {tail} chars of {len(text)}"
        " chars.]"
    )
    return message_content_and_truncation.truncate_middle(text, head, tail, "\n...\n") + note
