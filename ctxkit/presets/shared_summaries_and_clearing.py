"""Policies, triggers and a clearing schedule that several presets share."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT, TOOL
from ctxkit.policies.schedules.messages_without_any_pruning import NEVER
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.schedules.pruning_changes_at_new_calls import PositionsByAge
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.triggers import Above, Both, Count, Either, Share
from ctxkit.policies.validated_settings_and_scheduled_prunings import (
    DataclassPolicy,
    ScheduledPruning,
)
from ctxkit.session.messages import Message, SizeOnly, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.tokens import ContextBudget


@dataclass(frozen=True, kw_only=True, repr=False)
class MiddleSummary(Summary):
    """Summarise the messages between the beginning and the newest ones."""

    apart: bool = False
    keep_first: int = 0
    """Messages at the beginning that stay."""

    def front(self, history: History, first: int = 0) -> int:
        """Return the first position that may be summarised."""
        first = max(first, self.keep_first)
        if 0 < first < len(history):
            # without a safe cut behind the messages that stay, nothing may be summarised
            first = history.safe(first) or len(history)
        return super().front(history, min(first, len(history)))


@dataclass(frozen=True, kw_only=True, repr=False)
class BaseCustomCutSummary(Summary):
    """Base of summaries that keep no fixed number of tokens."""

    apart: bool = False

    @property
    def keeps(self) -> None:
        """None: no fixed number of tokens is kept."""


@dataclass(frozen=True, kw_only=True, repr=False)
class SummariseAll(BaseCustomCutSummary):
    """Summarise everything but the last few messages: the model continues from the summary."""

    keep_end: int = 0
    """Messages at the end that stay."""

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the end of what may go: before a call that still waits for its result."""
        return history.safe_before(
            min(find_end_of_removable(history), max(len(history) - self.keep_end, 0))
        )


def make_removable_mask(history: History, start: int, stop: int) -> NDArray[Any]:
    """Return a mask over start..stop: True for recorded messages that may be removed.

    Args:
        history: the messages of the prompt.
        start: first position.
        stop: one past the last position.
    """
    recorded = np.array([history.row(p) >= 0 for p in range(start, stop)], bool)
    return np.asarray(recorded & ~history.role("summary")[start:stop] & ~history.stays[start:stop])


def find_end_of_removable(history: History) -> int:
    """Return the end of the removable part: before a last reply whose results are missing."""
    answered_ids: set[str | None] = set()
    # backwards to the last request: a reply with an unanswered call must stay
    for p in range(len(history) - 1, -1, -1):
        message = history[p]
        if message.role == "user":
            break
        if message.role == "tool":
            answered_ids.add(message.call_id)
        elif any(call.id not in answered_ids for call in message.tool_calls):
            return history.safe_before(p)
    return len(history)


def as_summary_message(written: Message | str | int, prefix: str = "") -> Message:
    """Return a summary as a message.

    Args:
        written: a message, which is returned as it is; a text; or a size in tokens.
        prefix: text with which the summary begins; it is added where it is missing.
    """
    if isinstance(written, Message):
        return written
    if isinstance(written, int):
        return Message(role="summary", parts=(SizeOnly("summary", tokens=written),))
    text = written if written.startswith(prefix) else prefix + written
    return Message(role="summary", parts=(Text(text),))


@dataclass(frozen=True, kw_only=True, repr=False)
class DropOlderHalf(DataclassPolicy):
    """Drop the older half of the messages behind the beginning; results in a row are one message,
    as in their API.
    """

    keep_first: Positive = 2
    """Messages at the beginning that stay."""
    quarter: bool = True
    """Drop three quarters where the prompt is more than twice what is allowed (Cline)."""
    pairs: Literal["rest", "all"] = "rest"
    """`rest`: half of the pairs that may go; `all`: half of all but the first, made even."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history without the older messages."""
        # Count and cut in API messages, then move the ends to positions that separate no call from
        # its result.
        starts = find_api_message_starts(history)
        count = self.count_removed(len(starts), history.tokens / 2 > budget.prompt_limit)
        first = self.keep_first
        if count <= 0 or first + count >= len(starts):
            return history
        start, last, stop = (int(starts[i]) for i in (first, first + count - 1, first + count))
        # the removed range must end with a reply, so that a request follows the beginning
        if self.pairs == "rest" and history.item(last).role(history.log) != ASSISTANT:
            stop = last
        start, stop = history.safe(start), history.safe_before(stop)
        return history.drop(stop, "the older half", start=start) if 0 < start < stop else history

    def count_removed(self, n: int, far: bool) -> int:
        """Return the number of messages to remove, always even.

        Args:
            n: all messages, including those at the beginning.
            far: the prompt is larger than twice the budget.
        """
        if self.pairs == "all":
            return (n - 1) // 2 // 2 * 2
        # pairs go, a request and a reply each: the last factor 2 makes every count even
        rest = n - self.keep_first
        return rest * 3 // 8 * 2 if far and self.quarter else rest // 4 * 2


