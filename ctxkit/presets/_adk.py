"""Google's Agent Development Kit: summaries of events, by tokens or every so many invocations; off unless set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.policies.rules import Rules
from ctxkit.policies.summary import Summary
from ctxkit.policies.triggers import Above, Both, Turns
from ctxkit.presets.differences import Difference

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.tokens import Room

INSTRUCTIONS = "Summarise the conversation: what was asked, what was found and decided, what is open."

DIFFERENCES = (
    Difference(
        "by invocations",
        "a summary of the new invocations, beginning with `overlap_size` earlier ones",
        "summaries stand side by side, and overlap",
        "one rolling summary of all but the last `overlap_size` turns",
        "as the default",
    ),
    Difference(
        "when",
        "after an invocation",
        "the events of the turn that just ended are counted",
        "before the first call of the next turn",
        "as the default",
    ),
    Difference(
        "a summary that does not pay",
        "not said",
        "not asked for where the range is no larger than the last summary",
        "made, and refused where the prompt would grow",
        "as the default",
    ),
    Difference(
        "what counts as an event",
        "events",
        "the results of one reply are one event",
        "each result is one",
        "as the default",
    ),
)


@dataclass(frozen=True, kw_only=True, repr=False)
class AdkSummary(Summary):
    """Keep the last events, or the last turns."""

    apart: bool = False
    events: int | None = None
    """Messages at the end that are kept where it is by tokens."""
    overlap: int = 0
    """Turns at the end that are kept where it is by invocations."""
    threshold: int | None = None
    """Tokens from which it is by tokens."""

    def cut(self, history: History, _room: Room) -> int:
        """Return the first position that is kept."""
        n = len(history)
        if self.events is not None and (self.threshold is None or history.tokens >= self.threshold):
            return history.safe_before(max(n - self.events, 0)) if self.events else n
        turns = self.overlap + 1  # the turn that now begins is no part of it
        return history.safe_before(max(history.nth_last("user", turns), 0))


def opens_turn(history: History, _room: Room) -> bool:
    """Say whether a user message waits for its answer: the moment after an invocation."""
    return len(history) > 0 and history[len(history) - 1].role == "user"


def adk(
    *,
    context_window: int | None = None,
    compaction_interval: int | None = None,
    overlap_size: int | None = None,
    token_threshold: int | None = None,
    event_retention_size: int | None = None,
    focus: str = "",
    summariser: Any = None,
) -> Rules:
    """Return the rules of ADK's `EventsCompactionConfig`, 2.13.0; nothing is compacted unless one pair is set.

    Read in `google/adk/apps/_configs.py` and `compaction.py` of google-adk 2.13.0. Its documentation's example is an
    interval of 3 with an overlap of 1.

    Args:
        context_window: tokens that the model takes; None: the model's limit from the price table, else 200,000.
        compaction_interval: new user turns after which a compaction is due; with `overlap_size`.
        overlap_size: turns before the new ones that are kept as well.
        token_threshold: tokens of the prompt at which one is due; with `event_retention_size`.
        event_retention_size: events at the end that are kept as they are.
        focus: what a summary shall look at besides.
        summariser: who writes summaries (a name or ``(passage) -> text``); None: the extractive one, without a model.
    """
    parameters = dict(locals())
    if (token_threshold is None) != (event_retention_size is None):
        raise BadArguments("token_threshold and event_retention_size must be set together.")
    if (compaction_interval is None) != (overlap_size is None):
        raise BadArguments("compaction_interval and overlap_size must be set together.")
    for name, least in (
        ("token_threshold", 1),
        ("event_retention_size", 0),
        ("compaction_interval", 1),
        ("overlap_size", 0),
    ):
        if parameters[name] is not None and parameters[name] < least:
            raise BadArguments(f"{name} must be {least} or more, not {parameters[name]}.")
    ways: list[Any] = []
    if token_threshold is not None:
        ways.append(Above(token_threshold, or_equal=True))
    if compaction_interval is not None:
        ways.append(Turns(compaction_interval))
    if not ways:
        return Rules(window=context_window, name="adk", parameters=parameters)
    policy = AdkSummary(
        keep_messages=1,
        events=event_retention_size,
        overlap=overlap_size or 0,
        threshold=token_threshold if compaction_interval is not None else None,
        instructions="\n\n".join(t for t in (INSTRUCTIONS, focus) if t),
    )
    due = ways[0] if len(ways) == 1 else ways[0] | ways[1]
    return Rules(
        policy=policy,
        trigger=Both((due, opens_turn)),
        window=context_window,
        summariser=summariser,
        name="adk",
        parameters=parameters,
    )
