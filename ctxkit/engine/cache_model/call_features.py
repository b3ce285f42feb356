"""What is known of a call's prompt cache before its reply, and why it would miss.

Each rule looks at what the log shows before the reply, never at what was read. A cache can also
lose a prefix because it was full, or because the call came to another machine: no log shows that
before the read is known, so neither is a cause here, and such misses count as unexplained.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit.engine import call_start_time
from ctxkit.session.messages import LOST_KIND, Edit, Message
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.session.session import LogEntry, ModelCall, Session


FIVE_MINUTES, HOUR = 300.0, 3600.0
MIN_CACHEABLE_TOKENS = 1024
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


class CallFeatures(msgspec.Struct, frozen=True, gc=False):
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


def cache_family(session: Session, model: str | None) -> str:
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
    long = not hour + short and cache_family(session, None) in _LONG
    return HOUR if hour > short or long else FIVE_MINUTES


def has_reliable_times(session: Session) -> bool:
    """Say whether the times of a log are those at which its calls were made.

    They are not where three calls or more bear one time, or one was sent more than a minute before
    the reply that it follows: such times say when lines were copied.
    """
    times = Counter(c.message.time for c in session.calls if c.message.time is not None)
    if not times or max(times.values()) >= _SAME_TIME:
        return False
    last: dict[str, ModelCall] = {}
    for call in session.calls:
        before = last.get(call.agent)
        gap = pause_before(session, before, call) if before else None
        if gap is not None and gap < _BACKWARDS:
            return False
        last[call.agent] = call
    return True


def pause_before(session: Session, before: ModelCall, call: ModelCall) -> float | None:
    """Return the seconds from a reply to the sending of a call; None where one is not known."""
    since = reversed(session.path[before.position + 1 : call.position])
    told = next((e.time for e in since if isinstance(e, Message) and e.time is not None), None)
    then, now = before.message.time, call_start_time(call.message, told)
    return None if then is None or now is None else now - then


def billed_calls(session: Session) -> list[ModelCall]:
    """Return the calls whose prompt the log has, with what was read of it."""
    usages = ((c, c.message.usage) for c in session.calls)
    return [c for c, u in usages if u and u.prompt_tokens and u.cache_read_tokens is not None]


def call_features(session: Session) -> tuple[CallFeatures, ...]:
    """Return what may be known of each billed call, in order; empty where no read is recorded."""
    known: tuple[CallFeatures, ...] | None = session.__dict__.get("asked")
    if known is None:
        known = session.__dict__["asked"] = tuple(_iter_features(session, billed_calls(session)))
    return known


def _iter_features(session: Session, calls: Sequence[ModelCall]) -> Iterable[CallFeatures]:
    log, caches, agents = (
        _LogFeatures.of(session),
        dict[Any, _CacheState](),
        dict[str, _AgentState](),
    )
    for call in calls:
        agent = agents.setdefault(call.agent, _AgentState(_prompt(call)))
        cache = caches.setdefault((call.agent, call.message.model), _CacheState(log.life))
        before = cache.call
        usage = before.message.usage if before else None
        since = session.path[before.position + 1 if before else 0 : call.position]
        refused = any(isinstance(e, Message) and e.kind == "api_error" for e in since)
        gap = pause_before(session, before, call) if before and log.clock else None
        starts, found = agent.starts(call), agent.finds(since)
        agent.caches += before is None
        yield CallFeatures(
            call=call.index,
            prompt=_prompt(call),
            family=cache_family(session, call.message.model),
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
            restarted=before is not None and (_restarted(since) or _has_flag(call, "resumed")),
            tools_loaded=before is not None and found,
            second=cache.calls == 1,
            retried=before is not None and (refused or cache.refused),
            other_effort=before is not None and _effort(before) != _effort(call),
            line=log.line,
            headless=log.lost and call is calls[0],
        )
        cache.went(call, refused=refused)


class _LogFeatures(NamedTuple):
    """What holds for all calls of a log."""

    life: float
    clock: bool
    line: str
    lost: bool
    """True where its beginning is not in the file."""
    common: bool

    @classmethod
    def of(cls, session: Session) -> _LogFeatures:
        version = (session.version or "").split(".")[:2]
        lost = any(isinstance(e, Message) and e.kind == LOST_KIND for e in session.path[:2])
        told = session.format == "claude-code" and all(n.isdecimal() for n in version)
        common = told and tuple(map(int, version)) >= _COMMON and not lost
        line = "subagent" if session.parent else ".".join(version)
        return cls(cache_life(session), has_reliable_times(session), line, lost, common)


@dataclass
class _CacheState:
    """What one agent's calls of one model have come to."""

    life: float
    call: ModelCall | None = None
    refused: bool = False
    calls: int = 0

    def went(self, call: ModelCall, *, refused: bool) -> None:
        self.life = written_cache_life(call) or self.life
        self.call, self.refused, self.calls = call, refused, self.calls + 1