def find_api_message_starts(history: History) -> NDArray[np.int64]:
    """Return the starts of API messages: results in a row and a following request are one."""
    roles = history.column("roles")
    # after a tool result all but a reply belongs to the same API message
    follows = np.zeros(len(roles), bool)
    follows[1:] = (roles[:-1] == TOOL) & (roles[1:] != ASSISTANT)
    return np.flatnonzero(~follows)


def is_request_pending(history: History, _budget: ContextBudget) -> bool:
    """Return whether a user message waits for its answer.

    Args:
        history: the messages of the coming call.
        _budget: not used; every condition of a trigger is called with both.
    """
    return len(history) > 0 and history[len(history) - 1].role == "user"


def make_inspect_trigger(threshold: float) -> Any:
    """Return the trigger of a threshold: up to 1 a share of the window, above it tokens.

    Raises:
        BadArguments: it is not above 0.
    """
    if isinstance(threshold, bool) or not threshold > 0:
        raise BadArguments(
            f"threshold is a share of the window up to 1, or tokens above it; got {threshold!r}."
        )
    return Share(threshold) if threshold <= 1 else Above(threshold)


CLAUSE_KINDS = ("tokens", "messages", "fraction")
LANGCHAIN_INSTRUCTIONS = (
    "Extract the most important context from this conversation; your words will stand in its place."
    " Sections: session intent, summary, artifacts, next steps; say None where there is nothing."
)
LANGCHAIN_ROLES = ("user", "assistant", "tool", "summary")
"""Roles that LangChain keeps in its state; the system prompt is not among them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LangChainKeepSummary(Summary):
    """Summarise all but the messages that LangChain's `keep` clause names."""

    apart: bool = False
    keep: tuple[str, float] = ("messages", 20)
    """What is kept: a number of messages or tokens, or a share of the window."""

    def find_cut(self, history: History, budget: ContextBudget) -> int:
        """Return the first position that is kept."""
        return find_langchain_cut(history, budget, self.keep)


def check_langchain_clause(size: Any, what: str) -> tuple[str, float]:
    """Validate and return a LangChain size clause, such as ``("tokens", 4000)``.

    Args:
        size: the size as the user wrote it.
        what: name of the setting, for the error.

    Returns:
        "tokens", "messages" or "fraction", and the number or share.

    Raises:
        BadArguments: it is not valid; the sentence shows valid ones.
    """
    if isinstance(size, (list, tuple)) and len(size) == 2:
        kind, value = size
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        whole = kind == "fraction" or (number and value == int(value))
        if (
            kind in CLAUSE_KINDS
            and number
            and whole
            and value > 0
            and (kind != "fraction" or value <= 1)
        ):
            return str(kind), value
    raise BadArguments(
        f"{what} is a pair such as ('tokens', 4000), ('messages', 20) or ('fraction', 0.8), not"
        f" {size!r}."
    )


def make_langchain_trigger(clauses: Any) -> Any:
    """Return the trigger of LangChain's clauses.

    Args:
        clauses: a pair such as ``("tokens", 4000)``; a dictionary of pairs that must all hold; a
            list of either, of which one must hold; None: never.

    Raises:
        BadArguments: it is none of these.
    """
    if clauses is None:
        return None
    if isinstance(clauses, dict):
        if not clauses:
            raise BadArguments("A trigger without tokens, messages or fraction is none.")
        parts = tuple(
            _clause_trigger(check_langchain_clause((k, v), "trigger")) for k, v in clauses.items()
        )
        return parts[0] if len(parts) == 1 else Both(parts)
    if isinstance(clauses, list):
        if not clauses:
            return None
        either = tuple(make_langchain_trigger(c) for c in clauses)
        return either[0] if len(either) == 1 else Either(either)
    return _clause_trigger(check_langchain_clause(clauses, "trigger"))


