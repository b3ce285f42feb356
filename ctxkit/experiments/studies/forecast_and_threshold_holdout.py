"""Hold-out tests of forecasts and thresholds: chosen on half of a developer's sessions, tried on
the rest.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.engine.cache_model.training_counts import load_training_counts
from ctxkit.experiments.next_session_forecasts_and_outcomes import (
    FIGURES,
    forecasts,
    get_first_message_time,
    write_forecast,
)
from ctxkit.formats.writing import write
from ctxkit.metrics.context_growth_and_floor import GrowthProfile
from ctxkit.metrics.means_and_prediction_intervals import predict_interval
from ctxkit.metrics.threshold_replays import (
    ALLOWANCE_USED,
    average_usd_at_threshold,
    choose_threshold,
    is_near_price_step,
    list_spaced_and_step_thresholds,
    measure_costs_by_threshold,
    validate_on_later_sessions,
)
from ctxkit.metrics.trigger_setting_instructions_by_agent import find_default_trigger
from ctxkit.session.messages import Message, SizeOnly, Text, ToolCall, Usage
from ctxkit.session.session import Session
from ctxkit.tokens.prices import price
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ctxkit.engine.cache_model.training_counts import SessionMissCounts
    from ctxkit.metrics.threshold_replays import LaterSessionsTrial, SessionThresholdCosts
    from ctxkit.session.messages import Role


__all__ = [
    "ForecastCoverage",
    "TemporalThresholdHoldOut",
    "count_tokens_shared_between_calls",
    "hold_out_thresholds",
    "make_developers",
    "measure_archive_coverage",
    "measure_coverage",
    "price_tokens_shared_between_calls",
]
__dir__ = make_dunder_dir(__all__)


MIN_SESSIONS = 8
"""Sessions of a developer and tool from which they are cut in two."""
_TIME_ORDERED_IDS = frozenset(("codex", "pi"))
"""Tools whose session ids rise with time."""


# Coverage of forecasts: calls, prompt tokens and the dollars of shared prefixes are those of
# recorded sessions (the table that ships with the kit). Dollars and loss of whole sessions are
# those of simulated developers.
class ForecastCoverage(NamedTuple):
    """Later sessions inside of the intervals that the earlier ones gave."""

    inside: int
    sessions_n: int
    developers_n: int
    by_developer: dict[str, tuple[int, int]]
    """For each developer the sessions inside, and all."""

    @property
    def share(self) -> float:
        """The share of later sessions inside."""
        return self.inside / self.sessions_n


def count_tokens_shared_between_calls(session: SessionMissCounts) -> float:
    """Return the tokens of all prompts that the calls of a session share with the ones before."""
    return float(sum(count.expected for count in session.counts.values()) + sum(session.head[:1]))


def price_tokens_shared_between_calls(session: SessionMissCounts) -> float | None:
    """Return the dollars of the tokens that a session's calls share with the ones before.

    Those that the cache missed are billed as writes, the others as reads, at the list prices of the
    model. New tokens and output are not in the table. None: the model has no price.
    """
    model_price = price(session.model)
    if model_price is None:
        return None
    lost = sum(count.lost for count in session.counts.values())
    carried = sum(count.expected for count in session.counts.values())
    return model_price.read * (carried - lost) + model_price.write() * lost


def measure_archive_coverage(
    developers: Mapping[str, Sequence[Session]],
) -> dict[tuple[str, str], ForecastCoverage]:
    """Forecast each developer's archive in the middle, and hold the later sessions against it.

    The sessions are written as files, read again, and forecast as they are set.

    Args:
        developers: sessions of one tool, by time.

    Returns:
        For each tool and figure (`FIGURES`) the later sessions inside of the 80 % interval; figures
        without an interval are left out.
    """
    counts: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for name, sessions in developers.items():
        with tempfile.TemporaryDirectory() as folder:
            for session in sessions:
                write(session, Path(folder) / f"{session.id}.jsonl")
            write_forecast(folder, now=get_first_message_time(sessions[len(sessions) // 2]))
            for outcome in forecasts(folder).outcomes:
                for figure in FIGURES:
                    inside, of = outcome.hits(figure)
                    if of:
                        key = outcome.forecast.tool, figure
                        counts.setdefault(key, {})[name] = inside, of
    return {key: _sum_counts(by_developer) for key, by_developer in counts.items()}


def _sum_counts(by_developer: dict[str, tuple[int, int]]) -> ForecastCoverage:
    judged = [c for c in by_developer.values() if c[1]]
    return ForecastCoverage(
        sum(c[0] for c in judged), sum(c[1] for c in judged), len(judged), by_developer
    )


def measure_coverage(
    figure: Callable[[SessionMissCounts], float | None],
    rows: Sequence[SessionMissCounts] | None = None,
) -> ForecastCoverage:
    """Forecast a figure from the first half of each developer's sessions of a tool, try the second.

    The sessions of Codex and Pi are in the order of time; the others in that of the table, as it
    holds no times.

    Args:
        figure: returns the figure of a session; sessions for which it is None are left out.
        rows: sessions; None: the table of recorded sessions that ships with the kit.
    """
    groups: dict[tuple[str, str], list[SessionMissCounts]] = {}
    for row in load_training_counts() if rows is None else rows:
        if row.developer and not row.subagent:
            groups.setdefault((row.developer, row.tool), []).append(row)
    by_developer: dict[str, tuple[int, int]] = {}
    for (developer, tool), sessions in groups.items():
        if len(sessions) < MIN_SESSIONS:
            continue
        ordered = sessions
        if tool in _TIME_ORDERED_IDS:
            ordered = sorted(sessions, key=lambda row: row.session)
        values = [value for row in ordered if (value := figure(row)) is not None]
        half = len(values) // 2
        interval = predict_interval(values[:half])
        hits = [interval.contains(v) for v in values[half:]] if interval is not None else []
        judged = [h for h in hits if h is not None]
        inside, of = by_developer.get(developer, (0, 0))
        by_developer[developer] = (inside + sum(judged), of + len(judged))
    return _sum_counts(by_developer)


SESSIONS_PER_DEVELOPER = 8
"""Sessions of a made developer."""
_TOOLS = (
    ("claude-code", "claude-sonnet-4-5", 200_000),
    ("claude-code", "claude-haiku-5-5", 1_000_000),
    ("claude-code", "claude-opus-5-5", 200_000),
    ("codex", "gpt-5.4", 400_000),
    ("pi", "claude-haiku-5-5", 200_000),
)
"""Tools, models and windows that developers have in turn; the second, fourth and fifth have price
steps within their window."""
_LIVES = (get_value("cache_life", "claude"), get_value("cache_life_1h", "claude"))
"""Seconds that a prefix lives which is written for five minutes, and for an hour."""
_FRONT = 14_000
"""Tokens of system prompt and tools."""


class TemporalThresholdHoldOut(NamedTuple):
    """The threshold chosen on a developer's first sessions, tried on the later ones."""

    developer: str
    tool: str
    model: str
    window: int
    default: int
    reached_n: int
    """Later sessions that reach the default."""
    held_out: LaterSessionsTrial | None
    """None: nothing could be chosen."""
    near_step: bool
    """True where the choice is within 5 % of a price step."""
    is_possible: bool
    """True where, the later sessions known, a size costs less within the bound of loss."""

    @property
    def is_default(self) -> bool:
        """True where the tool's default is chosen."""
        return self.held_out is not None and self.held_out.size == self.default

    def saves_within(self, extra_loss: float) -> bool:
        """Return whether the later sessions cost less than by default, at so much more loss."""
        tried = self.held_out
        if tried is None:
            return False
        more = (tried.loss or 0.0) - (tried.default_loss or 0.0)
        return tried.usd < tried.default_usd and more <= extra_loss


