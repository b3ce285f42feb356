"""pulse-coder (hua-bang) at 527e790: a summary up to a target share, two fallbacks that keep the
last turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ctxkit.errors import BadArguments, ModelError
from ctxkit.messages import SAID_BY, Message, Text
from ctxkit.policies.guards import Attempts
from ctxkit.policies.prune import Prune
from ctxkit.policies.rules import Rules
from ctxkit.policies.summary import Summary
from ctxkit.policies.summary_places import anything
from ctxkit.policies.triggers import Above, CutShort
from ctxkit.presets.checks import typed
from ctxkit.presets.configs.config_texts import ConfigText
from ctxkit.presets.differences import Difference
from ctxkit.texts.summary_passages import PULSE_SECTIONS

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.tokens import Room

PREFIX = "[COMPACTED_CONTEXT]\n"
PRUNE = Prune(tool_calls="all", reasoning="all")
"""What is done to all messages before the last turns are taken, where no summary came about."""
WINDOW = 64_000
"""Tokens, whatever the model (`CONTEXT_WINDOW_TOKENS`); the system prompt is never weighed."""

DIFFERENCES = (
    Difference(
        "summary too large",
        "fall back to the last turns",
        "the summary that was paid for is thrown away, and the result may still be above the"
        " target",
        "as the document says",
    ),
    Difference(
        "who writes the new messages back",
        "the caller must commit them",
        "where it does not, both attempts are spent on the same summary and nothing changes",
        "they are committed",
    ),
    Difference(
        "system messages before the first kept user message",
        "not said",
        "dropped (the system prompt is passed apart)",
        "they stay",
    ),
    Difference(
        "a result that is not smaller",
        "not said",
        "is taken (refused from a later version on)",
        "is refused",
        "is taken",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PulseSummary(Summary):
    """Summarise all but the last turns, in the assistant's words; keep only those where no summary
    comes about or the result is too large.
    """

    on_failure: ClassVar[str] = (
        "the last turns are kept alone, their thinking and tool calls pruned"
    )
    target: int = 32_000
    """Tokens, by its own estimate, that the result may have."""
    prefix: str = PREFIX
    sections: tuple[str, ...] = PULSE_SECTIONS
    apart: bool = False

    def __call__(self, history: History, room: Room) -> History:
        """Return summary and last turns, or the last turns alone."""
        start, first = self.front(history), self.cut(history, room)
        if first <= start or not anything(history, first, start):
            return history
        try:
            made = self.written(history, first)
            if isinstance(made, str):
                said = {SAID_BY: "assistant"}
                made = Message(role="summary", parts=(Text(made),), details=said)
            new = history.summarise(first, made, "summary", start=start, method="summary")
        except ModelError as error:
            return self.last(PRUNE(history, room), "fallback").instead_of(str(error))
        if above(new, self.target):
            return self.last(history, "summary-too-large")
        return history if self.must_shrink and new.tokens >= history.tokens else new

    def cut(self, history: History, _room: Room) -> int:
        """Return the `keep_turns`-th user message from the end; 0 where there are not more."""
        return self.begun(history) if history.count("user") > (self.keep_turns or 1) else 0

    def last(self, history: History, why: str) -> History:
        """Return the last turns alone."""
        first, start = self.begun(history), self.front(history)
        return history.drop(first, why, start=start, method="fallback")

    def begun(self, history: History) -> int:
        """Return where the last turns begin."""
        return history.safe_before(max(history.nth_last("user", self.keep_turns or 1), 0))


def above(history: History, target: int) -> bool:
    """Say whether its estimate is above a target; worked out anew only where rounding decides."""
    over = history.estimated - target
    return over > 0 and (over > len(history) or estimate(history) > target)


def estimate(history: History) -> int:
    """Return pulse-coder's estimate of what is shown, rounded once."""
    counter = history.log.estimator
    return counter.total(history.messages) if hasattr(counter, "total") else history.estimated


@typed
def pulse_coder(
    *,
    context_window_tokens: int = WINDOW,
    compact_trigger: int | None = None,
    compact_target: int | None = None,
    keep_last_turns: int = 6,
    compact_summary_max_tokens: int = 1200,
    max_compaction_attempts: int = 2,
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return pulse-coder's rules: compact from 75 % of the window on, to 50 % at most.

    Args:
        context_window_tokens: tokens that pulse-coder believes the model takes, whatever model it
            is; what it assumes by itself is no bound: a larger prompt is sent all the same.
        compact_trigger: tokens, by its own estimate, from which a compaction is due; None: 0.75 of
            the window.
        compact_target: tokens that the result may have; None: 0.5 of the window.
        keep_last_turns: user messages from the end that are kept with what follows them (later
            versions: 4).
        compact_summary_max_tokens: tokens that a summary may have.
        max_compaction_attempts: compactions in one turn.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: take a result that is not smaller.
    """
    trigger = int(0.75 * context_window_tokens) if compact_trigger is None else compact_trigger
    target = int(0.5 * context_window_tokens) if compact_target is None else compact_target
    if not trigger > target:
        raise BadArguments(
            f"compact_trigger ({trigger:,}) must lie above compact_target ({target:,}): "
            "otherwise each compaction is due again at once."
        )
    policy = PulseSummary(
        keep_turns=keep_last_turns,
        target=target,
        limit=compact_summary_max_tokens,
        must_shrink=not quirks,
    )
    return Rules(
        policy=policy,
        trigger=Above(trigger, or_equal=True, estimated=True) | CutShort(),
        guards=(Attempts(max_compaction_attempts, per="turn"),),
        window=context_window_tokens,
        assumed=context_window_tokens == WINDOW,
        estimator="pulse_coder",
        summariser=summariser,
        config=ConfigText("pulse_coder"),
    )
