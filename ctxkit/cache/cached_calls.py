"""What may be known of a call's prompt cache before its reply: sizes, times, models and events."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ctxkit.engine import sent_at
from ctxkit.messages import LOST, Edit, Message
from ctxkit.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session import Call, Entry, Session

FIVE_MINUTES, HOUR = 300.0, 3600.0
SMALLEST = 1024
"""Tokens from which on a prompt is cached where the table does not say (Anthropic's, OpenAI's)."""
_FAMILIES = (
    ("anthropic", ("claude",)),
    ("openai", ("gpt", "codex", "o1", "o3", "o4")),
    ("deepseek", ("deepseek",)),
    ("kimi", ("kimi", "moonshot")),
    ("gemini", ("gemini",)),
)
"""Whose cache it is, by what the model's name holds."""
_LONG = frozenset({"kimi", "deepseek", "other"})
"""Families that bill no writes and whose caches outlive five minutes."""
_SAME_TIME = 3
"""So many calls at one time were not written when they were made, but when the log was copied."""
_BACKWARDS = -60.0
"""A pause below this many seconds is a clock that went backwards."""
_RESTARTS = ("/exit", "/model", "/mcp", "/plugin", "/clear", "/resume")
"""Commands of Claude Code after which the program is started anew, or sends other tools."""


class ForeseenCall(msgspec.Struct, frozen=True, gc=False):
    """One billed call as it may be known before its reply, beside the one before in its cache.

    A cache belongs to one agent and one model.
    """

    call: int
    prompt: int
    """Tokens of the whole prompt."""
    family: str
    last: int | None
    """The call before; None: this is the first."""
    before: int | None
    """Tokens of its prompt."""
    reply: int
    """Tokens of the reply before; 0 where they are not known."""
    gap: float | None
    """Seconds from the reply before to the sending; None where the log has no clock that holds.

    Measured from the reply, not from its sending: of the pauses between 240 and 450 seconds of five
    sessions all below 300 so measured hit or have another cause, and all above missed.
    """
    life: float
    """Seconds that the cache lives."""
    least: int
    """Tokens of the shortest prompt that the provider caches."""
    turn_starts: bool
    """True where a turn begins with it."""
    turn_before: int | None
    """Tokens of the prompt with which the turn before began."""
    edited: bool
    """True after a compaction."""
    switched: bool
    """True for the first call of a model after another one's."""
    restarted: bool
    """True where the program was started anew, or given other tools, since the call before."""
    retried: bool
    """True where a call was refused since the one before, or before that one."""
    other_effort: bool
    """True where the model was set to think more or less."""
    line: str
    """Of whose calls it is one: the program's version to its second number, or a subagent."""
    headless: bool
    """True for the first call of a log whose beginning is not in the file."""

    @property
    def shared(self) -> int:
        """Tokens that the prompt can have in common with the one before."""
        return min(self.before or 0, self.prompt)


def family(session: Session, model: str | None) -> str:
    """Return whose cache a model's calls are in: a provider's name, or `other`."""
    name = (model or session.model or "").lower()
    if name.endswith("free"):
        return "other"  # behind a router, whatever the model is
    found = next((key for key, words in _FAMILIES if any(w in name for w in words)), None)
    return found or ("openai" if not name and session.format == "codex" else "other")


def cache_life(session: Session) -> float:
    """Return the seconds that a session's cache lives.

    Anthropic bills a write by its life: an hour where most writes were so, else five minutes.
    OpenAI and Gemini keep a prefix for some minutes; the others bill no writes and keep it longer.
    """
    usages = [c.message.usage for c in session.calls if c.message.usage]
    hour = sum(u.cache_write_1h_tokens or 0 for u in usages)
    short = sum(u.cache_write_tokens or 0 for u in usages)
    long = not hour + short and family(session, None) in _LONG
    return HOUR if hour > short or long else FIVE_MINUTES


