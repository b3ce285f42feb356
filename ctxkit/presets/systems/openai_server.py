"""OpenAI's server-side compaction (Responses API): an encrypted item takes the place of all before
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.policies.base import ConfiguredPolicy
from ctxkit.policies.provider_native import replace_with_opaque_item
from ctxkit.policies.rules import Rules
from ctxkit.policies.triggers import Above, Share
from ctxkit.presets.common import end_of_removable, removable_mask
from ctxkit.presets.registry import Difference, typed

if TYPE_CHECKING:
    from ctxkit.policies.base import Positive
    from ctxkit.policies.history.history import History
    from ctxkit.tokens import ContextBudget

DIFFERENCES = (
    Difference(
        "what the item holds",
        "prior state and reasoning, opaque",
        "encrypted: nobody can see it",
        "a message of a known size without text",
    ),
    Difference("the item's size", "fewer tokens", "not documented", "`item_tokens`, an assumption"),
    Difference(
        "when",
        "while a reply is streamed",
        "within the call that crosses the threshold",
        "before the next call",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ServerItem(ConfiguredPolicy):
    """Put one opaque item in the place of everything."""

    item_tokens: Positive = 1500
    """Size of the item, in tokens."""

    def __call__(self, history: History, _room: ContextBudget) -> History:
        """Return the item, with what must stay."""
        n = end_of_removable(history)
        if not removable_mask(history, 0, n).any():
            return history
        return replace_with_opaque_item(history, n, self.item_tokens)


@typed
def openai_server(
    *,
    context_window: int | None = None,
    compact_threshold: Positive | None = None,
    item_tokens: int = 1500,
) -> Rules:
    """Return the rules of `context_management` with a `compact_threshold`.

    Read on developers.openai.com, "Compaction": the threshold is compared with the rendered tokens,
    and what came before the newest item may be left out. There is no default threshold; 0.7 of the
    window is what Fased sets.

    Args:
        context_window: tokens that the model takes; None: as the price table has it, else 200,000.
        compact_threshold: tokens of the prompt above which the server compacts; None: 0.7 of the
            window.
        item_tokens: size of the item, in tokens: an assumption, since no log shows it.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.openai_server(context_window=128_000)
        >>> rules.parameters["context_window"]
        128000
    """
    trigger: Any = Share(0.7) if compact_threshold is None else Above(compact_threshold)
    return Rules(
        policy=ServerItem(item_tokens=item_tokens),
        trigger=trigger,
        window=context_window,
    )
