"""Features of each call that are known before its reply, and the cause of a possible cache miss.

Each rule looks at what the log shows before the reply, never at the recorded read. A cache can also
lose a prefix because it was full, or because the call came to another machine: no log shows that
before the read is known, so neither is a cause here, and such misses count as unexplained.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from ctxkit.engine import estimate_call_start
from ctxkit.session.messages import MISSING_START_KIND, Message
from ctxkit.tokens.prices import price
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE, get_provider, get_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ctxkit.session.session import ModelCall, Session
    from ctxkit.tokens.provider_rules import Fact


# How the cause of a miss is found.
#
# A prompt cache belongs to one agent and one model. `get_call_features` goes once over the billed
# calls and holds a small state per cache (last call, lifetime of its last writes) and per agent
# (turn, first prompt, whether tools were searched); it yields one `CallFeatures` a call. O(log
# entries). `find_miss_cause` then applies `MISS_RULES` in order, and the first rule that holds is
# the cause (decision list). `classify_call` refines the cause to the class whose miss rate the call
# shares.
#
# Invariant: no feature is derived from the call's own usage but the size of its prompt, so that a
# prediction of its read can be compared with the record.

HOUR = get_value("cache_life_1h", "claude")
"""Seconds that the longer class of Anthropic's writes lives."""
MIN_CACHEABLE_TOKENS = 1024
"""Tokens of the shortest cached prompt where neither the price table nor a rule has any."""
_UNKNOWN_LIFE = 3600.0
"""Seconds that a cache is taken to live where no rule is known and no write is billed."""
_CODEX_MODEL = "codex"
"""Stands for the model of a Codex log that names none."""
_MAX_CALLS_AT_ONE_TIME = 3
"""So many calls with one time mean that the time is when the log was copied."""
_MIN_PAUSE = -60.0
"""Seconds; a pause below it means a clock that went backwards."""
_SHARED_PREFIX_VERSION = (2, 1)
"""Claude Code from this version on caches its system message and tools apart from the rest."""
_MAX_SHARED_PREFIX_PROMPT = 32_000
"""Tokens of the largest first prompt that is mostly system message and tools; in a larger one the
user's own tools (MCP) come before the system message, so no other session begins with the same.
"""
_CLAUDE_CODE_ERAS = ((2, 1, 0), (2, 1, 20), (2, 1, 50), (2, 1, 100), (2, 1, 200))
"""First releases of Claude Code from which on turn starts and tool searches miss differently."""
_TOOL_SEARCH = "ToolSearch"
"""The tool of Claude Code that finds further tools."""
_COMMAND_KINDS = frozenset({"wrapper", "injected"})
"""Kinds of the messages that a command or skill of Claude Code lays in."""
_RESTART_COMMANDS = ("/exit", "/model", "/mcp", "/plugin", "/clear", "/resume")
"""Commands of Claude Code after which the program is started again, or sends other tools."""


class CallFeatures(msgspec.Struct, frozen=True, gc=False):
    """One billed call as it is known before its reply, and the call before it in the same cache.

    A cache belongs to one agent and one model.
    """

    call: int
    """Number of the call in the session."""
    prompt: int
    """Tokens of the whole prompt."""
    family: str
    """Provider family of its model, as `get_cache_family` returns it."""
    last: int | None
    """Number of the call before in the cache; None: this is the first."""
    before: int | None
    """Tokens of the prompt of that call."""
    reply: int
    """Tokens of the reply to that call; 0 where they are not known."""
    gap: float | None
    """Seconds from the reply before to the sending; None where the log has no reliable times.

    The start is the reply, not the sending of the call before: of the pauses between 240 and 450
    seconds of five sessions, all below 300 hit or have another cause, and all above missed.
    """
    life: float
    """Seconds that the cache lives, by the kind of the last writes before."""
    common: bool
    """True where other sessions of the program begin with the same tokens and keep them cached."""
    least: int
    """Tokens of the shortest prompt that the provider caches."""
    block: int
    """Tokens of a block, of which the provider caches whole ones; 1: it caches to the token."""
    caches_reply: bool
    """True where the provider caches the reply with its prompt."""
    turn_starts: bool
    """True where a turn begins with it."""
    turn_before: int | None
    """Tokens of the prompt at which the turn before began."""
    edited: bool
    """True after a compaction."""
    switched: bool
    """True for the first call of a model after another one's."""
    restarted: bool
    """True where the program was started again, or given other tools, since the call before."""
    tools_loaded: bool
    """True after the first search for further tools."""
    second: bool
    """True for the second call of an agent and model."""
    retried: bool
    """True where a call was refused since the one before, or before that one."""
    other_effort: bool
    """True where the model was set to another reasoning effort."""
    after_command: bool
    """True where a command or skill of the program laid messages in since the call before."""
    era: str
    """Releases of the program that miss alike, by the first of them; empty: they do not differ."""
    subagent: bool
    """True in a subagent's log."""
    headless: bool
    """True for the first call of a log whose beginning is not in the file."""
    idle: float | None = None
    """Seconds from the developer's last call of the same program and model in another log to the
    first call of this one; infinite where there is none before; None where no other log is given.
    """

    @property
    def expired(self) -> bool:
        """True after a pause longer than the cache lives."""
        return self.gap is not None and self.gap >= self.life

    @property
    def shared(self) -> int:
        """Tokens that the prompt can have in common with the one before."""
        return min(self.before or 0, self.prompt)


