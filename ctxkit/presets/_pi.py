"""Pi (badlogic/pi-mono 0.58.3): one structured summary, about 20,000 tokens kept, turns may be split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ctxkit.history import USER
from ctxkit.policies.cuts import Cut
from ctxkit.policies.prompts import PI_SECTIONS, PI_TURN_SECTIONS, focused
from ctxkit.policies.rules import Rules
from ctxkit.policies.summarisers import Passage
from ctxkit.policies.summary import Summary, boundary, turn_start
from ctxkit.policies.triggers import Share
from ctxkit.presets.differences import Difference

if TYPE_CHECKING:
    from ctxkit.history import History

INSTRUCTIONS = (
    "Summarise this conversation so that another model can go on with the work. Update the earlier summary where there "
    "is one: keep what still holds. Keep exact file paths, function names and error messages."
)
TURN_INSTRUCTIONS = (
    "This is the beginning of a turn whose end is kept. Say what the end needs: " + ", ".join(PI_TURN_SECTIONS) + "."
)

DIFFERENCES = (
    Difference(
        "second compaction",
        "all messages before the cut are in the summary",
        "messages that the compaction before had kept are neither summarised nor kept",
        "they are summarised",
        "they are lost, as in 0.58.3 (mended later)",
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
        "chars/4",
        "called a conservative estimate",
        "was 30 % too low on a real session",
        "the cut is found by Pi's estimate, the trigger by the recorded size",
        "as the default",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class PiSummary(Summary):
    """Pi's compaction: the cut by its own estimate, two summaries where a turn is split, lists of files."""

    estimated: bool = True
    file_lists: bool = True
    sections: tuple[str, ...] = PI_SECTIONS
    instructions: str = INSTRUCTIONS
    quirks: bool = False
    """Lose what Pi lost at the second compaction, and cut nothing where Pi cut nothing."""

    def at(self, history: History, position: int) -> Cut:
        """Return Pi's cut at or after a position."""
        if not self.quirks:
            return super().at(history, position)
        start = boundary(history)
        first = history.safe(max(position, start)) if len(history) else 0
        if first <= start:
            return Cut(0)
        return Cut(first) if history.item(first).role(history.log) == USER else Cut(first, turn_start(history, first))

    def passages(self, history: History, cut: Cut) -> list[Passage]:
        """Return the old turns and the head of a split turn; with quirks only what came after the last compaction."""
        start = boundary(history) if self.quirks else 0
        told = self.told()
        if not start:
            found = super().passages(history, cut)
        elif cut.split and cut.turn > start:
            found = [
                Passage(history, cut.turn, start, self.limit, told),
                Passage(history, cut.first, cut.turn, self.split_limit, told),
            ]
        else:
            found = [Passage(history, cut.first, start, self.limit, told)]
        if len(found) > 1:
            found[1] = replace(found[1], instructions=TURN_INSTRUCTIONS)
        return found


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
    policy = PiSummary(
        keep_tokens=keep_recent_tokens,
        limit=max(int(0.8 * reserve_tokens), 1),
        split_limit=max(int(0.5 * reserve_tokens), 1),
        instructions=focused(INSTRUCTIONS, custom_instructions),
        must_shrink=not quirks,
        quirks=quirks,
    )
    return Rules(
        policy=policy,
        trigger=Share(1.0, of="budget"),
        window=context_window,
        reserve=reserve_tokens,
        estimator="pi",
        summariser=summariser,
        auto=enabled,
        name="pi",
        parameters=parameters,
    )
