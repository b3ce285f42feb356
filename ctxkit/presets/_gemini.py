"""Gemini CLI (google-gemini/gemini-cli): at half the window a snapshot and the last 30 %, or a
pipeline of budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.chain import Chain
from ctxkit.policies.rules import Rules
from ctxkit.policies.shorten import Replies, Results
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Above, Share
from ctxkit.presets.anchored_summaries import OwnCut
from ctxkit.presets.checks import typed
from ctxkit.presets.configs.config_texts import ConfigText
from ctxkit.presets.differences import LAST_CALL, Difference
from ctxkit.texts import contents, trims
from ctxkit.texts.summary_passages import focused

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.tokens import Room

INSTRUCTIONS = (
    "Write a state snapshot from which the work goes on: goal, constraints, facts found, files and"
    " what was done to them, what happened last, the plan with what is done. Integrate an earlier"
    " snapshot; lose none of its constraints."
)
MASKED = "\n[...{n} characters masked; the full output was saved to a file...]"
MARK = "\n... [output truncated; the full output was saved to a file] ...\n"

DIFFERENCES = (
    LAST_CALL,
    Difference(
        "size of a message",
        "characters",
        "characters of its JSON",
        "characters of its text, names and arguments",
    ),
    Difference(
        "second look",
        "the model is asked once more whether the snapshot lost anything",
        "two calls for each compaction",
        "one: hand in a summariser that asks twice",
    ),
    Difference(
        "after a failed compaction",
        "not said",
        "only truncation from then on, no summary",
        "every attempt summarises",
    ),
    Difference(
        "long outputs beyond the budget",
        "truncated to their last lines",
        "to head and tail of the limit of characters, and saved to a file",
        "head and tail; no file is written by a replay",
    ),
    Difference(
        "pipeline: distillation",
        "nodes over 3,000 (at once: 15,000) tokens are condensed by a model",
        "in the background, as nodes age out",
        "they are cut to the truncation's limit, without a model, in the step in which it is due",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class GeminiSummary(Summary):
    """Keep the last share of the characters, from a user message on; cut long outputs beyond a
    budget first.
    """

    apart: bool = False
    preserve: float = 0.3
    """Share of the characters that is kept."""
    result_tokens: int = 50_000
    """Tokens of tool outputs, newest first, that are left whole."""
    result_chars: int = 40_000
    """Characters that an output beyond that keeps."""

    def __call__(self, history: History, room: Room) -> History:
        """Return the history with its old part in a snapshot."""
        return super().__call__(self.truncated(history), room)

    def truncated(self, history: History) -> History:
        """Return the history with outputs beyond the budget cut to head and tail."""
        tools = history.role("tool")
        long = tools & (history.chars > self.result_chars + len(MARK))
        if not long.any():
            return history
        total, sizes = 0, history.estimates
        head, tail = self.result_chars // 5, self.result_chars * 4 // 5
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(tools)[::-1].tolist():
            size = int(sizes[p])
            if total + size > self.result_tokens and long[p]:
                text = trims.ends(contents.texts(history[p]), head, tail, MARK)
                changes[p] = contents.with_text(history[p], text)
                size = len(text) // 4
            total += size
        return history.shorten(changes, reason="outputs beyond the budget are cut")

    def cut(self, history: History, _room: Room) -> int:
        """Return the first request behind what goes; else the last, or the end after a reply."""
        return split_point(history, 1 - self.preserve)


def split_point(history: History, share: float) -> int:
    """Return where Gemini CLI splits: the first request at or beyond a share of the characters."""
    chars = history.chars
    before = np.concatenate([[0], np.cumsum(chars)])
    starts = np.flatnonzero(history.role("user", "summary"))
    beyond = [int(p) for p in starts if before[p] >= share * before[-1]]
    if beyond:
        return history.safe_before(beyond[0])
    last = history[len(history) - 1] if len(history) else None
    if last is not None and last.role == "assistant" and not last.tool_calls:
        return len(history)
    return history.safe_before(int(starts[-1])) if len(starts) else 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Pipeline(OwnCut):
    """Beyond the retained tokens cut long messages down; over the maximum put a snapshot in the
    place of the oldest.
    """

    max_tokens: int = 150_000
    """Tokens of the prompt above which the oldest are summarised."""
    node_tokens: int = 4000
    """Tokens that a message beyond the retained ones keeps."""

    def __call__(self, history: History, room: Room) -> History:
        """Return the history within its budgets."""
        old = self.cut(history, room)
        mask = (np.arange(len(history)) < old) & (history.estimates > self.node_tokens)
        half = 2 * self.node_tokens
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(mask & history.role("tool", "assistant")).tolist():
            text = contents.texts(history[p])
            if len(text) > 2 * half and not contents.has_images(history[p]):
                short = trims.ends(text, half - len(MARK), half, MARK)
                changes[p] = contents.with_text(history[p], short)
        new = history.shorten(changes, reason="aged messages are cut")
        return super().__call__(new, room) if new.tokens > self.max_tokens else new


@typed
def gemini(
    *,
    variant: Literal["classic", "pipeline"] = "classic",
    context_window: int | None = None,
    compression_threshold: float = 0.5,
    compression_preserve_threshold: float = 0.3,
    function_response_token_budget: int = 50_000,
    truncate_tool_output_threshold: int = 40_000,
    retained_tokens: int = 65_000,
    max_tokens: int = 150_000,
    coalescing_threshold_tokens: int = 5000,
    masking_threshold_tokens: int = 8000,
    max_tokens_per_node: int = 4000,
    max_state_tokens: int = 4000,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return Gemini CLI's rules: the compression of the released program, or the newer pipeline.

    Read in `chatCompressionService.ts` (02b2885: 0.5, 0.3, 50,000, the split, a result that grew is
    refused) and `context/config/profiles.ts` (039a3fd: the pipeline's numbers). Not confirmed:
    40,000 characters as the limit to which an output is cut there.

    Args:
        variant: `classic` (one compression at a share of the window) or `pipeline` (budgets of
            tokens).
        context_window: tokens that the model takes; None: as the price table has it, else 200,000.
        compression_threshold: share of the window at which a compression is due
            (`model.compressionThreshold`).
        compression_preserve_threshold: share of the characters, the newest, that is kept.
        function_response_token_budget: tokens of tool outputs, newest first, that a compression
            leaves whole.
        truncate_tool_output_threshold: characters that an output beyond it keeps.
        retained_tokens: pipeline: tokens that are kept as they are.
        max_tokens: pipeline: tokens of the prompt above which the oldest are summarised.
        coalescing_threshold_tokens: pipeline: tokens above those retained at which a step is due.
        masking_threshold_tokens: pipeline: tokens of one tool output above which the rest of it is
            masked at once.
        max_tokens_per_node: pipeline: tokens that a message beyond the retained ones keeps.
        max_state_tokens: pipeline: tokens of a snapshot.
        focus: what a summary shall look at besides.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
    """
    common: dict[str, Any] = {
        "window": context_window,
        "estimator": "chars/4",
        "summariser": summariser,
        "config": ConfigText("gemini"),
    }
    told = focused(INSTRUCTIONS, focus)
    if variant == "classic":
        if not 0 < compression_preserve_threshold < 1:
            raise BadArguments("compression_preserve_threshold lies between 0 and 1.")
        policy: Summary = GeminiSummary(
            keep_messages=1,
            preserve=compression_preserve_threshold,
            result_tokens=function_response_token_budget,
            result_chars=truncate_tool_output_threshold,
            instructions=told,
        )
        return Rules(
            policy=policy,
            trigger=Share(compression_threshold, or_equal=True),
            **common,
        )
    if retained_tokens >= max_tokens:
        raise BadArguments(
            f"retained_tokens ({retained_tokens:,}) must lie below max_tokens ({max_tokens:,})."
        )
    policy = Pipeline(
        keep_tokens=retained_tokens,
        max_tokens=max_tokens,
        node_tokens=max_tokens_per_node,
        limit=max_state_tokens,
        estimated=True,
        instructions=told,
    )
    masked = 4 * masking_threshold_tokens
    return Rules(
        policy=policy,
        trigger=Above(retained_tokens + coalescing_threshold_tokens),
        pruning=Chain.of(
            Results(max_chars=masked, consumed_chars=-1, suffix=MASKED),
            Replies(max_chars=masked, suffix=MASKED),
        ),
        **common,
    )