def find_program_era(tool: str, version: str | None) -> str:
    """Return the first release of a program's versions that miss the cache alike.

    Args:
        tool: name of the tool.
        version: version of the program; None: unknown.

    Returns:
        The release, such as "2.1.50"; empty where the tool's versions do not differ or are older.
    """
    if tool != "claude-code":
        return ""
    numbers = [int(n) for n in (version or "").split(".")[:3] if n.isdecimal()]
    begun = [era for era in _CLAUDE_CODE_ERAS if numbers >= list(era)]
    return ".".join(map(str, begun[-1])) if begun else ""


def get_cache_family(session: Session, model: str | None) -> str:
    """Return the provider family in whose cache a model's calls are; `other` where unknown.

    Args:
        session: the session of the call.
        model: model of the call; None: that of the session.
    """
    name = model or session.model or ""
    return "openai" if not name and session.format == "codex" else get_provider(name)


def get_cache_lifetime(session: Session, model: str | None = None) -> float:
    """Return the seconds that the cache of a session's model lives.

    Anthropic bills a write by its lifetime: an hour where most writes were so, else five minutes.
    The life of the others is `tokens.provider_rules`'.

    Args:
        session: the session.
        model: the model; None: the session's.
    """
    usages = [c.message.usage for c in session.calls if c.message.usage]
    hour_writes = sum(u.cache_write_1h_tokens or 0 for u in usages)
    short_writes = sum(u.cache_write_tokens or 0 for u in usages)
    if hour_writes > short_writes:
        return float(HOUR)
    name = model or session.model or _first_model(session)
    unknown = DEFAULT_CACHE_LIFE if short_writes else _UNKNOWN_LIFE
    return float(_get_cache_rule(session, "cache_life", name, unknown))


def _first_model(session: Session) -> str | None:
    return next((c.message.model for c in session.calls if c.message.model), None)


def _get_cache_rule(session: Session, fact: Fact, model: str | None, default: Any) -> Any:
    """Return a rule's value; for a Codex log without a model's name that of OpenAI's models."""
    family = get_cache_family(session, model)
    if family == "other":
        return default
    return get_value(fact, model or session.model or _CODEX_MODEL, default)


def has_reliable_times(session: Session) -> bool:
    """Return whether the times of a log are those at which its calls were made.

    They are not where none has a time, three or more have one, or one was sent more than a minute
    before the reply that it follows: such times are those at which lines were copied.
    """
    times = Counter(c.message.time for c in session.calls if c.message.time is not None)
    if not times or max(times.values()) >= _MAX_CALLS_AT_ONE_TIME:
        return False
    last_of_agent: dict[str, ModelCall] = {}
    for call in session.calls:
        before = last_of_agent.get(call.agent)
        pause = measure_pause(session, before, call) if before else None
        if pause is not None and pause < _MIN_PAUSE:
            return False
        last_of_agent[call.agent] = call
    return True


def measure_pause(session: Session, before: ModelCall, call: ModelCall) -> float | None:
    """Return the seconds from a reply to the sending of a call; None where a time is missing.

    Args:
        session: the session of both calls.
        before: the call whose reply begins the pause.
        call: the call that ends it.
    """
    reply_time, start_time = (
        before.message.time,
        get_call_start_time(session, call, before.position + 1),
    )
    return None if reply_time is None or start_time is None else start_time - reply_time


