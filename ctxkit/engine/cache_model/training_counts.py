"""Counts of calls and cache misses of recorded sessions by class; the table that is shipped.

Calls of one class share a miss rate. A class is a base, and where rates differ inside it a
refinement after a slash: `turn start/2.1.20`. Rates of a base are the prior of its refinements
(`miss_rate_estimator`).

The table holds numbers, ids and names of programs and models, and no text of messages.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import cache, cached_property, lru_cache
from importlib import resources
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ctxkit.engine.cache_model.call_features import (
    HOUR,
    CallFeatures,
    find_miss_cause,
    get_cache_family,
    get_call_features,
    get_call_start_time,
    is_miss,
    select_calls_with_recorded_reads,
)
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.session import Session

Evidence: TypeAlias = Literal["alone", "folder", "known"]
"""What a prediction knows of the developer: nothing but the log, when their last log was, or
their other logs."""
MIN_CALLS = 8
"""Calls that a session needs to be judged; shorter ones only add to the counts."""
MAX_READS = 64
"""Reads of misses that are stored of each class."""
HEAD_PROMPTS = 5
"""Prompt sizes by which a copy of a session is recognised."""
TABLE_FILE = "taught.json"
_MIN_HITS = 3
"""Hits from which a session's shortfall is measured."""
_MIN_SHORTFALL_PROMPT = 2048
"""Tokens of the shortest prompt at which it is measured."""


class CallClassCounts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Calls of one class, their misses, and the tokens of both."""

    calls: int = 0
    misses: int = 0
    """Calls that missed; first calls that read nothing."""
    expected: int = 0
    """Tokens that could have been read."""
    lost: int = 0
    """Tokens of them that were not read, at misses."""
    missed: int = 0
    """Tokens that could have been read at misses."""
    reads: tuple[int, ...] = ()
    """Tokens that were still read at each miss; of first calls, at each that read some."""

    def __add__(self, other: CallClassCounts) -> CallClassCounts:
        return CallClassCounts(
            self.calls + other.calls,
            self.misses + other.misses,
            self.expected + other.expected,
            self.lost + other.lost,
            self.missed + other.missed,
            self.reads + other.reads,
        )


class MedianReadShortfalls(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How many tokens a session's hits read less than they could: medians."""

    of_prompt: float
    """Below the prompt before."""
    of_reply: float
    """Below the prompt before and its reply."""


