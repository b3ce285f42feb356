"""How large each call's prompt was: as recorded, or by plain estimate if the log has no usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.messages import Message
from ctxkit.session import apply_edit
from ctxkit.tokens.lengths import tokens

_TELLS = 1.3
"""A factor between what was sent and an estimate that counting alone can explain."""
_MASKED = 12
"""Tokens of the line that a history processor puts in the place of a result."""

if TYPE_CHECKING:
    from ctxkit.messages import Source
    from ctxkit.session import Session


def prompts(session: Session) -> tuple[list[int | None], Source | None]:
    """Return the prompt size of each call and where the sizes come from; None throughout where the
    log cannot tell.

    Calls that failed before they were billed are missing. Sums over whole turns are no sizes of a
    prompt.
    """
    recorded = [
        None
        if c.message.usage is None or c.message.kind == "turn"
        else c.message.usage.prompt_tokens
        for c in session.calls
    ]
    if any(recorded):
        modelled = any(c.message.details.get("usage_source") == "derived" for c in session.calls)
        return recorded, "derived" if modelled else "recorded"
    if session.behind is not None:
        return session.behind.prompt_sizes(len(recorded)), "estimated"
    if session.has_sizes:
        return _scaled(estimated(session), session.details.get("input_tokens")), "estimated"
    return [None] * len(recorded), None


def estimated(session: Session) -> list[int]:
    """Return the plain estimate of what each call was shown: edits applied, without what no log
    shows.

    Where a history processor is known to have masked older results (see `readers.processors`), they
    are masked.
    """
    out: list[int] = []
    shown: list[Message] = []
    total, gone, kept = 0, 0, _kept(session)
    results: list[int] = []
    for entry in session.path:
        if isinstance(entry, Message):
            if entry.role == "assistant":
                out.append(total - gone)
            if entry.visible:
                size = tokens(entry)
                shown.append(entry)
                total += size
                if kept and entry.role == "tool":
                    results.append(size)
                    gone += max(results[-kept - 1] - _MASKED, 0) if len(results) > kept else 0
        else:
            shown = apply_edit(shown, entry)
            total = sum(map(tokens, shown))
    return out


def _scaled(sizes: list[int], sent: object) -> list[int | None]:
    """Return sizes that sum to what the run says it sent, if counting alone explains the gap."""
    whole = sum(sizes)
    if not isinstance(sent, int) or not whole or not 1 / _TELLS < sent / whole < _TELLS:
        return list(sizes)
    return [round(n * sent / whole) for n in sizes]


def _kept(session: Session) -> int:
    """Results that a history processor kept whole at each call; 0: all."""
    told = session.details.get("history_processor", {})
    return int(told.get("n", 0)) if session.format != "replay" else 0
