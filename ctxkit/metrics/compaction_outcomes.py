"""Outcomes of a session's compactions: refill, rebound, repeated tool calls, and thrash."""

# Outcome of a compaction
#
# For each compaction that a call follows, with B the prompt before it and A the prompt after it:
#   savings        1 - A / B
#   refill_n       (prompt n calls later - A) / (B - A): the share of the freed tokens in use again
#   rebound        calls until the prompt is back at 0.75 B
#   paid back      its savings in dollars until the next one exceed its cost
#                  (`metrics.compaction_formulas`)
#   reread rate    share of the next 24 tool calls that repeat one that it removed
#   reorientation  tool calls until the next one that writes
# A session thrashes if three compactions in a row save less than 10 %, or most are not paid back.
#
# Several compactions before one call count as one, because no call saw the states in between.
# Recorded prompts are the provider's; where no call was billed before or after, sizes are modelled.

from __future__ import annotations

import json
from bisect import bisect_left
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_savings_and_payback import (
    CombinedCompactionBeforeCall,
    CompactionRefillAndPayback,
    drop_compactions_after_last_call,
    get_replay_compactions,
    get_replay_prompt_sizes,
    judge_compactions,
    measure_longest_run,
    summarise_verdicts,
)
from ctxkit.metrics.compaction_sizes_and_detection import count_summary_tokens, measure_compactions
from ctxkit.metrics.cost.call_and_summary_charges import get_call_price_and_source
from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel, WrittenSummary
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.item_index_and_rule_matching import VisibleMessageRows
from ctxkit.metrics.means_and_prediction_intervals import mean_or_none, median_or_none
from ctxkit.metrics.message_visibility import get_visibility
from ctxkit.metrics.prompt_sizes_and_contents import PromptAndSharedPrefixSizes, has_prompt_sizes
from ctxkit.policies.protocols import MODEL_FREE_METHODS
from ctxkit.session.compactions_and_prunings import group_edits
from ctxkit.session.messages import SEALED_SUMMARY, Message
from ctxkit.session.session import apply_edit
from ctxkit.session.tool_call_paths_and_descriptions import (
    get_call_path,
    is_read_only_tool,
    is_read_tool,
    is_write_tool,
)
from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.metrics.message_visibility import Visibility
    from ctxkit.session.messages import Edit, ToolCall
    from ctxkit.session.session import Session

    Ints = NDArray[np.int64]

__all__ = [
    "CompactionOutcome",
    "CompactionOutcomeSummary",
    "get_compaction_outcomes",
    "get_compactions_and_prompts",
    "measure_longest_run_over_limit",
    "thrash",
]
__dir__ = make_dunder_dir(__all__)


class CompactionOutcome(CompactionRefillAndPayback, frozen=True, kw_only=True):
    """The outcome of one compaction. Sizes are tokens of the prompt; None: not known."""

    compaction: int
    """Its number in ``frame(per="compaction")``; for several before one call, that of the last."""
    call: int
    """The first call after it."""
    before: int
    """Tokens of the prompt without it; in a record, of the previous prompt and its reply."""
    after: int
    """Tokens of the prompt with it."""
    savings: float
    """Share of the tokens that it saved; negative where the prompt grew."""
    summaries: tuple[WrittenSummary, ...]
    """The summaries that a model wrote for it."""
    minutes: float | None
    """Minutes until the next one."""
    rebound_minutes: float | None
    """Minutes until the prompt was back at 75 % of its earlier size; None: it never was."""
    reread_rate: float | None
    """Share of the next 24 tool calls that repeat one that it removed; None: none followed."""
    reorientation: int | None
    """Tool calls until the first that writes; None: none did."""


class CompactionOutcomeSummary(msgspec.Struct, frozen=True):
    """The outcomes of all compactions of a session. Shares are 0..1; None: unknown for all."""

    outcomes: tuple[CompactionOutcome, ...]
    not_paid_back_n: int | None
    """Compactions that were not paid back before the next one."""
    paid_back_share: float | None
    """Share of the compactions that were paid back, among those for which it is known."""
    refilled_share: float | None
    """Mean share of the freed tokens that was in use again ten calls later."""
    rebound_calls: float | None
    """Median calls until the prompt was back at 75 % of its size before."""
    no_progress_streak: int | None
    """Longest run of compactions that each saved less than 10 % of the tokens."""
    reread_rate: float | None
    """Mean share of the next 24 tool calls that repeat one that a compaction removed."""
    reorientation: float | None
    """Median number of tool calls between a compaction and the first that writes."""
    is_thrashing: bool | None
    """True where three compactions in a row made no progress, or most were not paid back."""


