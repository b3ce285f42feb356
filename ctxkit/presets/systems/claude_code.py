"""Claude Code: near the limit the whole conversation becomes a summary, and the newest files are
restored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.result_clearing_and_cache_ttl import Clear
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Above, BaseTrigger, Idle, Overflow, Share
from ctxkit.presets.registry_and_setting_checks import (
    DocumentationDifference,
    check_window,
    make_checked_preset,
)
from ctxkit.presets.shared_summaries_and_clearing import (
    MiddleSummary,
    as_summary_message,
    find_end_of_removable,
    make_removable_mask,
)
from ctxkit.session.messages import Message, Text, get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import is_read_tool, is_write_tool

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import PromptForecast
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise the conversation so that the work goes on without it: requests and intent, key"
    " concepts, files and important snippets, errors and their fixes, what is pending, what was"
    " being done last."
)

DIFFERENCES = (
    DocumentationDifference(
        "older tool outputs",
        "are cleared first, and only then the conversation is summarised",
        "how many stay is not documented",
        "off; `clear_tool_outputs` says how many stay",
    ),
    DocumentationDifference(
        "where it is due",
        "when the window approaches its limit",
        "window less min(output limit, 20,000) less 13,000, as users found"
        " (anthropics/claude-code#31806)",
        "as users found",
    ),
    DocumentationDifference(
        "a pause near the end of a one-hour cache",
        "not in the documentation",
        "from 2.1.286 behind a flag of the server, 2.1.299 (2026-10-14) officially: compacted"
        " about 54 minutes after the last reply, from 200,000 tokens on, unless `idleCompaction` is"
        " false",
        "from the first call on that wrote for an hour, so never in a log without such writes;"
        ' `version="2.1.29"` never does. Its summary is billed as reading the cached prompt',
    ),
    DocumentationDifference(
        "what is loaded again",
        "CLAUDE.md, memory, plan, skills and up to five files",
        "from disk",
        "files alone, as the log has them; the rest is part of the fixed prompt of a log",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ClaudeSummary(MiddleSummary):
    """Summarise everything; the files that were worked on last come after it."""

    files: int = 5
    """Files that come back."""
    file_tokens: int = 5000
    """Tokens, at four characters each, above which a file comes back as its path alone."""
    clear: Clear | None = None
    """Clears older tool outputs first."""
    is_due: Any = None
    """Says whether a summary is due even then."""

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return a summary and the files."""
        if self.clear is not None:
            # clearing comes first; where it frees enough, no summary is made
            history = self.clear(history, budget)
            if not self.is_due(history, budget):
                return history
        start, n = self.front(history), self.find_cut(history, budget)
        if not make_removable_mask(history, start, n).any():
            return history
        summary = as_summary_message(self.write_summary(history, n), self.prefix)
        files_message = self.make_files_message(history)
        inserted = [summary, files_message] if files_message else summary
        method = self.name_method("claude_code")
        new = history.summarise(n, inserted, "everything is summarised", start=start, method=method)
        return keep_if_smaller(history, new) if self.must_shrink else new

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the end: nothing is kept as it is."""
        return find_end_of_removable(history)

    def make_files_message(self, history: History) -> Message | None:
        """Return a message with the files that were read or written last."""
        text_by_path, max_chars = find_last_files(history, self.files), 4 * self.file_tokens
        if not text_by_path:
            return None
        bodies = {
            path: f":\n{text}" for path, text in text_by_path.items() if 0 < len(text) <= max_chars
        }
        text = "\n\n".join(f"File {path}{bodies.get(path, '')}" for path in text_by_path)
        return Message(role="user", kind="injected", parts=(Text(text),))


def find_last_files(history: History, n: int) -> dict[str, str]:
    """Return the `n` files touched last, newest first, with the text of their last good reads."""
    path_by_call: dict[str, str] = {}
    text_by_path: dict[str, str] = {}
    # Insertion order is the order of last use: a path is moved to the end whenever it is touched.
    for message in history.messages:
        for call in message.tool_calls:
            path, name = message_content_and_truncation.get_path_argument(call), call.name
            if path and (is_read_tool(name) or is_write_tool(name)):
                text_by_path[path] = text_by_path.pop(path, "")
                if is_read_tool(name):
                    path_by_call[call.id] = path
        if message.role == "tool" and message.call_id in path_by_call and not message.is_error:
            path = path_by_call[message.call_id]
            text_by_path.pop(path, None)
            text_by_path[path] = get_plain_text(message)
    return dict(list(reversed(text_by_path.items()))[:n])


@dataclass(frozen=True)
class OneHourCacheWriteTrigger(BaseTrigger):
    """A call before it wrote to a cache that lives an hour."""

    def first(self, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call in start..stop behind such a write, or `stop`."""
        log = forecast.log
        state: list[int] = log.memo.setdefault("first one-hour write", [0])
        while state[0] < min(stop, len(log.replies)):
            reply = log.replies[state[0]]
            if reply is not None and reply.usage and reply.usage.cache_write_1h_tokens:
                return min(max(start, state[0] + 1), stop)
            if reply is None and state[0] == len(log.replies) - 1:
                break  # the call that is being prepared
            state[0] += 1
        return stop


