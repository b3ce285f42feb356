"""OpenClaw's guarded summary: stages for long histories, notes on oversized messages, failures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import ModelError
from ctxkit.policies.history.growing_columns_and_sums import USER
from ctxkit.policies.history.history import find_turn_start
from ctxkit.policies.offline_summarisers import get_summary_text
from ctxkit.policies.summary_compaction import LOCAL_SUMMARISERS, PiSummary
from ctxkit.policies.texts import message_content_and_truncation, tool_outcomes_and_files
from ctxkit.session.messages import get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import pair_with_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.policies.history.history import History
    from ctxkit.policies.offline_summarisers import SummariserInput
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Proportion
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


MERGE_INSTRUCTIONS = (
    "Merge these partial summaries into one. Keep active tasks and their state, progress of batches"
    " (such as 5/17), the last request, decisions with their reasons, open questions, constraints"
    " and promises; newer before older."
)
MAX_FAILURES = 8
"""Maximum number of tool failures in the list."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PiSummaryInStages(PiSummary):
    """Pi's summary, in stages where the history is long, with a list of tool failures.

    Example:
        >>> import ctxkit as ck
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules(PiSummaryInStages(keep_tokens=2000), above)
        >>> replay = ck.replay(ck.read(ck.samples.path("incident")), rules)
        >>> [(edit.kind, edit.tokens_before, edit.tokens_after) for edit in replay.edits][:1]
        [('summarised', 4424, 4414)]
    """

    max_history_share: Proportion = 0.5
    """Share of the window for the history of one summary; older messages go first, apart."""
    by_new: bool = False
    """Split only where the rest of the prompt is over that share, too (OpenClaw from 2026.9)."""
    parts: int = 2
    """Number of parts of a long history that are summarised apart and merged."""
    window: int = 200_000
    """Window in tokens for planning stages; a run uses the window of its budget."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with its old part summarised.

        Raises:
            ModelError: the summary failed; with quirks also where only a split turn could be
                summarised.
        """
        if self.quirks:
            first = self.find_cut(history, budget)
            splits = first and history.item(first).role(history.log) != USER
            if splits and find_turn_start(history, first) <= 0:
                raise ModelError(
                    "Compaction cancelled: there is nothing to summarise but the turn at work."
                )
        policy = (
            self
            if isinstance(self.summariser, LOCAL_SUMMARISERS)
            else replace(self, window=budget.limit)
        )
        return PiSummary.__call__(policy, history, budget)

    def write_summary(self, history: History, first: int) -> Message | str | int:
        """Return the summary with the list of tool failures."""
        summary = super().write_summary(history, first)
        if not isinstance(summary, str):
            return summary
        places = np.arange(self.front(history), first)
        return summary + format_failures_section(
            tool_outcomes_and_files.map_messages(history, places, format_failure_line)
        )

    def summarise_passage(self, maker: Any, passage: SummariserInput) -> Message | str | int:
        """Return the summary of a passage, in chunks if long, each given the summary so far."""
        if isinstance(maker, LOCAL_SUMMARISERS):
            return super().summarise_passage(maker, passage)
        # Oversized messages are left out with a note. Messages over the history share are a part
        # of their own. Each part is summarised in chunks; several summaries are merged by one call.
        messages = passage.messages
        sizes = [passage.history.item(p).estimate for p in passage.positions]
        fitting_rows, notes = exclude_oversized_messages(messages, sizes, self.window)
        positions = [passage.positions[i] for i in fitting_rows]
        fitting, fitting_sizes = (
            [messages[i] for i in fitting_rows],
            [sizes[i] for i in fitting_rows],
        )
        partial: list[str] = []
        others = passage.history.tokens - sum(sizes)
        for rows in self.portions(fitting, fitting_sizes, others):
            instructions = passage.instructions
            for chunk in rows:
                start, before = positions[chunk[0]], positions[chunk[-1]] + 1
                part = replace(passage, start=start, before=before, instructions=instructions)
                summary = super().summarise_passage(maker, part)
                if isinstance(summary, int):
                    return summary
                text = get_summary_text(summary)
                instructions = f"{passage.instructions}\n\nThe summary so far:\n{text}"
            partial.append(text)
        if len(partial) > 1:
            instructions = (
                f"{MERGE_INSTRUCTIONS}\n\n{passage.instructions}\n\n" + "\n\n---\n\n".join(partial)
            )
            last = replace(
                passage, start=positions[-1], before=positions[-1] + 1, instructions=instructions
            )
            summary = super().summarise_passage(maker, last)
            partial = [summary if isinstance(summary, str) else "\n\n".join(partial)]
        return "\n\n".join([*partial, *notes])

    def portions(
        self, messages: Sequence[Message], sizes: Sequence[int], others: int = 0
    ) -> list[list[RowIndices]]:
        """Return the chunks of each part; messages over the history's share are the first part.

        Args:
            messages: the messages to summarise.
            sizes: their tokens.
            others: tokens of the rest of the prompt, for `by_new`.
        """
        budget = int(self.window * self.max_history_share)
        newer, dropped, _ = drop_older_halves(messages, sizes, budget)
        if self.by_new and others <= int(self.window * self.max_history_share * SAFETY_MARGIN):
            newer, dropped = (*dropped, *newer), ()
        out: list[list[RowIndices]] = []
        for rows in (dropped, newer):
            if rows:
                row_messages, row_sizes = [messages[r] for r in rows], [sizes[r] for r in rows]
                staged = plan_stages(row_messages, row_sizes, self.window, self.parts)
                out += [[tuple(rows[r] for r in chunk) for chunk in part] for part in staged]
        return out