def get_call_start_time(session: Session, call: ModelCall, first: int = 0) -> float | None:
    """Return when a call was sent, in seconds since 1970; None where no time is known.

    Args:
        session: the session.
        call: one of its calls.
        first: position of the first entry that can be its input.
    """
    input_time = None
    for entry in reversed(session.path[first : call.position]):
        if isinstance(entry, Message) and entry.time is not None:
            input_time = entry.time
            break
    return estimate_call_start(call.message, input_time)


def select_calls_with_recorded_reads(session: Session) -> list[ModelCall]:
    """Return the calls with recorded prompt tokens and cache reads."""
    usages = ((c, c.message.usage) for c in session.calls)
    return [c for c, u in usages if u and u.prompt_tokens and u.cache_read_tokens is not None]


def get_call_features(session: Session) -> tuple[CallFeatures, ...]:
    """Return the features of each billed call, in order; cached with the session.

    Empty where no cache read is recorded.

    Args:
        session: a recorded session.

    Returns:
        One value a billed call, sizes in tokens and times in seconds; what only the reply tells
        (its read, its output) is not in it.

    Example:
        >>> import ctxkit as ck
        >>> calls = get_call_features(ck.read(ck.samples.path("billing")))
        >>> len(calls), calls[0].prompt
        (343, 1625)
    """
    features: tuple[CallFeatures, ...] | None = session.__dict__.get("call_features")
    if features is None:
        features = tuple(_iter_features(session, select_calls_with_recorded_reads(session)))
        session.__dict__["call_features"] = features
    return features


# Features of each billed call, in one pass over the log, O(entries). A provider keeps one cache per
# agent and model, so `caches` has a state for each pair: the last call, whether it was refused, and
# how many calls there were. `agents` follows the turns and tool searches of an agent across its
# models. Each call is compared with the last one of its pair (`before`), and the entries between
# the two are what may have broken the prefix. A feature uses only what is known when the call is
# sent; the call is added to its cache state afterwards.
def _iter_features(session: Session, calls: Sequence[ModelCall]) -> Iterable[CallFeatures]:
    log = _LogFeatures.from_session(session)
    caches, agents = dict[Any, _CacheState](), dict[str, _AgentState]()
    rules_of_model: dict[str | None, _ModelCacheRules] = {}
    for call in calls:
        agent = agents.setdefault(call.agent, _AgentState(_prompt_tokens(call)))
        model = call.message.model
        rules = rules_of_model.get(model)
        if rules is None:
            rules = rules_of_model[model] = _ModelCacheRules.of(session, model)
        if (call.agent, model) not in caches:
            life = log.life if model is None else get_cache_lifetime(session, model)
            caches[call.agent, model] = _CacheState(life)
        cache = caches[call.agent, model]
        before = cache.call
        usage = before.message.usage if before else None
        entries = session.path[before.position + 1 if before else 0 : call.position]
        since = [e for e in entries if isinstance(e, Message)]
        kinds = {m.kind for m in since}
        refused = "api_error" in kinds
        gap = measure_pause(session, before, call) if before and log.has_reliable_times else None
        is_turn_start, is_first_search = agent.enter_call(call), agent.note_search(since)
        agent.caches += before is None
        yield CallFeatures(
            call=call.index,
            prompt=_prompt_tokens(call),
            family=rules.family,
            last=before.index if before else None,
            before=_prompt_tokens(before) if before else None,
            reply=(usage.output_tokens or 0) if usage else 0,
            gap=None if gap is None else max(gap, 0.0),
            life=cache.life,
            common=log.has_shared_prefix and agent.first_prompt < _MAX_SHARED_PREFIX_PROMPT,
            least=rules.least,
            block=rules.block,
            caches_reply=rules.caches_reply,
            turn_starts=is_turn_start,
            turn_before=agent.previous_turn_prompt,
            edited=before is not None and len(since) < len(entries),
            switched=before is None and agent.caches > 1,
            restarted=before is not None
            and (("wrapper" in kinds and _is_restarted(since)) or _has_flag(call, "resumed")),
            tools_loaded=before is not None and is_first_search,
            second=cache.calls == 1,
            retried=before is not None and (refused or cache.refused),
            other_effort=before is not None and _effort(before) != _effort(call),
            after_command=before is not None
            and not kinds.isdisjoint(_COMMAND_KINDS)
            and _has_command(since),
            era=log.era,
            subagent=bool(session.parent),
            headless=log.is_headless and call is calls[0],
        )
        cache.add_call(call, refused=refused)


