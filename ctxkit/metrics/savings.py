"""What compactions saved in tokens, and what the same work would have sent if nothing had ever been
taken away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments
from ctxkit.frames.occupancy import prompts as occupancy
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session import Session

__all__ = ["amplification", "append_only", "headroom"]

UNTOLD = 300
"""Tokens that a call adds beside the reply before it, where its prompt fell (Boise's rule for a
drop).
"""


def headroom(trigger: float, after: float) -> float:
    """Return the working room of a cycle: the share of the trigger that a compaction leaves free,
    ``(T - A) / T``.

    Raises:
        BadArguments: the trigger is not above 0.
    """
    if trigger <= 0:
        raise BadArguments(f"A trigger is a number of tokens above 0, not {trigger!r}.")
    return (trigger - after) / trigger


def append_only(prompts: Sequence[int], outputs: Sequence[int]) -> list[int]:
    """Return the prompts that the same calls would have had if nothing had been taken away.

    ``L'[i] = L'[i-1] + g``: the growth of the prompt where it grew, else the reply before it and
    300 tokens.

    Args:
        prompts: tokens of each call's prompt.
        outputs: tokens of each call's reply.

    Raises:
        BadArguments: there is not one reply a prompt.
    """
    if len(prompts) != len(outputs):
        raise BadArguments(
            f"Give one reply for each prompt: {len(prompts)} and {len(outputs)} do not match."
        )
    out = list(prompts[:1])
    for i in range(1, len(prompts)):
        grown = prompts[i] - prompts[i - 1]
        out.append(out[-1] + (grown if grown > 0 else outputs[i - 1] + UNTOLD))
    return out


@of_session
def amplification(session: Session) -> float | None:
    """Return how many times the tokens its append-only twin would have sent; None without recorded
    prompt sizes.

    Over the calls that have a usage. For 37,732 recorded rounds of Claude Code inference-sim found
    4.12.
    """
    sizes, source = occupancy(session)
    replies = [c.message.usage for c in session.calls]
    told = [
        (n, (u.output_tokens or 0) if u else 0) for n, u in zip(sizes, replies, strict=True) if n
    ]
    if not told or source == "estimated":
        return None
    prompts = [n for n, _ in told]
    return sum(append_only(prompts, [n for _, n in told])) / sum(prompts)
