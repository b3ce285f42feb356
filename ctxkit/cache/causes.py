"""Why a call does not find in the cache what the call before put there: one testable rule a cause.

Each rule looks at what the log shows before the reply, never at what was read. A cache can also
lose a prefix because it was full, or because the call came to another machine: no log shows that
before the read is known, so neither is a cause here, and such misses count as unexplained.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.cache.cached_calls import ForeseenCall

Cause = Literal[
    "cold_start",
    "prefix_change",
    "compaction",
    "too_short",
    "ttl_expiry_prefix",
    "ttl_expiry",
    "effort_change",
    "resumed",
    "tools_loaded",
    "reasoning_dropped",
    "changed_earlier",
    "retry",
    "unexplained",
]
PAUSES: tuple[Cause, ...] = ("ttl_expiry", "ttl_expiry_prefix")
"""Causes that are a pause longer than the cache lives."""
_FALL = 1000
"""A prompt smaller by this many tokens than the one before has lost earlier messages."""
_BLOCKS = {"openai": 128, "deepseek": 64, "kimi": 256}
"""Tokens of a block: such providers cache whole blocks; Anthropic caches to the token."""
_REPLIES = frozenset({"deepseek"})
"""Providers that cache the reply with its prompt."""


class MissRule(NamedTuple):
    """One cause."""

    name: Cause
    words: str
    """What the log shows, for a person to read."""
    holds: Callable[[ForeseenCall], bool]


RULES = (
    MissRule("prefix_change", "the first call of another model", lambda a: a.switched),
    MissRule("cold_start", "the first call of an agent", lambda a: a.before is None),
    MissRule("compaction", "a compaction since the call before", lambda a: a.edited),
    MissRule(
        "too_short",
        "the prompt before was shorter than what the provider caches",
        lambda a: (a.before or 0) < a.least,
    ),
    MissRule(
        "ttl_expiry_prefix",
        "such a pause in Claude Code from 2.1 on: of the prompt, what all its sessions begin with "
        "can still be there",
        lambda a: a.expired and a.common,
    ),
    MissRule(
        "ttl_expiry",
        "a pause longer than the cache lives (five minutes, or an hour by the class of its writes)",
        lambda a: a.expired,
    ),
    MissRule(
        "effort_change",
        "the model was set to think more or less (Claude)",
        lambda a: a.other_effort and a.family == "anthropic",
    ),
    MissRule(
        "resumed",
        "the program was started anew, or given another model, tools or plugins",
        lambda a: a.restarted,
    ),
    MissRule(
        "tools_loaded",
        "the first search for further tools (Claude Code): what it finds is laid before the "
        "messages",
        lambda a: a.tools_loaded,
    ),
    MissRule(
        "reasoning_dropped",
        "a turn starts with a smaller prompt: old reasoning was taken out (OpenAI)",
        lambda a: a.family == "openai" and a.turn_starts and a.prompt < (a.before or 0),
    ),
    MissRule(
        "changed_earlier",
        "earlier messages were changed or left out: the prompt fell without a mark",
        lambda a: a.prompt < (a.before or 0) - _FALL,
    ),
    MissRule(
        "retry", "a call was refused since the call before, or before that", lambda a: a.retried
    ),
)
"""In the order in which they are tried; the first that holds is the cause."""


def cause(asked: ForeseenCall) -> Cause:
    """Return the cause that a miss at this call would have, `unexplained` where no rule holds."""
    return next((r.name for r in RULES if r.holds(asked)), "unexplained")


def warm(asked: ForeseenCall) -> int:
    """Return what a call reads whose cache is there: what it shares with the one before.

    Measured: Anthropic reads all of it, OpenAI whole blocks of 128 tokens, Kimi of 256, and
    DeepSeek blocks of 64 of the prompt **and its reply**.
    """
    whole = (asked.before or 0) + (asked.reply if asked.family in _REPLIES else 0)
    return floored(min(whole, asked.prompt), asked.family)


def floored(tokens: int, family: str) -> int:
    """Return how many tokens of a prefix a provider caches: whole blocks of its own size."""
    block = _BLOCKS.get(family, 1)
    return tokens // block * block


def before_reasoning(asked: ForeseenCall) -> int:
    """Return what is read where old reasoning was taken out: up to where the turn before began."""
    return floored(min(asked.turn_before or 0, asked.prompt), asked.family)


TOLERANCE, LEAST = 0.05, 1024
"""A read that falls short by less than this share, or by fewer tokens than the second, is a hit."""


def missed(expected: int, read: int) -> bool:
    """Say whether a read falls short of what was expected by more than whole blocks explain."""
    return expected - read > max(TOLERANCE * expected, LEAST)


UNNAMED = (
    "second call",
    "turn start",
    "inside a turn",
    "turn start, no clock",
    "inside a turn, no clock",
)
"""Classes of calls that no rule speaks of. Without a clock the pauses are among their misses."""


@lru_cache(maxsize=4096)
def kind(asked: ForeseenCall) -> str:
    """Return the class whose rate of misses a call shares: its cause, finer where that tells more.

    A first call counts by the line of versions: from 2.1 on Claude Code's mostly find a prefix
    that others put there, before it they never did. A pause counts by its length, as OpenAI's
    caches have no fixed life; a call without a cause by whether a turn starts with it.
    """
    name = cause(asked)
    if name == "cold_start":
        return f"{name} {asked.line}"
    if name == "compaction" and asked.expired:
        return f"{name} later"
    if name == "ttl_expiry":
        gap = asked.gap or 0.0
        return f"{name} {'10m' if gap < 600 else '60m' if gap < 3600 else 'later'}"
    if name != "unexplained":
        return name
    if asked.second and asked.gap is not None:
        return UNNAMED[0]
    return UNNAMED[1 + (not asked.turn_starts) + 2 * (asked.gap is None)]