class _ModelCacheRules(NamedTuple):
    """The provider's rules for the cache of one model."""

    family: str
    least: int
    block: int
    caches_reply: bool

    @classmethod
    def of(cls, session: Session, model: str | None) -> _ModelCacheRules:
        return cls(
            family=get_cache_family(session, model),
            least=_min_cacheable(model or session.model),
            block=_get_cache_rule(session, "block_tokens", model, 1),
            caches_reply=_get_cache_rule(session, "caches_reply", model, default=False),
        )


class _LogFeatures(NamedTuple):
    """Features that all calls of a log share."""

    life: float
    """Seconds that the cache lives, until a write says otherwise."""
    has_reliable_times: bool
    era: str
    is_headless: bool
    """True where the log's beginning is not in the file."""
    has_shared_prefix: bool
    """True where the program caches its system message and tools apart from the rest."""

    @classmethod
    def from_session(cls, session: Session) -> _LogFeatures:
        version = (session.version or "").split(".")[:2]
        is_headless = any(
            isinstance(e, Message) and e.kind == MISSING_START_KIND for e in session.path[:2]
        )
        is_numeric = session.format == "claude-code" and all(n.isdecimal() for n in version)
        return cls(
            life=get_cache_lifetime(session),
            has_reliable_times=has_reliable_times(session),
            era=find_program_era(session.format, session.version),
            is_headless=is_headless,
            has_shared_prefix=is_numeric
            and tuple(map(int, version)) >= _SHARED_PREFIX_VERSION
            and not is_headless,
        )


@dataclass
class _CacheState:
    """State of one cache (one agent's calls of one model) before the next call."""

    life: float
    """Seconds that it lives, by its last write."""
    call: ModelCall | None = None
    """The last call."""
    refused: bool = False
    """True where a call was refused before that one."""
    calls: int = 0

    def add_call(self, call: ModelCall, *, refused: bool) -> None:
        self.life = get_written_cache_lifetime(call) or self.life
        self.call, self.refused, self.calls = call, refused, self.calls + 1


@dataclass
class _AgentState:
    """State of one agent, over all its models, before the next call."""

    first_prompt: int
    """Tokens of its first prompt."""
    caches: int = 0
    """Models that it has called."""
    turn: int = -1
    turn_prompt: int = 0
    """Tokens of the prompt at which the turn began."""
    previous_turn_prompt: int | None = None
    has_searched: bool = False
    """True after the first search for further tools."""

    def enter_call(self, call: ModelCall) -> bool:
        """Continue to a call; return whether a turn begins with it."""
        if self.turn == call.turn:
            return False
        self.previous_turn_prompt = self.turn_prompt or None
        self.turn, self.turn_prompt = call.turn, _prompt_tokens(call)
        return True

    def note_search(self, since: Sequence[Message]) -> bool:
        """Return whether the messages since the call before hold the first search for tools."""
        is_search = _TOOL_SEARCH in [m.tool for m in since]
        is_first = is_search and not self.has_searched
        self.has_searched = self.has_searched or is_search
        return is_first


def get_written_cache_lifetime(call: ModelCall) -> float | None:
    """Return the seconds for which a call's cache write lives; None where it wrote nothing."""
    usage = call.message.usage
    hour_tokens = (usage.cache_write_1h_tokens or 0) if usage else 0
    short_tokens = (usage.cache_write_tokens or 0) if usage else 0
    if hour_tokens > short_tokens:
        return float(HOUR)
    if not short_tokens:
        return None
    return float(get_value("cache_life", call.message.model, DEFAULT_CACHE_LIFE))


def has_hour_writes(session: Session, call: ModelCall) -> bool:
    """Return True where what a call writes to the cache lives an hour, not five minutes.

    Args:
        session: the session of the call; its own cache lifetime counts where the call reports none.
        call: the call.
    """
    return bool((get_written_cache_lifetime(call) or get_cache_lifetime(session)) == HOUR)


def _min_cacheable(model: str | None) -> int:
    prices = price(model)
    return (prices.min_cacheable if prices else None) or MIN_CACHEABLE_TOKENS


def _prompt_tokens(call: ModelCall) -> int:
    return (call.message.usage.prompt_tokens or 0) if call.message.usage else 0


def _has_flag(call: ModelCall, name: str) -> bool:
    return call.message.details.get(name) is True


def _effort(call: ModelCall) -> str | None:
    effort = call.message.details.get("effort")
    return effort if isinstance(effort, str) else None


def _has_command(since: Sequence[Message]) -> bool:
    return any(m.kind in _COMMAND_KINDS and "attachment" not in m.details for m in since)


