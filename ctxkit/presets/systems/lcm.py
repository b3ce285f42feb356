"""LCM (lossless-claw): old chunks become summaries that stay; many summaries become one of the next
depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.history.growing_columns_and_sums import SUMMARY
from ctxkit.policies.offline_summarisers import SummariserInput
from ctxkit.policies.texts.summary_prompts_and_audits import add_focus
from ctxkit.policies.triggers import Overflow, Share
from ctxkit.policies.validated_settings_and_scheduled_prunings import check_at_least
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import BaseCustomCutSummary, make_removable_mask

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.tokens import ContextBudget

INSTRUCTIONS = (
    "Summarise this part of a longer conversation; earlier parts have summaries of their own."
)

DIFFERENCES = (
    DocumentationDifference(
        "what is lost",
        "nothing: the agent can search and open what a summary stands for",
        "by tools over its database",
        "the log keeps all; what the agent would open again no replay can know",
    ),
    DocumentationDifference(
        "when",
        "above a share of the window, and of raw messages in between",
        "deferred to a moment at which the cache is cold, by default",
        "above the share of the window, before the call",
    ),
    DocumentationDifference(
        "summaries that become one",
        "not said",
        "by depth, with counts of its own for each",
        "the oldest `fanout` at the front, of any depth",
    ),
)


# Hierarchical summarisation. Raw messages become leaves: the oldest chunk of about `chunk` tokens
# behind the summaries is replaced by one summary, again and again, until the prompt is within its
# share of the window. Then as many summaries as `fanout` are condensed into one, oldest first. The
# last `tail` messages always stay raw. Both loops end: the first where no chunk is left or a step
# frees nothing, the second as each step leaves fewer summaries.
@dataclass(frozen=True, kw_only=True, repr=False)
class LeafSummaries(BaseCustomCutSummary):
    """Summarise the oldest chunk behind the summaries until the prompt fits; condense summaries
    when there are many.
    """

    estimated: bool = True
    summaries_stay: bool = True
    share: float = 0.75
    """Share of the window that the prompt may have afterwards."""
    tail: Natural = 64
    """Messages at the end that stay raw."""
    chunk: Positive = 20_000
    """Tokens of one chunk."""
    fanout: int = 8
    """Summaries that become one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "fanout")

    def __call__(self, history: History, budget: ContextBudget) -> History:
        """Return the history with leaves in place of its oldest chunks."""
        new = history
        # oldest chunks become summaries until the prompt fits, then summaries are condensed
        while new.tokens > self.share * budget.limit:
            shorter = self.summarise_oldest_chunk(new)
            taken = keep_if_smaller(new, shorter) if self.must_shrink else shorter
            if taken is new:
                break
            new = taken
        while (fewer := self.condense_summaries(new)) is not new:
            new = fewer
        return new

    def summarise_oldest_chunk(self, history: History) -> History:
        """Return the history with its oldest chunk as a summary; itself where none is left."""
        start, last = self.front(history), max(len(history) - self.tail, 0)
        aim = history.before(start, estimated=True) + self.chunk
        stop = start
        while stop < last and history.before(stop, estimated=True) < aim:
            stop += 1
        # the chunk ends at a safe cut, if possible behind its aim, never inside the raw tail
        stop = history.safe(stop) or stop
        stop = stop if stop <= last else history.safe_before(last)
        if stop <= start or not make_removable_mask(history, start, stop).any():
            return history
        return self.summarise_range(history, start, stop, "the oldest chunk")

    def condense_summaries(self, history: History) -> History:
        """Return the history with its oldest summaries as one, where there are as many."""
        n, first = 0, 0
        for p in range(self.front(history)):
            if history.item(p).role(history.log) == SUMMARY:
                first = first if n else p
                n += 1
                if n == self.fanout:
                    return self.summarise_range(history, first, p + 1, "many summaries become one")
        return history

    def summarise_range(self, history: History, start: int, stop: int, why: str) -> History:
        """Return the history with a summary in place of some messages."""
        passage = SummariserInput(history, stop, start, self.limit, self.summary_instructions())
        summary = self.join_summaries([self.summarise_passage(self.maker, passage)], [passage])
        return history.summarise(stop, summary, why, start=start, method=self.name_method())


@make_checked_preset
def lcm(
    *,
    context_window: int | None = None,
    context_threshold: float = 0.75,
    fresh_tail_count: int = 64,
    leaf_chunk_tokens: int = 20_000,
    fanout: int = 8,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of lossless context management, as the plugin lossless-claw has it.

    Source: `README.md` of Martian-Engineering/lossless-claw at 01dbcbd (0.75 and 64, its example;
    20,000 tokens a leaf).

    Not confirmed: the number of summaries that become one.

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        context_threshold: share of the window above which it compacts, and below which it then
            stays.
        fresh_tail_count: messages at the end that stay raw.
        leaf_chunk_tokens: tokens of one chunk that becomes a summary.
        fanout: summaries that become one of the next depth.
        focus: a topic that the summary should also cover.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.

    Returns:
        Rules that summarise the oldest chunk at a time until the prompt fits; summaries stay and
        are condensed when there are many.

    Raises:
        BadArguments: context_threshold is not between 0 and 1.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.lcm(fanout=4)
        >>> rules.parameters["fanout"]
        4
    """
    if not 0 < context_threshold < 1:
        raise BadArguments("context_threshold lies between 0 and 1.")
    return Rules(
        policy=LeafSummaries(
            share=context_threshold,
            tail=fresh_tail_count,
            chunk=leaf_chunk_tokens,
            fanout=fanout,
            instructions=add_focus(INSTRUCTIONS, focus),
        ),
        trigger=Share(context_threshold) | Overflow(recorded=True),
        window=context_window,
        estimator="chars/4",
        summariser=summariser,
    )
