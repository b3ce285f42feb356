"""How large each call's prompt was: as recorded, or by the plain estimate where the log has no usage at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.frames.lengths import tokens
from ctxkit.messages import Message
from ctxkit.session import apply_edit

if TYPE_CHECKING:
    from ctxkit.messages import Source
    from ctxkit.session import Session


def prompts(session: Session) -> tuple[list[int | None], Source | None]:
    """Return the prompt size of each call and where the sizes come from; None throughout where the log cannot tell.

    Calls that failed before they were billed are missing. Sums over whole turns are no sizes of a prompt.
    """
    recorded = [
        None if c.message.usage is None or c.message.kind == "turn" else c.message.usage.prompt_tokens
        for c in session.calls
    ]
    if any(recorded):
        modelled = any(c.message.details.get("usage_source") == "derived" for c in session.calls)
        return recorded, "derived" if modelled else "recorded"
    if session.has_sizes:
        return list(estimated(session)), "estimated"
    return [None] * len(recorded), None


def estimated(session: Session) -> list[int]:
    """Return the plain estimate of what each call was shown: edits applied, without what no log shows."""
    out: list[int] = []
    shown: list[Message] = []
    total = 0
    for entry in session.path:
        if isinstance(entry, Message):
            if entry.role == "assistant":
                out.append(total)
            if entry.visible:
                shown.append(entry)
                total += tokens(entry)
        else:
            shown = apply_edit(shown, entry)
            total = sum(map(tokens, shown))
    return out