class PastPredictionError(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A prediction that was held against the record, in logarithms."""

    error: float
    """Predicted over recorded dollars."""
    below: float
    """Half width of the unstretched interval below the prediction."""
    above: float

    @property
    def stretch(self) -> float:
        """Half widths that the record is above the prediction; negative: below it."""
        return -self.error / (self.above if self.error < 0 else self.below)


class PastErrorsByAvailableLogs(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Predictions of a training session, the logs of its developer being left out."""

    teachers: int
    """Other developers whose logs are of its kind."""
    lifetime: float
    """Logarithm of predicted over recorded dollars by the cache's lifetime alone."""
    folder: PastPredictionError
    """Told how long ago the developer's last log was."""
    alone: PastPredictionError
    """From the log alone."""
    known: PastPredictionError
    """The developer's other logs teach, too."""

    def get_bill(self, evidence: Evidence) -> PastPredictionError:
        """Return the prediction that was made with so much known of the developer."""
        bill: PastPredictionError = getattr(self, evidence)
        return bill


class SessionMissCounts(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """Counts of calls of one recorded session by class, and the kind of session."""

    session: str
    """Its id: a session is never used to predict itself."""
    head: tuple[int, ...]
    """Its first prompt sizes: a log that begins with the same ones is a copy of it."""
    tool: str
    """The program that wrote the log."""
    family: str
    """Provider family."""
    model: str
    """The model of its calls; empty where the log does not say."""
    subagent: bool
    counts: dict[str, CallClassCounts]
    developer: str = ""
    """Number of the person whose log it is; empty: nobody else's."""
    version: str = ""
    era: str = ""
    """As `find_program_era` returns it."""
    shortfall: MedianReadShortfalls | None = None
    past: PastErrorsByAvailableLogs | None = None
    """How its own predictions were off; None where it is too short or has no price."""

    @cached_property
    def kind(self) -> tuple[str, str, bool]:
        """Tool, model family and kind of agent."""
        return self.tool, get_model_tier_or_version(self.model), self.subagent

    @cached_property
    def owner(self) -> str:
        """The developer; the session itself where none is known."""
        return self.developer or self.session

    @cached_property
    def base_counts(self) -> dict[str, CallClassCounts]:
        """Counts by base, classes of one base being added; cached, as counts never change."""
        counts: dict[str, CallClassCounts] = {}
        for name, count in self.counts.items():
            base = get_class_base(name)
            counts[base] = counts[base] + count if base in counts else count
        return counts

    @cached_property
    def calls(self) -> int:
        """Calls counted."""
        return sum(count.calls for count in self.counts.values())


def count_session(
    session: Session, stop: int | None = None, *, idle: float | None = None
) -> SessionMissCounts:
    """Count a session's calls and misses by class, of its first `stop` billed calls only if given.

    The id, first prompts and family are those of the whole session in any case.

    Args:
        session: a recorded session.
        stop: number of billed calls that are counted; None: all.
        idle: seconds since the developer's last log, as
            `SameDeveloperSessions.measure_idle` returns them.
    """
    calls, reads = with_initial_idle(get_call_features(session), idle), get_recorded_reads(session)
    return SessionMissCounts(
        session=session.id,
        head=get_first_prompt_sizes(calls),
        tool=session.format,
        family=find_main_provider_family(calls, session),
        model=session.model or "",
        subagent=bool(session.parent),
        counts=_count_classes(calls[:stop], reads[:stop]),
        version=session.version or "",
        era=calls[0].era if calls else "",
        shortfall=_measure_shortfall(calls[:stop], reads[:stop]),
    )


def _count_classes(
    calls: Sequence[CallFeatures], reads: Sequence[int]
) -> dict[str, CallClassCounts]:
    counts: dict[str, CallClassCounts] = {}
    for call, read in zip(calls, reads, strict=True):
        if not call.headless:
            name = classify_call(call)
            counts[name] = counts.get(name, CallClassCounts()) + _count_call(call, read)
    return {n: msgspec.structs.replace(c, reads=c.reads[:MAX_READS]) for n, c in counts.items()}


def _count_call(call: CallFeatures, read: int) -> CallClassCounts:
    if call.before is None:
        return CallClassCounts(1, int(not read), call.prompt, 0, 0, (read,) if read else ())
    if not is_miss(call.shared, read):
        return CallClassCounts(1, 0, call.shared)
    return CallClassCounts(1, 1, call.shared, call.shared - read, call.shared, (read,))


def _measure_shortfall(
    calls: Sequence[CallFeatures], reads: Sequence[int]
) -> MedianReadShortfalls | None:
    hits = [
        (min(call.before, call.prompt) - read, min(call.before + call.reply, call.prompt) - read)
        for call, read in zip(calls, reads, strict=True)
        if call.before is not None
        and call.shared >= _MIN_SHORTFALL_PROMPT
        and not is_miss(call.shared, read)
    ]
    if len(hits) < _MIN_HITS:
        return None
    return MedianReadShortfalls(*(float(median(values)) for values in zip(*hits, strict=True)))


def with_initial_idle(
    calls: Sequence[CallFeatures], idle: float | None
) -> tuple[CallFeatures, ...]:
    """Return calls of which the first knows how long the developer was idle before it.

    Args:
        calls: features of a session's calls.
        idle: seconds since the developer's last log; None: unknown, no change.
    """
    if not calls or idle is None:
        return tuple(calls)
    return msgspec.structs.replace(calls[0], idle=idle), *calls[1:]


def find_main_provider_family(calls: Sequence[CallFeatures], session: Session) -> str:
    """Return the provider family of most of a session's calls.

    Args:
        calls: features of the session's calls.
        session: names the family where there are no calls.
    """
    families = Counter(call.family for call in calls)
    return max(families, key=families.__getitem__) if families else get_cache_family(session, None)


def get_first_prompt_sizes(calls: Sequence[CallFeatures]) -> tuple[int, ...]:
    """Return the tokens of the first prompts of a session."""
    return tuple(call.prompt for call in calls[:HEAD_PROMPTS])


def get_recorded_reads(session: Session) -> list[int]:
    """Return what each billed call read, in tokens, as the log says."""
    usages = (c.message.usage for c in select_calls_with_recorded_reads(session))
    return [(u.cache_read_tokens or 0) if u else 0 for u in usages]


@cache
def load_training_counts() -> tuple[SessionMissCounts, ...]:
    """Read the counts of the committed training sessions; they hold no text of the sessions.

    Returns:
        One value a session: its program and model, and for each class of calls how many there were,
        how many missed the cache, and the tokens that those read too few.

    Example:
        >>> counts = load_training_counts()
        >>> len({c.session for c in counts}) == len(counts)
        True
    """
    data = resources.files(__package__).joinpath(TABLE_FILE).read_bytes()
    return msgspec.json.decode(data, type=tuple[SessionMissCounts, ...])


def has_cache_reads(session: Session) -> bool:
    """Return whether a session can be counted: one that never reads a token shows no cache."""
    reads = get_recorded_reads(session)
    return len(reads) > 1 and any(reads)


def exclude_copies(
    training: Iterable[SessionMissCounts], session_id: str, head: Sequence[int]
) -> list[SessionMissCounts]:
    """Return the counts that are neither of the session itself nor of a copy of its beginning.

    Args:
        training: counts of sessions.
        session_id: the session's id.
        head: tokens of its first prompts, as `get_first_prompts` returns them.
    """
    prompts = tuple(head)
    can_be_copied = len(prompts) == HEAD_PROMPTS
    return [
        s for s in training if s.session != session_id and not (can_be_copied and s.head == prompts)
    ]


COLD_START = "cold_start"
COLD_SUBAGENT = f"{COLD_START} subagent"
UNEXPLAINED_CLASSES = (
    "second call",
    "turn start",
    "inside a turn",
    "long pause",
    "turn start, no clock",
    "inside a turn, no clock",
)
"""Bases of calls without a cause; "no clock": misses by a pause are among them; a long pause is
one that the cache should outlive.
"""
_IDLE_LIMITS = (60.0, 300.0, 1800.0, 3600.0, 14400.0)
"""Seconds between which first calls find a cache about as often."""
_TIERS = ("opus", "sonnet", "haiku", "fable")
_GPT = re.compile(r"gpt-(\d+(?:\.\d+)?)")


@lru_cache(maxsize=1024)
def get_model_tier_or_version(model: str | None) -> str:
    """Return the models that cache alike: a tier of Claude, a version of GPT, else the first word.

    A model behind a router without a price (`...-free`) is of a family of its own.
    """
    name = (model or "").lower().rsplit("/", 1)[-1]
    if name.endswith("free"):
        return f"{name.split('-')[0]}-free"
    if "claude" in name:
        return next((f"claude-{tier}" for tier in _TIERS if tier in name), "claude")
    version = _GPT.search(name)
    return f"gpt-{version[1]}" if version else name.split("-")[0]


@lru_cache(maxsize=4096)
def classify_call(call: CallFeatures) -> str:
    """Return the class whose miss rate a call shares: its cause, refined where rates differ.

    A first call counts by the life of the cache and the time since the developer's last log. A
    pause counts by its length, as OpenAI's caches have no fixed lifetime; a call without a cause by
    whether a turn starts with it, after a command, and by the program's release.
    """
    base = _find_base(call)
    if base.startswith(COLD_START):
        is_known = base != COLD_SUBAGENT and call.idle is not None
        return f"{base}/{bisect_right(_IDLE_LIMITS, call.idle or 0.0)}" if is_known else base
    words = [call.era] if call.era else ["subagent"] if call.subagent else []
    if call.turn_starts and call.after_command and call.era:
        words.append("command")
    return f"{base}/{' '.join(words)}" if words else base


def _find_base(call: CallFeatures) -> str:
    """Return the base of a call's class: the cause that a miss would have, with the length of a
    pause or the cache's life; without a cause, one of `UNEXPLAINED_CLASSES`.
    """
    cause, gap = find_miss_cause(call), call.gap
    if cause == "cold_start":
        life = "60m" if call.life >= HOUR else "5m"
        return COLD_SUBAGENT if call.subagent else f"{COLD_START} {life}"
    if cause == "compaction" and call.expired:  # a pause has emptied the cache, too
        return f"{cause} later"
    if cause == "ttl_expiry":
        length = gap or 0.0
        return f"{cause} {'10m' if length < 600 else '60m' if length < 3600 else 'later'}"
    if cause != "unexplained":
        return cause
    if gap is not None and gap >= DEFAULT_CACHE_LIFE and call.family != "anthropic":
        return "long pause"
    if call.second and gap is not None:
        return "second call"
    start = "inside a turn" if not call.turn_starts else "turn start"
    return f"{start}, no clock" if gap is None else start


@lru_cache(maxsize=1024)
def get_class_base(name: str) -> str:
    """Return a class without its refinement."""
    return name.partition("/")[0]


def has_miss_cause(name: str) -> bool:
    """Return whether the calls of a class have a possible cause of a miss."""
    return get_class_base(name) not in UNEXPLAINED_CLASSES


OWN_DEVELOPER = "own"
"""Owner of the counts of a developer's own logs."""


class SameDeveloperSessions:
    """Sessions of one developer, such as those of a folder of logs.

    Cost: O(calls) once; a lookup is O(log calls).

    Args:
        sessions: sessions with their subagents, in any order; the predicted one may be among them.
    """

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        every = (s for session in sessions for s in (session, *session.children))
        self.sessions = list({session.id: session for session in every}.values())
        self._times = defaultdict[tuple[str, str | None], list[tuple[float, str]]](list)
        for session in self.sessions:
            for call in session.calls:
                if call.message.time is not None:
                    key = session.format, call.message.model
                    self._times[key].append((call.message.time, session.id))
        for times in self._times.values():
            times.sort()

    def measure_idle(self, session: Session) -> float | None:
        """Return the seconds from the last call in other logs to a session's first call.

        Only calls of the same program and model count, as a cache belongs to a model.

        Returns:
            Infinite where no such call is before; None without other logs, or without times.
        """
        billed = select_calls_with_recorded_reads(session)
        start = get_call_start_time(session, billed[0]) if billed else None
        if start is None or all(log.id == session.id for log in self.sessions):
            return None
        times = self._times.get((session.format, billed[0].message.model), [])
        at = bisect_right(times, start, key=lambda entry: entry[0]) - 1
        while at >= 0 and times[at][1] == session.id:
            at -= 1
        return start - times[at][0] if at >= 0 else inf

    @cached_property
    def counts(self) -> list[SessionMissCounts]:
        """Counts of the logs that show a cache."""
        return [
            replace(count_session(log, idle=self.measure_idle(log)), developer=OWN_DEVELOPER)
            for log in self.sessions
            if has_cache_reads(log)
        ]
