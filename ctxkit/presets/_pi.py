"""Pi (badlogic/pi-mono 0.58.3): one structured summary, about 20,000 tokens kept, turns may be split."""

from __future__ import annotations

from typing import Any

from ctxkit.policies.prompts import focused
from ctxkit.policies.rules import Rules
from ctxkit.policies.structured import INSTRUCTIONS, PiSummary
from ctxkit.policies.triggers import Both, Overflow, Share
from ctxkit.presets.checks import room_to_cut, typed
from ctxkit.presets.configs.texts import ConfigText
from ctxkit.presets.differences import Difference
from ctxkit.presets.moments import opens_turn

DIFFERENCES = (
    Difference(
        "second compaction",
        "all messages before the cut are in the summary",
        "messages that the compaction before had kept are neither summarised nor kept",
        "they are summarised",
        "they are lost, as in 0.58.3 (mended later)",
    ),
    Difference(
        "when",
        "above the window less the reserve",
        "looked at after a run of the agent and before a prompt, not between the calls of a run",
        "before each call, and after an overflow",
        "before the first call of a turn, and after an overflow",
    ),
    Difference(
        "large last tool result",
        "the last 20,000 tokens are kept, the rest is summarised",
        "where no cut lies after the point reached, nothing is cut",
        "the cut is made before it",
        "nothing is cut",
    ),
    Difference(
        "a summary larger than what it replaces",
        "not said",
        "is taken",
        "is refused",
        "is taken",
    ),
    Difference(
        "model or thinking changes before a user message",
        "a cut normally falls on the beginning of a turn",
        "the cut moves onto the change, and the whole turn counts as split",
        "such entries are not part of a session here, so the cut stays on the user message",
        "as the default",
    ),
    Difference(
        "summaries of branches",
        "not said",
        "weigh nothing while the cut is looked for; one right before it is kept",
        "are messages like others",
        "as the default",
    ),
    Difference(
        "chars/4",
        "called a conservative estimate",
        "was 30 % too low on a real session",
        "the cut is found by Pi's estimate, the trigger by the recorded size",
        "as the default",
    ),
)


@typed
def pi(
    *,
    context_window: int | None = None,
    enabled: bool = True,
    reserve_tokens: int = 16_384,
    keep_recent_tokens: int = 20_000,
    custom_instructions: str = "",
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return Pi's rules: compact where the prompt is above the window less the reserve.

    Args:
        context_window: tokens that the model takes; None: the model's limit from the price table, else 200,000.
        enabled: whether anything is compacted without being asked.
        reserve_tokens: tokens held free for the reply and the summary; a summary has at most 0.8 of them.
        keep_recent_tokens: tokens, by Pi's estimate, that are kept as they are.
        custom_instructions: what a summary shall look at besides.
        summariser: who writes summaries (a name or ``(passage) -> text``); None: the extractive one, without a model.
        quirks: do what the program 0.58.3 does where it loses messages or cuts nothing.
    """
    parameters = dict(locals())
    room_to_cut(context_window, reserve_tokens, keep_recent_tokens)
    policy = PiSummary(
        keep_tokens=keep_recent_tokens,
        limit=max(int(0.8 * reserve_tokens), 1),
        split_limit=max(int(0.5 * reserve_tokens), 1),
        instructions=focused(INSTRUCTIONS, custom_instructions),
        must_shrink=not quirks,
        quirks=quirks,
    )
    full: Any = Share(1.0, of="budget")
    return Rules(
        policy=policy,
        trigger=(Both((full, opens_turn)) if quirks else full) | Overflow(recorded=True),
        window=context_window,
        reserve=reserve_tokens,
        estimator="pi",
        summariser=summariser,
        auto=enabled,
        name="pi",
        parameters=parameters,
        config=ConfigText("pi"),
    )
