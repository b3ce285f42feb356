"""Boise State's agentcore stack: a ceiling, a floor, and a rewrite that waits until the cache is
cold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import BaseGuard, UntilCold
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Above, Overflow
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.protocols import PastCompactions, PromptForecast
    from ctxkit.policies.validated_settings_and_scheduled_prunings import PositiveShare
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise the conversation within the budget: goals, decisions, facts, names and numbers, what"
    " is open. Keep pinned facts word for word."
)

DIFFERENCES = (
    DocumentationDifference(
        "when the cut is made",
        "at the end of the turn that crosses the ceiling, then parked",
        "applied later as it was made",
        "made when it is applied, so it reaches further",
    ),
    DocumentationDifference(
        "another model or agent",
        "applies a parked cut: the cached prefix is lost anyway",
        "as documented",
        "only the pause and the hard ceiling do",
    ),
    DocumentationDifference(
        "the summary's budget", "bounded", "8,000 tokens in a later change", "8,000 tokens"
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class SummaryDownToFloor(Summary):
    """Keep as much as fits the floor, from a user message on; the last turns always."""

    apart: bool = False
    floor: int = 25_000
    """Tokens that may remain."""
    protected_turns: int = 3
    """Turns at the end that always stay."""

    def find_cut(self, history: History, _budget: ContextBudget) -> int:
        """Return the oldest user message from which all fits, at latest the last turns' first."""
        users = np.flatnonzero(history.role("user")).tolist()
        if len(users) <= self.protected_turns:
            return 0
        latest = users[-self.protected_turns]
        whole = history.before(len(history))
        # the oldest request from which the rest fits the floor
        for p in users:
            if p >= latest:
                break
            if p and whole - history.before(p) <= self.floor and history.is_safe(p):
                return p
        return history.safe_before(latest)


# A hysteresis over the size of the prompt. A cut disarms the trigger; it is armed again only if the
# cut brought the prompt to the ceiling or below. Until then a cut is made only at the hard ceiling,
# which is above. Without this a cut that cannot reach the ceiling would be repeated before every
# call.
@dataclass(frozen=True)
class RearmBelowCeiling(BaseGuard):
    """After a cut none until the prompt was at or below the ceiling again, or reaches the hard
    ceiling.
    """

    ceiling: float
    """Tokens at which the trigger is armed again."""
    hard: float
    """Tokens from which a cut is forced."""

    def first(self, past: PastCompactions, forecast: PromptForecast, start: int, stop: int) -> int:
        """Return the first call at which it is armed, or forced."""
        if not past.compactions or past.compactions[-1].after <= self.ceiling:
            return start
        # `above` excludes its limit, and a prompt at the hard ceiling is cut: hence one less
        return forecast.above(self.hard - 1, start, stop)


@make_checked_preset
def boise(
    *,
    context_window: int | None = None,
    ceiling_ratio: PositiveShare = 0.5,
    ceiling_cap_tokens: int = 100_000,
    floor_ratio: PositiveShare = 0.25,
    hard_ceiling_ratio: PositiveShare = 0.7,
    hard_mult: float = 1.5,
    protected_turns: int = 3,
    summary_budget_tokens: int = 8000,
    deferred_apply: bool = True,
    cache_ttl_seconds: float = 300.0,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of Boise State's model-relative thresholds.

    Source: `docs/specs/compaction-model-relative-thresholds.md` of their agentcore-public-stack at
    1fb4a97 (the three numbers of a window, the floor-seeking cut, the trigger that a cut disarms,
    the rewrite that waits for a cold cache).

    Args:
        context_window: tokens that the model takes; None: 200,000, for these numbers are made from
            the window.
        ceiling_ratio: share of the window at which a cut is due.
        ceiling_cap_tokens: tokens that this is at most.
        floor_ratio: share of the ceiling that may remain.
        hard_ceiling_ratio: share of the window at which a cut no longer waits.
        hard_mult: multiple of the ceiling that this is at most.
        protected_turns: turns at the end that always stay.
        summary_budget_tokens: tokens of a summary.
        deferred_apply: wait with a cut until the provider's cache is cold.
        cache_ttl_seconds: seconds that it lives.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that cut down to the floor once the prompt is above the ceiling; the cut waits for a
        cold cache and is due again only after the prompt was below the ceiling.

    Raises:
        BadArguments: the hard ceiling is below the ceiling, or protected_turns is below 1.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.boise(ceiling_ratio=0.4)
        >>> rules.parameters["ceiling_ratio"]
        0.4
    """
    ceiling, floor, hard = get_window_thresholds(
        context_window or 200_000,
        ceiling_ratio=ceiling_ratio,
        cap=ceiling_cap_tokens,
        floor_ratio=floor_ratio,
        hard_ratio=hard_ceiling_ratio,
        mult=hard_mult,
    )
    if hard < ceiling or protected_turns < 1:
        raise BadArguments(
            f"The hard ceiling ({hard:,.0f}) must not lie below the ceiling ({ceiling:,.0f}), and a"
            " turn must stay."
        )
    guards: list[Any] = [RearmBelowCeiling(ceiling, hard)]
    if deferred_apply:
        guards.append(UntilCold(hard_limit=hard - 1, life=cache_ttl_seconds))
    policy = SummaryDownToFloor(
        keep_turns=protected_turns,
        floor=int(floor),
        protected_turns=protected_turns,
        limit=summary_budget_tokens,
        instructions=add_focus(INSTRUCTIONS, focus),
    )
    return Rules(
        policy=policy,
        trigger=Above(ceiling) | Overflow(recorded=True),
        guards=tuple(guards),
        window=context_window,
        cache_life=cache_ttl_seconds,
        summariser=summariser,
    )


def get_window_thresholds(
    window: int,
    *,
    ceiling_ratio: float = 0.5,
    cap: int = 100_000,
    floor_ratio: float = 0.25,
    hard_ratio: float = 0.7,
    mult: float = 1.5,
) -> tuple[float, float, float]:
    """Return the thresholds of a context window.

    Args:
        window: context window in tokens.
        ceiling_ratio: ceiling as a share of the window.
        cap: maximum of the ceiling, in tokens.
        floor_ratio: floor as a share of the ceiling.
        hard_ratio: hard ceiling as a share of the window.
        mult: maximum of the hard ceiling, as a multiple of the ceiling.

    Returns:
        Ceiling, floor and hard ceiling, in tokens.
    """
    ceiling = min(window * ceiling_ratio, cap)
    return ceiling, ceiling * floor_ratio, min(window * hard_ratio, ceiling * mult)