def _clause_trigger(size: tuple[str, float]) -> Any:
    kind, value = size
    if kind == "messages":
        return Count(int(value), LANGCHAIN_ROLES)
    return Above(value, or_equal=True) if kind == "tokens" else Share(value, or_equal=True)


def find_langchain_cut(history: History, budget: ContextBudget, keep: tuple[str, float]) -> int:
    """Return LangChain's cut: the first kept position; no tool call is parted from its result.

    Args:
        history: the messages of the prompt.
        budget: the limit in tokens, of which "fraction" is a share.
        keep: messages to keep: ("messages", number), ("tokens", number) or ("fraction", share).
    """
    kind, value = keep
    n = len(history)
    if kind == "messages":
        return history.safe_before(max(n - int(value), 0))
    tokens = max(int(value if kind == "tokens" else value * budget.limit), 1)
    if history.before(n) <= tokens:
        return 0
    # the longest suffix within the budget, but at least the last message
    return history.safe_before(min(history.back(tokens + 1) + 1, n - 1))


@dataclass(frozen=True, kw_only=True, repr=False)
class ClearToolUses(ScheduledPruning):
    """Put a placeholder in place of old tool results, where the prompt is over a limit."""

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
    """Text of a cleared result."""

    def __post_init__(self) -> None:
        if not self.placeholder:
            raise BadArguments(
                "A cleared result needs a placeholder: providers refuse an empty one."
            )

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Clear where the prompt is over the trigger and enough is freed."""
        part = _Uses(self)
        # Two stages are weighed: the prompt as it is and the cleared one; the function picks.
        view.stages((None, part), lambda _, size: part.is_due(size(0), lambda: size(1)))


@dataclass(frozen=True)
class _Uses:
    """Part of the schedule of `ClearToolUses`: the clearing that is applied where it is due."""

    rule: ClearToolUses

    def is_due(self, prompt_tokens: int, cleared: Callable[[], int]) -> bool:
        """Return True where a prompt is over the trigger, and its clearing frees enough."""
        rule = self.rule
        return prompt_tokens > rule.trigger and (
            rule.enough or prompt_tokens - cleared() >= rule.clear_at_least
        )

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Clear each use as soon as `keep` newer ones are there, until enough is freed."""
        # The state spans all calls of the session and is updated from what changed since the last
        # call: results added, removed or settled, and messages that an earlier part rebuilt.
        uses: _ClearedUses = view.memory.setdefault("uses", _ClearedUses(self.rule))
        rebuilt = view.events() if uses.aim else {}
        arrivals = {call: rest for call, *rest in view.iter_visibility_changes("tool")}
        for call in sorted(arrivals.keys() | rebuilt.keys()):
            added, removed, settled = arrivals.get(call, ((), (), ()))
            uses.rebuild(view, rebuilt.get(call, ()), call)
            replies = uses.update(view, added, removed, settled, call)
            for p, old in uses.settle_oldest(view, call):
                view.change(p, self.rule.placeholder if old else UNDO_CHANGE, since=call)
                replies.add(p)
            if self.rule.clear_inputs:
                for p in sorted({uses.find_reply(view, p, call) for p in replies} - {-1}):
                    view.change(
                        p, partial(_emptied, ids=uses.list_cleared_ids(view, p, call)), since=call
                    )