def hold_out_thresholds(
    developers: Mapping[str, Sequence[Session]], extra_losses: Iterable[float] = (0.0,)
) -> dict[float, list[TemporalThresholdHoldOut]]:
    """Choose a threshold from the first half of each developer's sessions, try it on the others.

    Args:
        developers: sessions of one tool and model, by time.
        extra_losses: shares of loss beyond the default's that a choice may have; each gives a list.

    Returns:
        For each share the trials, in the order of the developers.
    """
    trials: dict[float, list[TemporalThresholdHoldOut]] = {share: [] for share in extra_losses}
    for name, sessions in developers.items():
        profiles = [GrowthProfile(session) for session in sessions]
        steps = {tier.above for p in profiles for tier in p.price.tiers}
        first = sessions[0]
        window = first.context_window or profiles[0].window[0]
        default = find_default_trigger(first.format, window) or window
        sizes = list_spaced_and_step_thresholds(window, default, steps)
        measured = [measure_costs_by_threshold(p, sizes) for p in profiles]
        for share, rows in trials.items():
            held_out = validate_on_later_sessions(measured, default, share)
            rows.append(
                TemporalThresholdHoldOut(
                    name,
                    first.format,
                    profiles[0].model,
                    window,
                    default,
                    _count_above(measured[len(measured) // 2 :], default),
                    held_out,
                    held_out is not None and is_near_price_step(held_out.size, steps),
                    _has_cheaper_size(measured[len(measured) // 2 :], default, share),
                )
            )
    return trials


def _has_cheaper_size(
    later: Sequence[SessionThresholdCosts], default: int, extra_loss: float
) -> bool:
    """Return whether the best size for sessions costs less than the default, with them known."""
    best = choose_threshold(
        later, default, extra_loss / ALLOWANCE_USED
    )  # nothing is left to chance
    return (
        best is not None
        and all(default in m.costs for m in later)
        and average_usd_at_threshold(later, best) < average_usd_at_threshold(later, default)
    )


def _count_above(measured: Sequence[SessionThresholdCosts], size: int) -> int:
    return sum(m.peak > size for m in measured)


class _Habits(NamedTuple):
    """Habits of a simulated developer, the same in all sessions."""

    tool: str
    model: str
    window: int
    hour: bool
    growth: int
    """Tokens that a call adds, in the middle."""
    task_calls: int
    """Calls of a task, in the middle."""
    tasks: int
    """Tasks of a session, in the middle."""
    returns: float
    """Share of calls that read a file of an earlier task again."""
    pause: float
    """Seconds between two requests, in the middle."""


# All figures of thresholds are those of simulated developers: each has a tool, a model, and habits
# of its own (calls of a task, tokens that a call adds, how often earlier files are read again,
# pauses, tasks of a session). The cache is that of the documentation: a prefix lives five minutes
# from its last use, or an hour.
def make_developers(
    n: int = 20, seed: int = 0, sessions: int = SESSIONS_PER_DEVELOPER
) -> dict[str, list[Session]]:
    """Simulate developers with habits of their own; return the sessions of each, oldest first.

    A session is a series of tasks. A task reads and edits files of its own; now and then a call
    reads a file of an earlier task again. The log holds paths, and the sizes of what was read.

    Args:
        n: number of developers.
        seed: seed of all that is random.
        sessions: sessions of each.

    Example:
        >>> (name, made), = make_developers(1, sessions=2).items()
        >>> name, [session.format for session in made]
        ('dev-0', ['claude-code', 'claude-code'])
    """
    out = {}
    for i in range(n):
        rng = random.Random(f"{seed}-{i}")  # noqa: S311  no secret
        habits = _Habits(
            *_TOOLS[i % len(_TOOLS)],
            hour=rng.random() < 0.3,
            growth=round(500 * 6 ** rng.random()),
            task_calls=rng.randrange(8, 40),
            tasks=rng.randrange(2, 9),
            returns=0.15 * rng.random() ** 2,
            pause=60 * 40 ** rng.random(),
        )
        out[f"dev-{i}"] = [
            _make_session(rng, f"dev-{i}-{k}", habits, 1.76e9 + 86_400 * k) for k in range(sessions)
        ]
    return out


def _make_session(rng: random.Random, name: str, habits: _Habits, start: float) -> Session:
    work = _Work(rng, habits, start)
    for task in range(_draw(rng, habits.tasks)):
        files = [f"src/{_draw_name(rng)}/{_draw_name(rng)}.py" for _ in range(rng.randrange(2, 7))]
        work.add_request(f"Task {task}: mend {files[0]}.", pauses=task > 0)
        for _ in range(_draw(rng, habits.task_calls)):
            is_return = work.earlier and rng.random() < habits.returns
            work.add_call(rng.choice(work.earlier if is_return else files))
        work.earlier += files
    return Session(
        id=name,
        format=habits.tool,
        log=tuple(work.messages),
        model=habits.model,
        context_window=habits.window,
    )


class _Work:
    """A session in the making, never compacted: its messages, prompt and cache."""

    def __init__(self, rng: random.Random, habits: _Habits, start: float) -> None:
        self._rng, self._habits, self._time = rng, habits, start
        self._prompt, self._cached, self._pause = _FRONT, 0, 0.0
        self.messages: list[Message] = []
        self.earlier: list[str] = []
        """Files of the tasks before this one."""

    def add_request(self, text: str, *, pauses: bool) -> None:
        """Add a message of the user, after a pause."""
        self._pause = self._habits.pause * self._rng.lognormvariate(0, 1.2) if pauses else 0.0
        self._time += self._pause
        self.messages.append(self._message("user", parts=(Text(text),)))

    def add_call(self, path: str) -> None:
        """Add a call that reads a file, and its result."""
        read = self._cached if self._pause < _LIVES[self._habits.hour] else 0
        output = self._rng.randrange(80, 500)
        written = self._prompt - read
        usage = Usage(
            input_tokens=0,
            cache_read_tokens=read,
            cache_write_tokens=0 if self._habits.hour else written,
            cache_write_1h_tokens=written if self._habits.hour else 0,
            output_tokens=output,
        )
        self._time += self._rng.uniform(3, 25)
        number = len(self.messages)
        call = ToolCall(id=f"c{number}", name="read_file", arguments={"path": path})
        reply = self._message("assistant", usage=usage, parts=(call,), model=self._habits.model)
        size = max(round(self._habits.growth * self._rng.lognormvariate(-0.2, 0.6)), 60)
        content = (Text(f"{path}: read"), SizeOnly("text", tokens=size))
        result = self._message("tool", parts=content, call_id=call.id, tool=call.name)
        self.messages += [reply, result]
        self._cached, self._pause = self._prompt, 0.0
        self._prompt += output + size

    def _message(self, role: Role, **fields: Any) -> Message:
        return Message(role=role, id=f"{role}-{len(self.messages)}", time=self._time, **fields)


def _draw(rng: random.Random, middle: int) -> int:
    return max(round(middle * rng.lognormvariate(0, 0.35)), 2)


def _draw_name(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghiklmnoprstu", k=6)) + str(rng.randrange(100, 1_000))
