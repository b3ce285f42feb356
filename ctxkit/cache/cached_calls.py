"""What may be known of a call's prompt cache before its reply: sizes, times, models and events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

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
_COMMON = (2, 1)
"""Claude Code from this version on lays its system message and tools into the cache apart."""
_LEAN = 32_000
"""Tokens of a first prompt that holds little but those; in a longer one a user's own tools (MCP)
stand before the system message, so that no other session begins with the same.
"""
_SEARCH = "ToolSearch"
"""The tool of Claude Code that finds further tools."""
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
    """Seconds that the cache lives: by the class of the last writes before."""
    common: bool
    """True where other sessions of the program begin with the same tokens and keep them cached."""
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
    tools_loaded: bool
    """True after the first search for further tools."""
    second: bool
    """True for the second call of an agent and model."""
    retried: bool
    """True where a call was refused since the one before, or before that one."""
    other_effort: bool
    """True where the model was set to think more or less."""
    line: str
    """Of whose calls it is one: the program's version to its second number, or a subagent."""
    headless: bool
    """True for the first call of a log whose beginning is not in the file."""

    @property
    def expired(self) -> bool:
        """True after a pause longer than the cache lives."""
        return self.gap is not None and self.gap >= self.life

    @property
    def shared(self) -> int:
        """Tokens that the prompt can have in common with the one before."""
        return min(self.before or 0, self.prompt)


def family(session: Session, model: str | None) -> str:
    """Return whose cache a model's calls are in: a provider's name, or `other`."""
    name = model or session.model or ""
    return "openai" if not name and session.format == "codex" else _family(name.lower())


@lru_cache(maxsize=256)
def _family(name: str) -> str:
    if name.endswith("free"):
        return "other"  # behind a router, whatever the model is
    return next((key for key, words in _FAMILIES if any(w in name for w in words)), "other")


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
    log, caches, agents = _Log.of(session), dict[Any, _Cache](), dict[str, _Agent]()
    for call in calls:
        agent = agents.setdefault(call.agent, _Agent(_prompt(call)))
        cache = caches.setdefault((call.agent, call.message.model), _Cache(log.life))
        before = cache.call
        usage = before.message.usage if before else None
        since = session.path[before.position + 1 if before else 0 : call.position]
        refused = any(isinstance(e, Message) and e.kind == "api_error" for e in since)
        gap = pause(session, before, call) if before and log.clock else None
        starts, found = agent.starts(call), agent.finds(since)
        agent.caches += before is None
        yield ForeseenCall(
            call=call.index,
            prompt=_prompt(call),
            family=family(session, call.message.model),
            last=before.index if before else None,
            before=_prompt(before) if before else None,
            reply=(usage.output_tokens or 0) if usage else 0,
            gap=None if gap is None else max(gap, 0.0),
            life=cache.life,
            common=log.common and agent.head < _LEAN,
            least=_least(call.message.model or session.model),
            turn_starts=starts,
            turn_before=agent.was,
            edited=before is not None and any(isinstance(e, Edit) for e in since),
            switched=before is None and agent.caches > 1,
            restarted=before is not None and (_restarted(since) or _told(call, "resumed")),
            tools_loaded=before is not None and found,
            second=cache.calls == 1,
            retried=before is not None and (refused or cache.refused),
            other_effort=before is not None and _effort(before) != _effort(call),
            line=log.line,
            headless=log.lost and call is calls[0],
        )
        cache.went(call, refused=refused)


class _Log(NamedTuple):
    """What holds for all calls of a log."""

    life: float
    clock: bool
    line: str
    lost: bool
    """True where its beginning is not in the file."""
    common: bool

    @classmethod
    def of(cls, session: Session) -> _Log:
        version = (session.version or "").split(".")[:2]
        lost = any(isinstance(e, Message) and e.kind == LOST for e in session.path[:2])
        told = session.format == "claude-code" and all(n.isdecimal() for n in version)
        common = told and tuple(map(int, version)) >= _COMMON and not lost
        line = "subagent" if session.parent else ".".join(version)
        return cls(cache_life(session), has_clock(session), line, lost, common)


@dataclass
class _Cache:
    """What one agent's calls of one model have come to."""

    life: float
    call: Call | None = None
    refused: bool = False
    calls: int = 0

    def went(self, call: Call, *, refused: bool) -> None:
        self.life = write_life(call) or self.life
        self.call, self.refused, self.calls = call, refused, self.calls + 1


@dataclass
class _Agent:
    """What one agent's calls have come to, of any model."""

    head: int
    """Tokens of its first prompt."""
    caches: int = 0
    turn: int = -1
    began: int = 0
    was: int | None = None
    searched: bool = False

    def starts(self, call: Call) -> bool:
        """Say whether a turn begins with a call."""
        if self.turn == call.turn:
            return False
        self.turn, self.began, self.was = call.turn, _prompt(call), self.began or None
        return True

    def finds(self, since: Sequence[Entry]) -> bool:
        """Say whether the first search for tools is among what came since the call before."""
        found = any(isinstance(e, Message) and e.tool == _SEARCH for e in since)
        first, self.searched = found and not self.searched, self.searched or found
        return first


def write_life(call: Call) -> float | None:
    """Return the seconds that what a call wrote lives; None where it wrote nothing."""
    usage = call.message.usage
    hour = (usage.cache_write_1h_tokens or 0) if usage else 0
    short = (usage.cache_write_tokens or 0) if usage else 0
    return HOUR if hour > short else FIVE_MINUTES if short else None


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