@accepts_session
def thrash(session: Session, *, anchored: MessageSizes | None = None) -> CompactionOutcomeSummary:
    """Judge the compactions of a session or a replay, one by one and together.

    Args:
        session: a recorded session, a live one or a replay.
        anchored: sizes of its messages in tokens; None: measured here.

    Returns:
        A summary with one outcome per compaction, and figures over all of them.

    Example:
        >>> import ctxkit as ck
        >>> summary = thrash(ck.samples.path("billing"))
        >>> summary.is_thrashing, summary.no_progress_streak
        (False, 0)
    """
    outcomes = get_compaction_outcomes(session, anchored=anchored)
    verdicts = summarise_verdicts([o.savings for o in outcomes], outcomes)
    if session.edits and not has_prompt_sizes(session):
        verdicts = dict.fromkeys(verdicts)
    return CompactionOutcomeSummary(
        outcomes=outcomes,
        **verdicts,
        reread_rate=mean_or_none([o.reread_rate for o in outcomes]),
        reorientation=median_or_none([o.reorientation for o in outcomes]),
    )


@accepts_session
def measure_longest_run_over_limit(session: Session, limit: int) -> int:
    """Count the longest run of calls whose prompts exceed a limit, as when a trigger has no effect.

    Args:
        session: a session with usage; calls without usage count as within the limit.
        limit: tokens of a prompt.

    Example:
        >>> import ctxkit as ck
        >>> measure_longest_run_over_limit(ck.samples.path("billing"), 10**9)
        0
    """
    usages = (c.message.usage for c in session.calls)
    return measure_longest_run([u is not None and (u.prompt_tokens or 0) > limit for u in usages])


@accepts_session
def get_compaction_outcomes(
    session: Session, *, anchored: MessageSizes | None = None
) -> tuple[CompactionOutcome, ...]:
    """Return the outcome of each compaction that a call follows.

    Compactions that free nothing are included; several between two calls count as one. For a replay
    they are the compactions of its score.

    Args:
        session: a session or a replay.
        anchored: sizes of the record's messages in tokens; None: measured here.

    Example:
        >>> import ctxkit as ck
        >>> outcomes = get_compaction_outcomes(ck.samples.path("billing"))
        >>> [(outcome.before, outcome.after) for outcome in outcomes]
        [(40471, 11651), (40224, 11045)]
    """
    if not session.edits:
        return ()
    origin = session.origin or session
    anchored = anchored or measure_sizes(origin)
    compactions, prompts = get_compactions_and_prompts(session, anchored)
    observed = drop_compactions_after_last_call(compactions, len(prompts))
    cost_model = ReplayCostModel.of(origin, anchored)
    summary_costs = [cost_model.summaries_usd(c.summaries) for c in observed]
    verdicts = judge_compactions(observed, prompts, cost_model, summary_costs)
    rows = VisibleMessageRows(origin)
    visibility, repeats = get_visibility(rows, session), ToolCallRequestIndex(rows)
    outcomes = []
    for compaction, verdict in zip(observed, verdicts, strict=True):
        call = compaction.call
        next_call = None if verdict.interval is None else call + verdict.interval
        rebound_call = None if verdict.rebound_calls is None else call + verdict.rebound_calls
        activity = repeats.after(visibility, call) if call else RereadAndReorientation(None, None)
        outcomes.append(
            CompactionOutcome(
                **msgspec.structs.asdict(verdict),
                compaction=compaction.number,
                call=call,
                before=compaction.before,
                after=compaction.after,
                savings=compaction.savings,
                summaries=compaction.summaries,
                minutes=_minutes_between(session, call, next_call),
                rebound_minutes=_minutes_between(session, call, rebound_call),
                reread_rate=activity.reread_rate,
                reorientation=activity.reorientation,
            )
        )
    return tuple(outcomes)


def get_compactions_and_prompts(
    session: Session, anchored: MessageSizes
) -> tuple[list[CombinedCompactionBeforeCall], PromptAndSharedPrefixSizes]:
    """Return the compactions of a session or a replay, and its prompts.

    Args:
        session: a recorded session or a replay.
        anchored: sizes of its messages; they stand in for prompts that are not recorded.

    Returns:
        The compactions of known size, none where the log has no prompt sizes; and the tokens of
        each call's prompt.
    """
    if session.origin is not None:
        return get_replay_compactions(session), get_replay_prompt_sizes(session)
    recorded = (c.message.prompt_tokens for c in session.calls)
    prompts = [n or modelled for n, modelled in zip(recorded, anchored.modelled, strict=True)]
    if not has_prompt_sizes(session):
        return [], PromptAndSharedPrefixSizes(prompts)
    return _recorded_compactions(session, anchored, prompts), PromptAndSharedPrefixSizes(prompts)


class _EditsBeforeCall(NamedTuple):
    """All edits between two calls of a record, which count as one compaction."""

    number: int
    """The number of the last compaction among them."""
    first: int
    """Position of the first edit in the path."""
    last: int
    """Position of the last edit."""
    edits: list[Edit]