class _ClearedUses:
    """State of a schedule of `ClearToolUses` over the calls of a session.

    Two sliding windows hold the tool results by position: all that count towards `keep`, and those
    that may be cleared. The oldest of the second are cleared: those older than the last `keep`
    counted results, and with `enough` only until `clear_at_least` tokens are freed. `_freed` holds
    prefix sums of the tokens freed by clearing the first 0, 1, 2, ... of them; a change of one
    truncates it there, so each clearing is measured once (amortised cost: linear in the results).
    """

    def __init__(self, rule: ClearToolUses) -> None:
        self.rule = rule
        self.aim = rule.clear_at_least if rule.enough else 0
        """Tokens after which the clearing stops; 0: everything clearable is cleared."""
        self._counted, self._clearable = PositionsByAge(), PositionsByAge()
        self._freed = [0]
        """Prefix sums of freed tokens, as far as they are computed."""

    def rebuild(self, view: ScheduleView, rebuilt: Iterable[int], call: int) -> None:
        """Discard freed tokens from the first message that an earlier part changed."""
        for p in rebuilt:
            for q in view.rows.members(view.rows.group(p), call):
                self._forget_freed_from(q)

    def update(
        self,
        view: ScheduleView,
        added: Sequence[int],
        removed: Sequence[int],
        settled: Sequence[int],
        call: int,
    ) -> set[int]:
        """Update both windows; return positions whose cleared state may have changed."""
        changed = set[int]()
        # results that left the prompt, or that a later part fixed, can no longer be cleared
        for p in (*removed, *settled):
            if p in self._clearable:
                self._forget_freed_from(p)
                if self._clearable.remove(p):
                    view.change(p, UNDO_CHANGE, since=call)
                changed.add(p)
        for p in removed:
            if p in self._counted:
                self._counted.remove(p)
        for p in added:
            excluded = bool(self.rule.exclude) and view.is_tool(p, self.rule.exclude)
            self._counted.insert(p)
            if not excluded and not view.stays(p, call):
                self._forget_freed_from(p)
                if self._clearable.insert(p):
                    view.change(p, self.rule.placeholder, since=call)
                    changed.add(p)
        return changed

    def settle_oldest(self, view: ScheduleView, call: int) -> list[tuple[int, bool]]:
        """Clear the oldest results; return each newly cleared (True) or restored (False)."""
        counted, able = self._counted.positions, self._clearable.positions
        # `counted[n]` is the oldest result of the last `keep`; only older ones are cleared
        n = len(counted) - self.rule.keep
        clearable = 0 if n <= 0 else bisect_left(able, counted[n]) if self.rule.keep else len(able)
        # extend the prefix sums only as far as needed, then find the first sum that reaches the aim
        if self.aim:
            while self._freed[-1] < self.aim and len(self._freed) <= clearable:
                self._freed.append(
                    self._freed[-1] + self._measure_freed(view, len(self._freed) - 1, call)
                )
            clearable = min(clearable, bisect_left(self._freed, self.aim))
        return list(self._clearable.set_old_count(clearable))

    def find_reply(self, view: ScheduleView, p: int, call: int) -> int:
        """Return the position of the reply that a result answers; -1 where it is not visible."""
        group = view.rows.members(view.rows.group(p), call)
        return group[0] if view.role(group[0]) == ASSISTANT else -1

    def list_cleared_ids(
        self, view: ScheduleView, reply: int, call: int, stop: int = NEVER
    ) -> frozenset[str]:
        """Return the call ids of a reply's cleared results in front of a position."""
        group = view.rows.members(view.rows.group(reply), call)
        clearable = (q for q in group if q < stop and q in self._clearable)
        cleared = (q for q in clearable if stop < NEVER or self._clearable.is_old(q))
        return frozenset(view.rows.message(q).call_id or "" for q in cleared)

    def _measure_freed(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the tokens that one more clearing frees where all before it are cleared."""
        p = self._clearable.positions[i]
        tokens = view.state_before(p, call).tokens
        freed = tokens - view.state_after_change(p, self.rule.placeholder, call).tokens
        reply = self.find_reply(view, p, call) if self.rule.clear_inputs else -1
        if reply >= 0:
            # clearing the arguments too: the difference of the reply without one call more
            before, after = (self.list_cleared_ids(view, reply, call, stop) for stop in (p, p + 1))
            freed += view.state_after_change(reply, partial(_emptied, ids=before), call).tokens
            freed -= view.state_after_change(reply, partial(_emptied, ids=after), call).tokens
        return freed

    def _forget_freed_from(self, p: int) -> None:
        del self._freed[bisect_left(self._clearable.positions, p) + 1 :]


def _emptied(message: Message, *, ids: frozenset[str]) -> Message:
    """Return a reply without the arguments of some calls, by their ids."""
    if not any(c.id in ids and c.arguments for c in message.tool_calls):
        return message
    return message_content_and_truncation.replace_arguments(
        message, lambda c: {} if c.id in ids else None
    )