def format_failures_section(lines: Sequence[str]) -> str:
    """Return the section of at most eight failed tools; empty without any."""
    if not lines:
        return ""
    more = [f"- ...and {len(lines) - MAX_FAILURES} more"] if len(lines) > MAX_FAILURES else []
    return "\n\n## Tool Failures\n" + "\n".join([*lines[:MAX_FAILURES], *more])


def format_failure_line(message: Message) -> str | None:
    """Return one line on a failed tool result, at most 240 characters of it; None: no failure."""
    if message.role != "tool" or not tool_outcomes_and_files.is_failed_result(message):
        return None
    text = get_plain_text(message)
    code = tool_outcomes_and_files.find_exit_status(text)
    status = "" if code is None else f" (exitCode={code})"
    line = message_content_and_truncation.format_one_line(text, 240)
    return f"- {message.tool or 'tool'}{status}: {line}"


RowIndices = tuple[int, ...]
SAFETY_MARGIN = 1.2
"""Factor by which a token estimate may be too low (OpenClaw)."""
REQUEST_OVERHEAD = 4096
"""Tokens of each request that are free for instructions and the previous summary."""


def group_calls_with_results(messages: Sequence[Message]) -> list[RowIndices]:
    """Return groups of rows that stay together: a call with all rows up to its last result.

    All other rows are groups of one, also calls that were aborted, failed, or got no result.
    """
    at = {id(c): i for i, (m, c) in enumerate(pair_with_calls(messages)) if m.role == "tool"}
    out: list[RowIndices] = []
    row = 0
    while row < len(messages):
        end = max(row, _last_result_row(messages[row], at))
        out.append(tuple(range(row, end + 1)))
        row = end + 1
    return out


def _last_result_row(message: Message, at: dict[int, int]) -> int:
    """Return the row of the last result of a message's calls, or -1."""
    if message.stop in ("aborted", "error"):
        return -1
    return max((at.get(id(c), -1) for c in message.tool_calls), default=-1)


def chunk_by_size(
    messages: Sequence[Message], sizes: Sequence[int], limit: int
) -> list[RowIndices]:
    """Return chunks of whole groups, of at most `limit` / 1.2 tokens or one group.

    Args:
        messages: messages in order.
        sizes: tokens of each message.
        limit: tokens of a request; 1.2 is the margin for errors of counting.
    """
    budget = max(1, int(limit / SAFETY_MARGIN))
    return _pack_groups(group_calls_with_results(messages), sizes, lambda total, _: total > budget)


def chunk_by_share(
    messages: Sequence[Message], sizes: Sequence[int], parts: int = 2
) -> list[RowIndices]:
    """Return at most `parts` chunks of whole groups with similar numbers of tokens.

    Args:
        messages: messages in order.
        sizes: tokens of each message.
        parts: maximum number of chunks.
    """
    target = sum(sizes) / max(1, parts)
    return _pack_groups(
        group_calls_with_results(messages),
        sizes,
        lambda total, done: done < parts - 1 and total > target,
    )