def _group_edits_by_call(session: Session) -> dict[int, _EditsBeforeCall]:
    """Return the edits before each call; edits after the last call have the number of calls."""
    reply_positions = [c.position for c in session.calls]
    by_call: dict[int, _EditsBeforeCall] = {}
    for group in group_edits(session):
        call = bisect_left(reply_positions, group.position)
        earlier = by_call.get(call)
        first, edits = (earlier.first, earlier.edits) if earlier else (group.position, [])
        last = group.position + len(group.edits) - 1
        by_call[call] = _EditsBeforeCall(group.number, first, last, [*edits, *group.edits])
    return by_call


def _recorded_compactions(
    session: Session, anchored: MessageSizes, prompts: list[int]
) -> list[CombinedCompactionBeforeCall]:
    """Return the compactions of a record: those before each call, or after the last, as one."""
    compactions, visible, position = [], list[Message](), 0
    # The measured sizes of each compaction, by the positions of its first and its last edit.
    measured = {
        at: one
        for one in measure_compactions(session)
        for at in (one.group.position, one.group.position + len(one.group.edits) - 1)
    }
    for call, group in _group_edits_by_call(session).items():
        # `visible_before` grows along the path until the first edit, which makes a new list.
        visible_before, source_tokens = visible, dict[int, int]()
        for entry in session.path[position : group.last + 1]:
            if isinstance(entry, Message):
                if entry.visible:
                    visible.append(entry)
                continue
            targets = set(entry.targets)
            source_tokens[id(entry)] = anchored.sum_of(m for m in visible if m.id in targets)
            visible = apply_edit(visible, entry)
        position = group.last + 1
        tokens_before, tokens_after = map(anchored.sum_of, (visible_before, visible))
        # Sizes of the prompt as `measure_compactions` has them, else from the messages.
        before = next((p for p in reversed(prompts[:call]) if p), None)
        known_before, known_after = measured[group.first].before, measured[group.last].after
        if known_before is not None and known_after is not None:
            before, after = known_before, known_after
        elif before is None or call >= len(session.calls):
            before = max(before or 0, tokens_before)
            after = max(before - tokens_before + tokens_after, 0)
        else:
            after = _size_after(session, anchored, prompts, call, group.last)
        inserted_tokens = [sum(anchored.of(m) for m in e.inserted) for e in group.edits]
        summaries = [
            _written_summary_of_edit(session, e, call, source_tokens[id(e)], before, tokens)
            for e, tokens in zip(group.edits, inserted_tokens, strict=True)
        ]
        # What is still cached: system prompt and tools, then the messages up to the first other.
        is_common = [*map(is_, visible_before, visible), False]
        common_tokens = anchored.sum_of(visible[: is_common.index(False)])
        compactions.append(
            CombinedCompactionBeforeCall(
                call=call,
                before=before,
                after=after,
                messages_before=len(visible_before),
                messages_after=len(visible),
                inserted_tokens=sum(
                    count_summary_tokens(session, e, anchored.of) or 0 for e in group.edits
                ),
                summaries=tuple(s for s in summaries if s is not None),
                number=group.number,
                unchanged_front_tokens=min(max(before - tokens_before, 0) + common_tokens, after),
            )
        )
    return compactions


def _size_after(
    session: Session, anchored: MessageSizes, prompts: list[int], call: int, position: int
) -> int:
    """Return the first known prompt after an edit, less the messages in between."""

    def count_tokens_since(call: int) -> int:
        entries = session.path[position + 1 : session.calls[call].position]
        return sum(anchored.of(m) for m in entries if isinstance(m, Message) and m.visible)

    for k in range(call, len(prompts)):
        if session.calls[k].message.usage is not None and prompts[k]:  # failed calls have no usage
            return max(prompts[k] - count_tokens_since(k), 0)
    return anchored.modelled[call] - count_tokens_since(call)


def _written_summary_of_edit(  # noqa: PLR0917  the fields of `WrittenSummary`
    session: Session, edit: Edit, call: int, source: int, prompt: int, size: int
) -> WrittenSummary | None:
    """Return the summary of an edit as if a separate call had made it from what it replaced."""
    is_sealed = edit.details.get(SEALED_SUMMARY) is True
    has_text = bool(edit.inserted) and edit.method not in MODEL_FREE_METHODS
    if edit.kind != "summarised" or not (has_text or is_sealed):
        return None
    usd = None
    if edit.usage is not None:
        model = edit.model or session.model
        usd, _ = get_call_price_and_source(Message(role="assistant", usage=edit.usage), model)
    return WrittenSummary(call, source, prompt, None if is_sealed else size, usd)