@dataclass
class _AgentState:
    """What one agent's calls have come to, of any model."""

    head: int
    """Tokens of its first prompt."""
    caches: int = 0
    turn: int = -1
    began: int = 0
    was: int | None = None
    searched: bool = False

    def starts(self, call: ModelCall) -> bool:
        """Say whether a turn begins with a call."""
        if self.turn == call.turn:
            return False
        self.turn, self.began, self.was = call.turn, _prompt(call), self.began or None
        return True

    def finds(self, since: Sequence[LogEntry]) -> bool:
        """Say whether the first search for tools is among what came since the call before."""
        found = any(isinstance(e, Message) and e.tool == _SEARCH for e in since)
        first, self.searched = found and not self.searched, self.searched or found
        return first


def written_cache_life(call: ModelCall) -> float | None:
    """Return the seconds that what a call wrote lives; None where it wrote nothing."""
    usage = call.message.usage
    hour = (usage.cache_write_1h_tokens or 0) if usage else 0
    short = (usage.cache_write_tokens or 0) if usage else 0
    return HOUR if hour > short else FIVE_MINUTES if short else None


def _least(model: str | None) -> int:
    found = price(model)
    return (found.min_cacheable if found else None) or MIN_CACHEABLE_TOKENS


def _prompt(call: ModelCall) -> int:
    return (call.message.usage.prompt_tokens or 0) if call.message.usage else 0


def _has_flag(call: ModelCall, name: str) -> bool:
    return call.message.details.get(name) is True


def _effort(call: ModelCall) -> str | None:
    told = call.message.details.get("effort")
    return told if isinstance(told, str) else None


def _restarted(since: Sequence[LogEntry]) -> bool:
    said = (e.text[:200] for e in since if isinstance(e, Message) and e.kind == "wrapper")
    return any(f"<command-name>{c}</command-name>" in text for text in said for c in _RESTARTS)


MissCause = Literal[
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
PAUSE_CAUSES: tuple[MissCause, ...] = ("ttl_expiry", "ttl_expiry_prefix")
"""Causes that are a pause longer than the cache lives."""
_DROP_TOKENS = 1000
"""A prompt smaller by this many tokens than the one before has lost earlier messages."""
_BLOCKS = {"openai": 128, "deepseek": 64, "kimi": 256}
"""Tokens of a block: such providers cache whole blocks; Anthropic caches to the token."""
_REPLIES = frozenset({"deepseek"})
"""Providers that cache the reply with its prompt."""


class MissRule(NamedTuple):
    """One cause."""

    name: MissCause
    words: str
    """What the log shows, for a person to read."""
    holds: Callable[[CallFeatures], bool]


MISS_RULES = (
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
        lambda a: a.prompt < (a.before or 0) - _DROP_TOKENS,
    ),
    MissRule(
        "retry", "a call was refused since the call before, or before that", lambda a: a.retried
    ),
)
"""In the order in which they are tried; the first that holds is the cause."""


def miss_cause(asked: CallFeatures) -> MissCause:
    """Return the cause that a miss at this call would have, `unexplained` where no rule holds."""
    return next((r.name for r in MISS_RULES if r.holds(asked)), "unexplained")


def warm_read_tokens(asked: CallFeatures) -> int:
    """Return what a call reads whose cache is there: what it shares with the one before.

    Measured: Anthropic reads all of it, OpenAI whole blocks of 128 tokens, Kimi of 256, and
    DeepSeek blocks of 64 of the prompt **and its reply**.
    """
    whole = (asked.before or 0) + (asked.reply if asked.family in _REPLIES else 0)
    return floor_to_block(min(whole, asked.prompt), asked.family)


def floor_to_block(tokens: int, family: str) -> int:
    """Return how many tokens of a prefix a provider caches: whole blocks of its own size."""
    block = _BLOCKS.get(family, 1)
    return tokens // block * block


def read_before_reasoning(asked: CallFeatures) -> int:
    """Return what is read where old reasoning was taken out: up to where the turn before began."""
    return floor_to_block(min(asked.turn_before or 0, asked.prompt), asked.family)


MISS_TOLERANCE, MIN_MISS_TOKENS = 0.05, 1024
"""A read that falls short by less than this share, or by fewer tokens than the second, is a hit."""


def is_miss(expected: int, read: int) -> bool:
    """Say whether a read falls short of what was expected by more than whole blocks explain."""
    return expected - read > max(MISS_TOLERANCE * expected, MIN_MISS_TOKENS)


UNEXPLAINED_CLASSES = (
    "second call",
    "turn start",
    "inside a turn",
    "turn start, no clock",
    "inside a turn, no clock",
)
"""Classes of calls that no rule speaks of. Without a clock the pauses are among their misses."""


@lru_cache(maxsize=4096)
def call_class(asked: CallFeatures) -> str:
    """Return the class whose rate of misses a call shares: its cause, finer where that tells more.

    A first call counts by the line of versions: from 2.1 on Claude Code's mostly find a prefix
    that others put there, before it they never did. A pause counts by its length, as OpenAI's
    caches have no fixed life; a call without a cause by whether a turn starts with it.
    """
    name = miss_cause(asked)
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
        return UNEXPLAINED_CLASSES[0]
    return UNEXPLAINED_CLASSES[1 + (not asked.turn_starts) + 2 * (asked.gap is None)]
