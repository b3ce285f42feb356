"""Counts of calls and cache misses of recorded sessions, and the table that comes with ctxkit.

The table holds numbers, ids and names of programs and models, and no text of messages.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ctxkit.engine.cache_model.call_classes import classify_call, get_model_family
from ctxkit.engine.cache_model.call_features import (
    CallFeatures,
    get_cache_family,
    get_call_features,
    is_miss,
    select_billed_calls,
)

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


class ClassCount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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

    def __add__(self, other: ClassCount) -> ClassCount:
        return ClassCount(
            self.calls + other.calls,
            self.misses + other.misses,
            self.expected + other.expected,
            self.lost + other.lost,
            self.missed + other.missed,
            self.reads + other.reads,
        )


class ReadShortfall(msgspec.Struct, frozen=True, gc=False, array_like=True):
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


class PastPredictionErrors(msgspec.Struct, frozen=True, gc=False, array_like=True):
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


class SessionCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts of one recorded session, by class of calls, and what the session is."""

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
    counts: dict[str, ClassCount]
    developer: str = ""
    """Number of the person whose log it is; empty: nobody else's."""
    version: str = ""
    era: str = ""
    """As `find_program_era` returns it."""
    shortfall: ReadShortfall | None = None
    past: PastPredictionErrors | None = None
    """How its own predictions were off; None where it is too short or has no price."""

    @property
    def kind(self) -> tuple[str, str, bool]:
        """Tool, model family and kind of agent."""
        return self.tool, get_model_family(self.model), self.subagent

    @property
    def owner(self) -> str:
        """The developer; the session itself where none is known."""
        return self.developer or self.session

    @property
    def calls(self) -> int:
        """Calls counted."""
        return sum(count.calls for count in self.counts.values())


def count_session(
    session: Session, stop: int | None = None, *, idle: float | None = None
) -> SessionCounts:
    """Count a session's calls and misses by class, of its first `stop` billed calls only if given.

    The id, first prompts and family are those of the whole session in any case.

    Args:
        session: a recorded session.
        stop: number of billed calls that are counted; None: all.
        idle: seconds since the developer's last log, as `DeveloperLogs.measure_idle` returns them.
    """
    calls, reads = with_initial_idle(get_call_features(session), idle), get_recorded_reads(session)
    return SessionCounts(
        session=session.id,
        head=get_first_prompts(calls),
        tool=session.format,
        family=find_main_provider_family(calls, session),
        model=session.model or "",
        subagent=bool(session.parent),
        counts=_count_classes(calls[:stop], reads[:stop]),
        version=session.version or "",
        era=calls[0].era if calls else "",
        shortfall=_measure_shortfall(calls[:stop], reads[:stop]),
    )


def _count_classes(calls: Sequence[CallFeatures], reads: Sequence[int]) -> dict[str, ClassCount]:
    counts: dict[str, ClassCount] = {}
    for call, read in zip(calls, reads, strict=True):
        if not call.headless:
            name = classify_call(call)
            counts[name] = counts.get(name, ClassCount()) + _count_call(call, read)
    return {n: msgspec.structs.replace(c, reads=c.reads[:MAX_READS]) for n, c in counts.items()}


def _count_call(call: CallFeatures, read: int) -> ClassCount:
    if call.before is None:
        return ClassCount(1, int(not read), call.prompt, 0, 0, (read,) if read else ())
    if not is_miss(call.shared, read):
        return ClassCount(1, 0, call.shared)
    return ClassCount(1, 1, call.shared, call.shared - read, call.shared, (read,))


def _measure_shortfall(calls: Sequence[CallFeatures], reads: Sequence[int]) -> ReadShortfall | None:
    hits = [
        (min(call.before, call.prompt) - read, min(call.before + call.reply, call.prompt) - read)
        for call, read in zip(calls, reads, strict=True)
        if call.before is not None
        and call.shared >= _MIN_SHORTFALL_PROMPT
        and not is_miss(call.shared, read)
    ]
    if len(hits) < _MIN_HITS:
        return None
    return ReadShortfall(*(float(median(values)) for values in zip(*hits, strict=True)))


def with_initial_idle(
    calls: Sequence[CallFeatures], idle: float | None
) -> tuple[CallFeatures, ...]:
    """Return calls of which the first knows the time since the developer's last log."""
    if not calls or idle is None:
        return tuple(calls)
    return msgspec.structs.replace(calls[0], idle=idle), *calls[1:]


def find_main_provider_family(calls: Sequence[CallFeatures], session: Session) -> str:
    """Return the provider family of most of a session's calls."""
    families = Counter(call.family for call in calls)
    return max(families, key=families.__getitem__) if families else get_cache_family(session, None)


def get_first_prompts(calls: Sequence[CallFeatures]) -> tuple[int, ...]:
    """Return the tokens of the first prompts of a session."""
    return tuple(call.prompt for call in calls[:HEAD_PROMPTS])


def get_recorded_reads(session: Session) -> list[int]:
    """Return what each billed call read, in tokens, as the log says."""
    usages = (c.message.usage for c in select_billed_calls(session))
    return [(u.cache_read_tokens or 0) if u else 0 for u in usages]


@cache
def load_counts() -> tuple[SessionCounts, ...]:
    """Read the counts of the committed training sessions; they hold no text of the sessions."""
    data = resources.files(__package__).joinpath(TABLE_FILE).read_bytes()
    return msgspec.json.decode(data, type=tuple[SessionCounts, ...])


def is_informative(session: Session) -> bool:
    """Return whether a session can be counted: one that never reads a token shows no cache."""
    reads = get_recorded_reads(session)
    return len(reads) > 1 and any(reads)


def exclude_copies(
    training: Iterable[SessionCounts], session_id: str, head: Sequence[int]
) -> list[SessionCounts]:
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