IDLE_SECONDS = 54 * 60.0
"""Pause after the last reply at which an idle session is compacted: 0.9 of the hour."""


@make_checked_preset
def claude_code(
    *,
    context_window: int | None = None,
    version: Literal["2.1.299", "2.1.29"] = "2.1.299",
    idle_compaction: bool = True,
    idle_min_tokens: int = 200_000,
    auto_compact_enabled: bool = True,
    autocompact_pct_override: float | None = None,
    auto_compact_window: int | None = None,
    summary_max_output_tokens: int = 20_000,
    buffer_tokens: int = 13_000,
    restored_files: int = 5,
    restored_file_tokens: int = 5000,
    clear_tool_outputs: int | None = None,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Claude Code's rules, as its documentation and its users describe them; the
    program is not public.

    Source: code.claude.com/docs/en/context-window, as quoted on 2026-10-19 (a summary of the
    conversation; up to five files restored, one of more than 5,000 tokens as its path; the
    percentage can be overridden); its users, anthropics/claude-code#31806 (13,000 tokens below the
    window less the summary's 20,000; an override can only lower it); for idle sessions, read on
    2026-11-24, the releases of conPACT (v1.5.0), claude-console (v0.16.0) and afk-compact (0.1.14)
    and Ark0N/Codeman#554 (13 sessions compacted 54.7 to 55.7 minutes after the last reply).

    Not confirmed: how many older tool outputs are cleared before a compaction.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        version: version of the program to reproduce, where versions differ: from 2.1.299 on (the
            names of its settings are in 2.1.332, too) an idle session is compacted shortly before a
            one-hour cache ends. The default is the newest, whichever version wrote a log.
        idle_compaction: `idleCompaction` of the program's settings.
        idle_min_tokens: tokens from which an idle session is compacted
            (`CLAUDE_CODE_IDLE_COMPACT_MIN_TOKENS`).
        auto_compact_enabled: whether to compact automatically.
        autocompact_pct_override: percent of the effective window at which it is due; can only lower
            it.
        auto_compact_window: tokens that count as the window; never more than the window.
        summary_max_output_tokens: tokens of the window reserved for the summary.
        buffer_tokens: tokens below the rest at which a compaction is due.
        restored_files: files that come back after a compaction.
        restored_file_tokens: tokens above which a file comes back as its path alone.
        clear_tool_outputs: tool outputs that stay whole, older ones being cleared first; None: none
            is cleared.
        focus: a topic that the summary should also cover, as after `/compact`.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise the whole conversation near the limit or, from 2.1.299 on, in a long
        pause of a session with one-hour cache writes.

    Raises:
        BadArguments: autocompact_pct_override is not above 0 and at most 100.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.claude_code(context_window=200_000)
        >>> rules.parameters["context_window"]
        200000
    """
    reserve = summary_max_output_tokens + buffer_tokens
    check_window(context_window, reserve)
    if autocompact_pct_override is not None and not 0 < autocompact_pct_override <= 100:
        raise BadArguments("autocompact_pct_override is a percentage above 0 and up to 100.")
    trigger: Any = Share(1.0, of="budget", or_equal=True)
    window = context_window or 200_000
    if auto_compact_window is not None:
        check_window(auto_compact_window, reserve)
        trigger = trigger | Above(auto_compact_window - reserve, or_equal=True)
        window = min(window, auto_compact_window)
    if autocompact_pct_override is not None:
        # a further trigger: a percentage can only lower the threshold, never raise it
        at = (window - summary_max_output_tokens) * autocompact_pct_override / 100
        trigger = trigger | Above(max(int(at), 1), or_equal=True)
    policy = ClaudeSummary(
        keep_messages=1,
        instructions=add_focus(INSTRUCTIONS, focus),
        limit=summary_max_output_tokens,
        files=restored_files,
        file_tokens=restored_file_tokens,
    )
    if version == "2.1.299" and idle_compaction:
        due_when_idle = Idle(IDLE_SECONDS, ahead=True) & Above(idle_min_tokens, or_equal=True)
        trigger = trigger | (due_when_idle & OneHourCacheWriteTrigger())
    trigger = trigger | Overflow(recorded=True)
    if clear_tool_outputs is not None:
        policy = replace(policy, clear=Clear(keep_last=clear_tool_outputs), is_due=trigger)
    return Rules(
        policy=policy,
        trigger=trigger,
        window=context_window,
        reserve=reserve,
        summariser=summariser,
        auto=auto_compact_enabled,
    )