def _minutes_between(session: Session, call: int, later_call: int | None) -> float | None:
    """Return the minutes between two calls; None without times or if the clock ran backwards."""
    if later_call is None:
        return None
    start, end = session.calls[call].message.time, session.calls[later_call].message.time
    return None if start is None or end is None or end < start else (end - start) / 60


REREAD_WINDOW = 24
"""Number of tool calls after a compaction that are searched for repeats: 75 % of the gaps between a
call and its repeat are shorter.
"""


class RereadAndReorientation(NamedTuple):
    """The tool calls after a compaction; None: there were none."""

    reread_rate: float | None
    """Share of the next `REREAD_WINDOW` tool calls that repeat one that the compaction removed."""
    reorientation: int | None
    """Tool calls until the first that writes."""


class ToolCallRequestIndex:
    """The tool calls of a session, numbered so that equal requests have equal numbers."""

    def __init__(self, rows: VisibleMessageRows) -> None:
        messages = rows.session.messages
        numbers: dict[Any, int] = {}
        tool_calls = [(i, call) for i, m in enumerate(messages) for call in m.tool_calls]
        self._requests = np.array(
            [numbers.setdefault(_make_request_key(call), len(numbers)) for _, call in tool_calls],
            np.int64,
        )
        """The request number of each tool call."""
        replies = [i for i, m in enumerate(messages) if m.role == "assistant"]
        self._first_tool_call = np.searchsorted([i for i, _ in tool_calls], replies)
        """The first tool call in or after the reply of each call."""
        # A tool call makes progress if it is the first of its request and does more than read.
        first_of_request = np.unique(self._requests, return_index=True)[1]
        new = sorted(
            i for i in first_of_request.tolist() if not is_read_only_tool(tool_calls[i][1].name)
        )
        calls_with_progress = [
            *(np.searchsorted(self._first_tool_call, new, "right") - 1).tolist(),
            None,
        ]
        self._next_progress: list[int | None] = [
            calls_with_progress[i] for i in np.searchsorted(new, self._first_tool_call).tolist()
        ]
        """The first call at or after each call that makes progress."""
        # Ids of tool calls may be reused: a result answers the latest request with its id.
        request_of_id: dict[str, int] = {}
        pairs, next_numbers, row = list[tuple[int, int]](), iter(self._requests.tolist()), 0
        for message in messages:
            requests = {call.id: next(next_numbers) for call in message.tool_calls}
            request_of_id |= requests
            answered = [request_of_id[message.call_id]] if message.call_id in request_of_id else []
            pairs += [(row, n) for n in (*requests.values(), *answered) if message.visible]
            row += message.visible
        self._row, self._request_of_row = np.array(pairs, np.int64).reshape(-1, 2).T
        """All pairs of a row and a request that it makes or answers."""
        writes = [i for i, (_, call) in enumerate(tool_calls) if is_write_tool(call.name)]
        self._writes = np.array(writes, np.int64)

    def count_calls_to_resume(self, call: int) -> int | None:
        """Return the calls from a compaction to the first that makes progress; None: none does.

        A call makes progress if it requests something for the first time and does more than read.
        """
        resumed = self._next_progress[call]
        return None if resumed is None else resumed - call

    def after(self, visibility: Visibility, call: int) -> RereadAndReorientation:
        """Return the activity after a compaction before a call.

        Args:
            visibility: visibility of the session's messages.
            call: number of the call before which the compaction happened, from 0.
        """
        start, tick = int(self._first_tool_call[call]), 2 * call + 1
        is_removed = visibility.visible_until[self._row] == tick
        restored = visibility.restored_spans
        removed_again = restored[restored[:, 2] == tick, 0]
        if len(removed_again):
            is_removed |= np.isin(self._row, removed_again)
        removed_requests = set(self._request_of_row[is_removed].tolist())
        next_requests = self._requests[start : start + REREAD_WINDOW].tolist()
        repeats = sum(request in removed_requests for request in next_requests)
        write = int(np.searchsorted(self._writes, start))
        return RereadAndReorientation(
            repeats / len(next_requests) if next_requests else None,
            int(self._writes[write]) - start if write < len(self._writes) else None,
        )


def _make_request_key(call: ToolCall) -> tuple[str, str]:
    """Return a key of a request: tool and arguments, or tool and path for reads."""
    path = get_call_path(call) if is_read_tool(call.name) else None
    if path is not None:
        return call.name.lower(), path
    return call.name.lower(), call.raw or json.dumps(call.arguments, sort_keys=True, default=str)


@register_view_values("thrash")
def _read_figures(session: Session) -> dict[str, Any]:
    summary = thrash(session)
    if not summary.outcomes:
        return {}
    return {"not_paid_back_n": summary.not_paid_back_n, "is_thrashing": summary.is_thrashing}