def _is_restarted(since: Sequence[Message]) -> bool:
    texts = (m.text[:200] for m in since if m.kind == "wrapper")
    return any(
        f"<command-name>{command}</command-name>" in text
        for text in texts
        for command in _RESTART_COMMANDS
    )


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
_MIN_DROPPED_TOKENS = 1000
"""A prompt smaller by this many tokens than the one before has lost earlier messages."""


class MissRule(NamedTuple):
    """A cause of misses and the condition under which a miss would have it."""

    name: MissCause
    words: str
    """What the log shows, as a phrase for a person to read."""
    holds: Callable[[CallFeatures], bool]


MISS_RULES = (
    MissRule("prefix_change", "the first call of another model", lambda c: c.switched),
    MissRule("cold_start", "the first call of an agent", lambda c: c.before is None),
    MissRule("compaction", "a compaction since the call before", lambda c: c.edited),
    MissRule(
        "too_short",
        "the prompt before was shorter than what the provider caches",
        lambda c: (c.before or 0) < c.least,
    ),
    MissRule(
        "ttl_expiry_prefix",
        "such a pause in Claude Code from 2.1 on: of the prompt, what all its sessions begin with "
        "can still be there",
        lambda c: c.expired and c.common,
    ),
    MissRule(
        "ttl_expiry",
        "a pause longer than the cache lives, by the provider's rule and the class of its writes",
        lambda c: c.expired,
    ),
    MissRule(
        "effort_change",
        "the model was set to think more or less (Claude)",
        lambda c: c.other_effort and c.family == "anthropic",
    ),
    MissRule(
        "resumed",
        "the program was started anew, or given another model, tools or plugins",
        lambda c: c.restarted,
    ),
    MissRule(
        "tools_loaded",
        "the first search for further tools (Claude Code): what it finds is laid before the "
        "messages",
        lambda c: c.tools_loaded,
    ),
    MissRule(
        "reasoning_dropped",
        "a turn starts with a smaller prompt: old reasoning was taken out (OpenAI)",
        lambda c: c.family == "openai" and c.turn_starts and c.prompt < (c.before or 0),
    ),
    MissRule(
        "changed_earlier",
        "earlier messages were changed or left out: the prompt fell without a mark",
        lambda c: c.prompt < (c.before or 0) - _MIN_DROPPED_TOKENS,
    ),
    MissRule(
        "retry", "a call was refused since the call before, or before that", lambda c: c.retried
    ),
)
"""Rules in the order in which they are tried; the first that holds is the cause."""


def find_miss_cause(call: CallFeatures) -> MissCause:
    """Return the cause that a miss at this call would have, `unexplained` where no rule holds.

    Args:
        call: the features of a call.

    Returns:
        The first cause of the rules in order whose condition the call meets.

    Example:
        >>> import ctxkit as ck
        >>> calls = get_call_features(ck.read(ck.samples.path("billing")))
        >>> [find_miss_cause(c) for c in calls].count("ttl_expiry")
        8
    """
    return next((rule.name for rule in MISS_RULES if rule.holds(call)), "unexplained")


def compute_warm_read(call: CallFeatures) -> int:
    """Return the tokens that a call reads from a live cache, in whole blocks.

    The cache has the prompt of the call before and, where the provider caches replies, its reply
    (`tokens.provider_rules`).
    """
    cached = (call.before or 0) + (call.reply if call.caches_reply else 0)
    return floor_to_block(min(cached, call.prompt), call.block)


def floor_to_block(tokens: int, block: int) -> int:
    """Return the tokens of a prefix that a provider caches: whole blocks of so many tokens.

    Args:
        tokens: tokens of the prefix.
        block: tokens of a block.
    """
    return tokens // block * block


def compute_read_after_reasoning_removal(call: CallFeatures) -> int:
    """Return the tokens that are read where old reasoning was taken out.

    The prompts are equal up to where the turn before began.
    """
    return floor_to_block(min(call.turn_before or 0, call.prompt), call.block)


MISS_TOLERANCE, MIN_MISS_TOKENS = 0.05, 1024
"""A read that is short by less than this share, or by fewer tokens than the second, is a hit."""


def is_miss(expected: int, read: int) -> bool:
    """Return whether a read is short by more than `MISS_TOLERANCE` and `MIN_MISS_TOKENS` allow.

    Args:
        expected: tokens that the call shares with the prompt before it.
        read: tokens that it read from the cache.

    Returns:
        False for a shortfall within the larger of the two bounds.
    """
    return expected - read > max(MISS_TOLERANCE * expected, MIN_MISS_TOKENS)