def _pack_groups(
    groups: Iterable[RowIndices], sizes: Sequence[int], is_full: Callable[[int, int], bool]
) -> list[RowIndices]:
    chunks: list[RowIndices] = []
    chunk: RowIndices = ()
    for group in groups:
        total = sum(sizes[r] for r in (*chunk, *group))
        if chunk and is_full(total, len(chunks)):
            chunks.append(chunk)
            chunk = ()
        chunk += group
    return [*chunks, chunk] if chunk else chunks


def drop_older_halves(
    messages: Sequence[Message], sizes: Sequence[int], budget: int
) -> tuple[RowIndices, RowIndices, int]:
    """Drop the older half, by tokens, until the rest fits the budget.

    Args:
        messages: messages in order.
        sizes: tokens of each message.
        budget: tokens that the rest may have.

    Returns:
        The remaining rows, the dropped rows, the number of halvings.
    """
    remaining: RowIndices = tuple(range(len(messages)))
    dropped: RowIndices = ()
    times = 0
    while remaining and sum(sizes[r] for r in remaining) > budget:
        halves = chunk_by_share([messages[r] for r in remaining], [sizes[r] for r in remaining])
        if len(halves) < 2:
            break
        first = len(halves[0])
        dropped, remaining, times = dropped + remaining[:first], remaining[first:], times + 1
    return remaining, dropped, times


def compute_chunk_share(messages: int, tokens: int, window: int) -> float:
    """Return the share of the window for a chunk: 0.4, down to 0.15 where messages are large.

    Args:
        messages: number of messages.
        tokens: their tokens.
        window: context window in tokens.
    """
    if not messages or not window:
        return 0.4
    mean = tokens / messages * SAFETY_MARGIN / window
    return 0.4 if mean <= 0.1 else max(0.15, 0.4 - min(mean * 2, 0.25))


def compute_chunk_tokens(messages: int, tokens: int, window: int) -> int:
    """Return the maximum tokens of history in one summary request.

    Args:
        messages: number of messages.
        tokens: their tokens.
        window: context window in tokens.
    """
    return max(1, int(window * compute_chunk_share(messages, tokens, window)) - REQUEST_OVERHEAD)


def exclude_oversized_messages(
    messages: Sequence[Message], sizes: Sequence[int], window: int
) -> tuple[RowIndices, tuple[str, ...]]:
    """Return the rows that fit a summary request, and a note for each message that does not.

    A message whose tokens times 1.2 exceed half the window is left out, with its calls and results.

    Args:
        messages: messages in order.
        sizes: tokens of each message.
        window: context window in tokens.
    """
    large = {i for i, n in enumerate(sizes) if n * SAFETY_MARGIN > window / 2}
    notes = tuple(
        f"[Large {_role_label(messages[i])} (~{max(1, round(sizes[i] / 1000))}K tokens) omitted "
        "from"
        " summary]"
        for i in sorted(large)
    )
    excluded_calls = {messages[i].call_id for i in large} | {
        c.id for i in large for c in messages[i].tool_calls
    }
    # A reply with one excluded call is left out, so all its calls are.
    excluded_calls |= {
        c.id
        for m in messages
        if any(c.id in excluded_calls for c in m.tool_calls)
        for c in m.tool_calls
    }
    excluded_calls.discard(None)
    remaining = tuple(
        i
        for i, m in enumerate(messages)
        if i not in large
        and m.call_id not in excluded_calls
        and not any(c.id in excluded_calls for c in m.tool_calls)
    )
    return remaining, notes


def _role_label(message: Message) -> str:
    return "toolResult" if message.role == "tool" else message.role


def plan_stages(
    messages: Sequence[Message], sizes: Sequence[int], window: int, parts: int = 2
) -> list[list[RowIndices]]:
    """Return the requests of a summary in stages: for each part its chunks, in order.

    Fewer than four messages, or messages that fit one chunk, are one part.

    Args:
        messages: messages in order.
        sizes: tokens of each message.
        window: context window in tokens.
        parts: maximum number of parts.
    """
    limit = compute_chunk_tokens(len(messages), sum(sizes), window)
    if len(messages) < 4 or sum(sizes) <= limit:
        return [chunk_by_size(messages, sizes, limit)]
    out = []
    for part in chunk_by_share(messages, sizes, parts):
        inner = chunk_by_size([messages[r] for r in part], [sizes[r] for r in part], limit)
        out.append([tuple(part[r] for r in chunk) for chunk in inner])
    return out
