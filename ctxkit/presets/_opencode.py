"""OpenCode (anomalyco/opencode): a summary and the last two turns; old tool output can be pruned before that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.clear import CLEARED
from ctxkit.policies.prompts import focused
from ctxkit.policies.rules import Rules
from ctxkit.policies.shorten import Outputs
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.presets.checks import typed
from ctxkit.presets.configs.texts import ConfigText
from ctxkit.presets.differences import LAST_CALL, Difference
from ctxkit.presets.moments import opens_turn

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.tokens import Room

OUTPUT_MAX = 32_000
BUFFER = 20_000
INSTRUCTIONS = (
    "Write what another agent needs to go on with this work: goal, instructions of the user, discoveries, what is "
    "accomplished and what is left, relevant files and folders."
)

DIFFERENCES = (
    Difference(
        "pruning",
        "off by default",
        "older versions prune unless it is turned off",
        "off",
        "as the default",
    ),
    Difference(
        "what the summariser is sent",
        "the conversation",
        "on overflow again without tool output, then with the last five turns alone",
        "the conversation; a failure leaves the history as it was",
        "as the default",
    ),
    Difference(
        "upper bound of the kept tokens",
        "not said",
        "8,000 in earlier versions, 15,000 in later ones",
        "15,000",
        "as the default",
    ),
    LAST_CALL,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenCodeSummary(Summary):
    """Keep the last turns as far as a budget reaches; prune old tool output where no summary is due."""

    estimated: bool = True
    apart: bool = False
    tail_turns: int = 2
    """Turns at the end that may be kept."""
    tail_tokens: int | None = None
    """Tokens that they may have; None: a quarter of what is usable, from 2,000 to 15,000."""
    prune: bool = False
    """Clear old tool output at the start of a turn."""
    prune_protect: int = 40_000
    """Tokens of tool output, the newest, that pruning leaves alone."""
    prune_minimum: int = 20_000
    """Tokens that a pruning must free."""
    protected_tools: tuple[str, ...] = ("skill",)
    """Tools whose output is never pruned."""

    def __call__(self, history: History, room: Room) -> History:
        """Return the history summarised where it is full, else pruned."""
        if self.prune and history.tokens < room.budget:
            return self.pruned(history)
        return super().__call__(history, room)

    def pruned(self, history: History) -> History:
        """Return the history without the output of old tools, up to the last summary."""
        stop = max(history.nth_last("user", 2), 0)
        mask = history.role("tool") & (np.arange(len(history)) < stop)
        if self.protected_tools:
            mask &= ~history.tool(*self.protected_tools)
        rows = np.flatnonzero(mask & (history.chars > len(CLEARED)))[::-1]
        sizes = history.estimates[rows]
        old = rows[np.cumsum(sizes) > self.prune_protect]
        if int(history.estimates[old].sum()) <= self.prune_minimum:
            return history
        return history.shorten(np.sort(old), CLEARED, reason="old tool output is pruned")

    def cut(self, history: History, room: Room) -> int:
        """Return where the kept turns begin: the last ones that fit, or as much of a long one as does."""
        budget = self.tail_tokens
        if budget is None:
            budget = min(15_000, max(2000, room.budget // 4))
        n = len(history)
        first, left = n, budget
        for turn in range(1, self.tail_turns + 1):
            start = history.nth_last("user", turn)
            if start < 0:
                break
            size = history.before(first, estimated=True) - history.before(start, estimated=True)
            if size > left:
                within = history.safe(history.back(left, estimated=True) + 1) if turn == 1 else first
                first = within or n
                break
            first, left = start, left - size
        return history.safe_before(first)


@typed
def opencode(
    *,
    context_window: int | None = None,
    limit_input: int | None = None,
    limit_output: int = OUTPUT_MAX,
    auto: bool = True,
    prune: bool = False,
    reserved: int | None = None,
    tail_turns: int = 2,
    preserve_recent_tokens: int | None = None,
    prune_protect: int = 40_000,
    prune_minimum: int = 20_000,
    max_output_tokens: int = 20_000,
    max_lines: int = 2000,
    max_bytes: int = 51_200,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return OpenCode's rules: a summary where what is usable of the window is full.

    Read in `session/overflow.ts` (08f74b9: what is usable, `>=`) and `session/compaction.ts` (001aa6c: pruning);
    the kept turns (two, a quarter of what is usable, from 2,000 tokens up) as later versions of that file are quoted.

    Args:
        context_window: tokens that the model takes; None: the model's limit from the price table, else 200,000.
        limit_input: tokens of prompt that it takes, where the provider names them apart.
        limit_output: tokens of reply that it gives; at most 32,000 are held free.
        auto: whether anything is compacted without being asked.
        prune: clear old tool output at the end of each turn.
        reserved: tokens below `limit_input` at which a compaction is due; None: 20,000, or the reply's if fewer.
        tail_turns: turns at the end that may be kept as they are.
        preserve_recent_tokens: tokens that they may have; None: a quarter of what is usable, from 2,000 to 15,000.
        prune_protect: tokens of tool output, the newest, that pruning leaves alone.
        prune_minimum: tokens that a pruning must free.
        max_output_tokens: tokens of a summary.
        max_lines: lines of a tool's output that enter the history (`tool_output.max_lines`); 0: all.
        max_bytes: bytes of it; 0: all.
        focus: what a summary shall look at besides.
        summariser: who writes summaries (a name or ``(passage) -> text``); None: the extractive one, without a model.
    """
    parameters = dict(locals())
    output = min(limit_output, OUTPUT_MAX) or OUTPUT_MAX
    held = output
    window = context_window
    if limit_input is not None:
        held = min(BUFFER, output) if reserved is None else reserved
        window = limit_input if context_window is None else min(limit_input, context_window)
    if window is not None and held >= window:
        raise BadArguments(f"A window of {window:,} tokens with {held:,} held free for the reply leaves no room.")
    trigger: Any = Share(1.0, of="budget", or_equal=True) | Overflow(recorded=True)
    policy = OpenCodeSummary(
        keep_turns=max(tail_turns, 1),
        tail_turns=tail_turns,
        tail_tokens=preserve_recent_tokens,
        limit=max_output_tokens,
        instructions=focused(INSTRUCTIONS, focus),
        prune=prune,
        prune_protect=prune_protect,
        prune_minimum=prune_minimum,
    )
    return Rules(
        policy=policy,
        trigger=trigger | opens_turn if prune else trigger,
        pruning=Outputs(max_lines=max_lines, max_chars=0, max_bytes=max_bytes, mode="head"),
        window=window,
        reserve=held,
        estimator="chars/4",
        summariser=summariser,
        auto=auto,
        name="opencode",
        parameters=parameters,
        config=ConfigText("opencode"),
    )
