"""Which calls did not find in the prompt cache what the call before had put there, how much, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ctxkit.engine import sent_at
from ctxkit.messages import Edit, Message
from ctxkit.readers.given import of_session
from ctxkit.sizes import Sizes, sizes

if TYPE_CHECKING:
    from ctxkit.session import Call, Session

__all__ = ["Miss", "cache_life", "misses"]

MissKind = Literal["cold_start", "ttl_expiry", "compaction", "prefix_change", "unexplained"]
TOLERANCE = 0.05
"""A read that falls short of the shared prefix by less than this share, or by fewer than `BLOCK` tokens, is a hit."""
BLOCK = 1024
"""Providers cache in blocks; Anthropic and OpenAI name 1,024 tokens as the smallest."""
FIVE_MINUTES, HOUR = 300.0, 3600.0


class Miss(msgspec.Struct, frozen=True, gc=False):
    """A call whose cache read fell short.

    The partial-miss rule of Boise's diagnosis: a read that finds only the first few thousand tokens misses the rest.
    """

    call: int
    kind: MissKind
    expected: int
    """Tokens of the prefix that the call shares with the one before it, by the same agent."""
    kept: int
    """Tokens that were read all the same."""
    gap: float | None
    """Seconds since the call before; None where the log has no times."""

    @property
    def lost(self) -> int:
        """Tokens that had to be sent again at the price of new ones."""
        return max(self.expected - self.kept, 0)


@of_session
def misses(session: Session, *, anchored: Sizes | None = None) -> tuple[Miss | None, ...]:
    """Return for each call its miss, or None for a hit or where the log does not tell cached from uncached.

    A cache belongs to one model, so a call is held against the last one of its agent and model. Kinds, the first that
    holds: `cold_start` (the agent's first call; what it reads was put there by another session), `compaction` (an edit
    since), `prefix_change` (the first call of another model), `ttl_expiry` (the pause was longer than the cache lives),
    else `unexplained`.
    """
    out: list[Miss | None] = [None] * len(session.calls)
    if not session.has_cache:
        return tuple(out)
    life = cache_life(session)
    anchored = anchored or sizes(session)
    last: dict[tuple[str, str | None], Call] = {}
    agents: set[str] = set()
    for call in session.calls:
        usage = call.message.usage
        if usage is None or not usage.prompt_tokens or usage.cache_read_tokens is None:
            continue
        key = (call.agent, call.message.model)
        before = last.get(key)
        if before is None:
            kind: MissKind = "prefix_change" if call.agent in agents else "cold_start"
            out[call.index] = Miss(call.index, kind, usage.prompt_tokens, usage.cache_read_tokens, None)
        else:
            out[call.index] = _miss(session, before, call, life, anchored)
        agents.add(call.agent)
        last[key] = call
    return tuple(out)


def _miss(session: Session, before: Call, call: Call, life: float, anchored: Sizes) -> Miss | None:
    prompt, read = _prompt(call), (call.message.usage.cache_read_tokens or 0) if call.message.usage else 0
    edited = any(isinstance(e, Edit) for e in session.path[before.position : call.position])
    expected = min(_shared_after_edit(session, before, call, anchored) if edited else _prompt(before), prompt)
    gap = _gap(session, before, call)
    if edited:
        return Miss(call.index, "compaction", expected, read, gap)
    if expected - read <= max(TOLERANCE * expected, BLOCK):
        return None
    return Miss(call.index, "ttl_expiry" if gap is not None and gap >= life else "unexplained", expected, read, gap)


def _prompt(call: Call) -> int:
    return (call.message.usage.prompt_tokens or 0) if call.message.usage else 0


def _shared_after_edit(session: Session, before: Call, call: Call, anchored: Sizes) -> int:
    """Return the fixed part and the messages at the head that both prompts hold."""
    shared = anchored.fixed or 0
    for old, new in zip(session.view(before.index), session.view(call.index), strict=False):
        if old.id != new.id:
            break
        shared += anchored.of(new)
    return shared


def sent_time(session: Session, call: Call) -> float | None:
    """Return when a call was sent, as the engine has it (`engine.sent_at`)."""
    before = reversed(session.path[: call.position])
    told = next((e.time for e in before if isinstance(e, Message) and e.time is not None), None)
    return sent_at(call.message, told)


def _gap(session: Session, before: Call, call: Call) -> float | None:
    """Return the seconds between the sending of two calls: a cache lives from its last use."""
    then, now = sent_time(session, before), sent_time(session, call)
    return None if then is None or now is None else max(now - then, 0.0)


def cache_life(session: Session) -> float:
    """Return the seconds that the session's cache lives: an hour where most writes were so, else five minutes."""
    hour = sum(c.message.usage.cache_write_1h_tokens or 0 for c in session.calls if c.message.usage)
    short = sum(c.message.usage.cache_write_tokens or 0 for c in session.calls if c.message.usage)
    return HOUR if hour > short else FIVE_MINUTES