def has_clock(session: Session) -> bool:
    """Say whether the times of a log are those at which its calls were made.

    They are not where three calls or more bear one time, or one was sent more than a minute before
    the reply that it follows: such times say when lines were copied.
    """
    times = Counter(c.message.time for c in session.calls if c.message.time is not None)
    if not times or max(times.values()) >= _SAME_TIME:
        return False
    last: dict[str, Call] = {}
    for call in session.calls:
        before = last.get(call.agent)
        gap = pause(session, before, call) if before else None
        if gap is not None and gap < _BACKWARDS:
            return False
        last[call.agent] = call
    return True


def pause(session: Session, before: Call, call: Call) -> float | None:
    """Return the seconds from a reply to the sending of a call; None where one is not known."""
    since = reversed(session.path[before.position + 1 : call.position])
    told = next((e.time for e in since if isinstance(e, Message) and e.time is not None), None)
    then, now = before.message.time, sent_at(call.message, told)
    return None if then is None or now is None else now - then


def billed(session: Session) -> list[Call]:
    """Return the calls whose prompt the log has, with what was read of it."""
    usages = ((c, c.message.usage) for c in session.calls)
    return [c for c, u in usages if u and u.prompt_tokens and u.cache_read_tokens is not None]


def asked(session: Session) -> tuple[ForeseenCall, ...]:
    """Return what may be known of each billed call, in order; empty where no read is recorded."""
    known: tuple[ForeseenCall, ...] | None = session.__dict__.get("asked")
    if known is None:
        known = session.__dict__["asked"] = tuple(_asked(session, billed(session)))
    return known


def _asked(session: Session, calls: Sequence[Call]) -> Iterable[ForeseenCall]:
    clock, life = has_clock(session), cache_life(session)
    line = "subagent" if session.parent else ".".join((session.version or "").split(".")[:2])
    lost = any(isinstance(e, Message) and e.kind == LOST for e in session.path[:2])
    last: dict[tuple[str, str | None], Call] = {}
    retried: dict[tuple[str, str | None], bool] = {}
    turns: dict[str, tuple[int, int, int | None]] = {}
    for call in calls:
        key = (call.agent, call.message.model)
        before = last.get(key)
        turn, began, was = turns.get(call.agent, (-1, 0, None))
        starts = turn != call.turn
        if starts:
            turn, began, was = call.turn, _prompt(call), began or None
        turns[call.agent] = turn, began, was
        since = session.path[before.position + 1 if before else 0 : call.position]
        refused = any(isinstance(e, Message) and e.kind == "api_error" for e in since)
        gap = pause(session, before, call) if before and clock else None
        yield ForeseenCall(
            call=call.index,
            prompt=_prompt(call),
            family=family(session, call.message.model),
            last=before.index if before else None,
            before=_prompt(before) if before else None,
            reply=(before.message.usage.output_tokens or 0)
            if before and before.message.usage
            else 0,
            gap=None if gap is None else max(gap, 0.0),
            life=life,
            least=_least(call.message.model or session.model),
            turn_starts=starts,
            turn_before=was,
            edited=before is not None and any(isinstance(e, Edit) for e in since),
            switched=before is None and any(agent == call.agent for agent, _ in last),
            restarted=before is not None and (_restarted(since) or _told(call, "resumed")),
            retried=before is not None and (refused or retried.get(key, False)),
            other_effort=before is not None and _effort(before) != _effort(call),
            line=line,
            headless=lost and not last,
        )
        last[key], retried[key] = call, refused


def _least(model: str | None) -> int:
    found = price(model)
    return (found.min_cacheable if found else None) or SMALLEST


def _prompt(call: Call) -> int:
    return (call.message.usage.prompt_tokens or 0) if call.message.usage else 0


def _told(call: Call, name: str) -> bool:
    return call.message.details.get(name) is True


def _effort(call: Call) -> str | None:
    told = call.message.details.get("effort")
    return told if isinstance(told, str) else None


def _restarted(since: Sequence[Entry]) -> bool:
    said = (e.text[:200] for e in since if isinstance(e, Message) and e.kind == "wrapper")
    return any(f"<command-name>{c}</command-name>" in text for text in said for c in _RESTARTS)
