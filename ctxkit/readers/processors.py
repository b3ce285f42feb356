"""SWE-agent's history processors: whether one ran is told by the tokens that the run sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ctxkit import tokens

if TYPE_CHECKING:
    from ctxkit.session import Session

KEPT = 5
"""Observations that SWE-agent's own default kept whole; older ones became a line."""
MASKED = 12
"""Tokens of that line."""
_TELLS = 1.3
"""A factor between what was sent and an estimate that the counting alone does not explain."""


def with_processor(session: Session) -> Session:
    """Return a session with what its total of sent tokens tells: was all history sent each time?

    `details["history_processor"]` then names the preset that does the same (`swe_agent_mask`, with
    the observations it kept), or `none`; missing where the total fits both, or there is none.
    """
    sent = session.details.get("input_tokens")
    if not sent:
        return session
    whole, masked = _estimates(session)
    if whole < _TELLS * masked:
        return session
    ran = whole > _TELLS * sent and abs(masked - sent) < abs(whole - sent)
    if not ran and whole * _TELLS < sent:
        return session
    found = {"name": "swe_agent_mask", "n": KEPT} if ran else {"name": "none"}
    told = (
        f"The run says that it sent {sent:,} tokens; its whole history at each call would be about "
        f"{whole:,}, with all but the last {KEPT} observations masked about {masked:,}: "
    )
    told += (
        "such a history processor ran (swe_agent_mask, inferred)."
        if ran
        else "no history processor ran (inferred)."
    )
    details = {**session.details, "history_processor": found}
    return msgspec.structs.replace(session, details=details, notes=(*session.notes, told))


def _estimates(session: Session) -> tuple[int, int]:
    """Tokens of all prompts together as the history stands, and with old observations masked."""
    counter = tokens.named("chars/4")
    whole = masked = total = 0
    observed: list[int] = []
    gone = 0
    for m in session.messages:
        if m.role == "assistant":
            whole, masked = whole + total, masked + total - gone
        n = counter.message(m)
        total += n
        if m.role == "tool":
            observed.append(n)
            if len(observed) > KEPT:
                gone += max(observed[-KEPT - 1] - MASKED, 0)
    return whole, masked
