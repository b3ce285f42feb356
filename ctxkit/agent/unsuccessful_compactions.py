"""Compactions of a live session that changed nothing: stored in the log, and asked for less often.

Such an attempt is an event message: it is sent to no model, and the compaction frame has a row for
it. Its outcome is `failed` (the summariser raised), `refused` (the result was not smaller, or a
guard rejected it) or `skipped` (too little history, or a guard held it back).
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.session.messages import COMPACTION_ATTEMPT_KIND, Edit, Message, Text, Usage
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from ctxkit.agent.models.model import Model
    from ctxkit.session.session import Session


MAX_BACKOFF_CALLS = 64
"""Most calls without a new attempt after summaries that were refused or failed."""
_RETRY_KEY = "retry_after_calls"


class IneffectiveCompaction(NamedTuple):
    """A compaction that changed nothing."""

    outcome: str
    """`failed`, `refused` or `skipped`."""
    reason: str
    trigger: str | None
    tokens: int
    """Size of the prompt, in tokens."""
    messages: int
    """Messages of the prompt."""


class SummaryBackoff:
    """Counts summaries that were refused or failed, and the calls to wait before the next one.

    After the n-th in a row 2**n calls ask for none, at most `MAX_BACKOFF_CALLS`. The state is
    restored from the log, as far as the same rules and the same model made the attempts.

    Args:
        session: the session so far.
        settings: what an attempt depends on (`label` of the rules, name of the summary model).
        trigger: the trigger whose attempts count; None: all attempts that record one.
    """

    def __init__(
        self, session: Session, settings: tuple[str, str], *, trigger: str | None = None
    ) -> None:
        self.settings, self._trigger = settings, trigger
        self._in_row = self._calls_left = 0
        since = list(takewhile(lambda e: not isinstance(e, Edit), reversed(session.path)))
        for entry in reversed(since):
            if isinstance(entry, Message) and self._counts(entry):
                self._in_row += 1
                self._calls_left = int(entry.details[_RETRY_KEY])
            elif isinstance(entry, Message) and entry.role == "assistant":
                self.skip_call()

    def _counts(self, entry: Message) -> bool:
        details = entry.details
        return (
            entry.kind == COMPACTION_ATTEMPT_KIND
            and bool(details.get(_RETRY_KEY))
            and self.settings == (details.get("rules"), details.get("writer"))
            and (details.get("trigger") == self._trigger) == (self._trigger is not None)
        )

    def skip_call(self) -> bool:
        """Return whether the coming call asks for no summary; it counts as one of those to wait."""
        is_waiting = self._calls_left > 0
        self._calls_left -= is_waiting
        return is_waiting

    def miss(self) -> int:
        """Count a summary that came to nothing; return the calls to wait."""
        self._in_row += 1
        self._calls_left = min(2**self._in_row, MAX_BACKOFF_CALLS)
        return self._calls_left

    def reset(self) -> None:
        """Start again after a summary that was used."""
        self._in_row = self._calls_left = 0


def make_summary_bill_fields(model: Model | None, usage: Usage | None) -> dict[str, Any]:
    """Return the fields of an event for what a summary model was asked: its name, tokens, dollars.

    Tokens are None where the model reported none, dollars where no price is known. Without a model
    there are no fields.

    Args:
        model: that was asked; None: none was.
        usage: that it reported; None: it reported none.

    Returns:
        `summary_model`, `summary_tokens` and `cost_usd`; a scripted or local model costs 0.
    """
    if model is None:
        return {}
    tokens = usd = None
    if usage is not None:
        tokens = (usage.prompt_tokens or 0) + (usage.output_tokens or 0)
        table = price(model.name)
        usd = usage.cost_usd if usage.cost_usd is not None else table and table.cost_usd(usage)
        usd = 0.0 if model.notice else usd
    return {"summary_model": model.name, "summary_tokens": tokens, "cost_usd": usd}


def make_ineffective_compaction_message(
    attempt: IneffectiveCompaction,
    *,
    settings: tuple[str, str],
    model: Model | None,
    usage: Usage | None,
    retry_after: int,
) -> Message:
    """Return the event message of an attempt.

    Args:
        attempt: the attempt.
        settings: label of the rules and name of the summary model; see `SummaryBackoff`.
        model: the model that was asked for a summary; None: none was.
        usage: what that model reported.
        retry_after: calls that ask for no summary after it.

    Returns:
        A message that is logged and never sent.
    """
    details: dict[str, Any] = {
        "outcome": attempt.outcome,
        "trigger": attempt.trigger,
        "tokens": attempt.tokens,
        "messages": attempt.messages,
        "rules": settings[0],
        "writer": settings[1],
    }
    return Message(
        role="system",
        kind=COMPACTION_ATTEMPT_KIND,
        visible=False,
        parts=(Text(attempt.reason),),
        model=None if model is None else model.name,
        usage=usage,
        details=details | ({_RETRY_KEY: retry_after} if retry_after else {}),
    )
