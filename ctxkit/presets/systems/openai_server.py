"""OpenAI's compaction (Responses API): an encrypted item replaces everything before it at a
threshold, or everything but the user's messages on demand (`/responses/compact`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.compaction_without_summary import make_opaque_item, replace_with_opaque_item
from ctxkit.policies.guards import keep_if_smaller
from ctxkit.policies.triggers import Above, Share
from ctxkit.policies.validated_settings_and_scheduled_prunings import DataclassPolicy
from ctxkit.presets.registry_and_setting_checks import DocumentationDifference, make_checked_preset
from ctxkit.presets.shared_summaries_and_clearing import find_end_of_removable, make_removable_mask

if TYPE_CHECKING:
    from ctxkit.policies.history.history import History
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Positive
    from ctxkit.tokens import ContextBudget

DIFFERENCES = (
    DocumentationDifference(
        "what the item holds",
        "prior state and reasoning, opaque",
        "encrypted: nobody can see it",
        "a message of a known size without text",
    ),
    DocumentationDifference(
        "the item's size", "fewer tokens", "not documented", "`item_tokens`, an assumption"
    ),
    DocumentationDifference(
        "when",
        "while a reply is streamed",
        "within the call that crosses the threshold",
        "before the next call",
    ),
    DocumentationDifference(
        "compaction on demand",
        "`POST /responses/compact` returns the user's messages and one item behind them",
        "no setting says when: the caller's choice (the Agents SDK asks after a turn with 10 items"
        " or more that are no user's)",
        "`on_demand`, at `compact_threshold`",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ServerCompaction(DataclassPolicy):
    """Put one opaque item in place of everything."""

    item_tokens: Positive = 1500
    """Size of the item, in tokens."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the item, with what must stay."""
        n = find_end_of_removable(history)
        if not make_removable_mask(history, 0, n).any():
            return history
        return replace_with_opaque_item(history, n, self.item_tokens)


@dataclass(frozen=True, kw_only=True, repr=False)
class StandaloneCompaction(ServerCompaction):
    """Keep the user's messages; one opaque item behind them replaces everything else."""

    def __call__(self, history: History, _budget: ContextBudget) -> History:
        """Return the user's messages and the item, with what must stay."""
        n = find_end_of_removable(history)
        requests = history.role("user")
        if not (make_removable_mask(history, 0, n) & ~requests[:n]).any():
            return history
        rest = requests | history.stays | (np.arange(len(history)) >= n)
        remaining, tail = history.keep(rest).messages, len(history) - n
        head = len(remaining) - tail
        new = history.become(
            [*remaining[:head], make_opaque_item(self.item_tokens), *remaining[head:]],
            "the provider compacts all but the user's messages",
            method="native",
        )
        return keep_if_smaller(history, new)


@make_checked_preset
def openai_server(
    *,
    context_window: int | None = None,
    compact_threshold: Positive | None = None,
    item_tokens: int = 1500,
    on_demand: bool = False,
) -> Rules:
    """Return the rules of `context_management` with a `compact_threshold`, or of the standalone
    endpoint `/responses/compact`.

    Source: developers.openai.com, "Compaction" (the threshold is compared with the rendered tokens;
    what came before the newest item may be left out; no default threshold: 0.7 of the window is
    Fased's); vercel.com, "OpenAI Responses Compaction with AI Gateway", 2026-09-08 (on demand the
    caller chooses when, and gets back the user's messages and one item).

    Args:
        context_window: the model's context window in tokens; None: from the price table, else
            200,000.
        compact_threshold: tokens of the prompt above which the server compacts, or above which
            the caller asks for it on demand; None: 0.7 of the window.
        item_tokens: size of the item, in tokens: an assumption, since no log shows it.
        on_demand: compacted by a request of its own, which keeps the user's messages.

    Returns:
        Rules that put one opaque item in place of all before it; its size is an assumption, for
        nobody can read it.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.openai_server(context_window=128_000)
        >>> rules.parameters["context_window"]
        128000
    """
    trigger: Any = Share(0.7) if compact_threshold is None else Above(compact_threshold)
    make_policy = StandaloneCompaction if on_demand else ServerCompaction
    return Rules(
        policy=make_policy(item_tokens=item_tokens),
        trigger=trigger,
        window=context_window,
    )
