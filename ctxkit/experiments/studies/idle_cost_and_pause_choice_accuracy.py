"""Accuracy of the predicted cost of idle pauses: cache writes after pauses, and the order of
choices.
"""

# The order of choices is predicted from the first half of a developer's pauses (by time): each
# pause of the second half is priced with those lengths, as nobody knows its own. This order is
# compared with three others: by mean prices over the lengths of the second half, by mean prices
# over the developer's true habit (of simulated developers), and by the pause's own length, which
# nobody can know. Costs of choices that were not taken are modelled in all.

from __future__ import annotations

import random
from math import exp, inf, log
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.metrics.cost.pause_cost_by_choice import (
    CHOICES,
    READY_SHARE,
    Pause,
    average_cost_over_gaps,
    estimate_expected_cost,
    find_pauses,
    rank_choices_by_cost,
)
from ctxkit.session.messages import Message, Text, Usage
from ctxkit.session.session import Session
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


__all__ = [
    "IdleChoiceAccuracy",
    "check_idle_choice_rankings",
    "list_habitual_pause_lengths",
    "list_write_errors_after_expiry",
    "make_developers_with_pauses",
    "measure_idle_choice_accuracy",
]
__dir__ = make_dunder_dir(__all__)

MIN_PAUSES = 4
"""Pauses of a developer from which the order is predicted."""
_LIFE = float(get_value("cache_life", "claude"))
"""Seconds that a made developer's prefix lives."""
_TURNS = (5, 14)
"""Turns of a session, the end excluded."""
_PAUSES_PER_SESSION = (_TURNS[0] + _TURNS[1] - 1) / 2 - 1
_QUANTILES = 400


class IdleChoiceAccuracy(NamedTuple):
    """Accuracy of the predicted order of the choices, over held-out pauses."""

    developers_n: int
    pauses_n: int
    """Pauses that were held back."""
    habit_share: float | None
    """Of them, those whose predicted order is that by the developer's true habit; None: unknown."""
    later_share: float
    """Of them, those whose predicted order is that by mean prices over the lengths held back."""
    later_limit: float | None
    """The same for one who knows the true habit: what the second half's chance allows."""
    cheapest_share: float
    """Of them, those whose cheapest choice is that by mean prices over the lengths held back."""
    single_share: float
    """Of them, those whose predicted order is that by the pause's own length."""
    single_limit: float | None
    """The same for one who knows the true habit."""
    extra_cost: float
    """Dollars of the predicted choices over those of the best by mean prices, less 1."""


def list_write_errors_after_expiry(sessions: Iterable[Session]) -> list[float]:
    """Return the relative errors of the writes predicted for calls after an expired cache."""
    return [
        abs(p.predict_write() - p.recorded_write) / p.recorded_write
        for session in sessions
        for p in find_pauses(session)
        if p.recorded_write and p.prices.life <= p.gap < inf
    ]


def check_idle_choice_rankings(sessions: Iterable[Session]) -> list[bool]:
    """Return for each pause with a return whether its order of choices, its length known, is right.

    The ledger's prices use what earlier pauses left in the cache; the right order uses what the
    next call really wrote.
    """
    rights = []
    for session in sessions:
        for pause in find_pauses(session):
            if pause.gap < inf and pause.recorded_write is not None:
                cached = max(pause.prefix + pause.growth_tokens - pause.recorded_write, 0)
                real = pause._replace(still_cached=cached)
                predicted, right = (
                    rank_choices_by_cost({c: p.cost(c) for c in CHOICES}) for p in (pause, real)
                )
                rights.append(predicted == right)
    return rights


def measure_idle_choice_accuracy(
    pauses_by_developer: Mapping[str, Sequence[Pause]],
    habits: Mapping[str, Sequence[float]] | None = None,
) -> IdleChoiceAccuracy | None:
    """Measure the predicted order on the second half of each developer's pauses.

    Args:
        pauses_by_developer: pauses and ends in the order of time.
        habits: for each developer lengths of pauses that stand for the true distribution, as
            `list_habitual_pause_lengths` returns them; None: not known.

    Returns:
        None where no developer has `MIN_PAUSES` pauses.
    """
    trials = list[_Trial]()
    developers_n = 0
    for name, pauses in pauses_by_developer.items():
        if len(pauses) < MIN_PAUSES:
            continue
        half = len(pauses) // 2
        earlier, later = ([p.gap for p in part] for part in (pauses[:half], pauses[half:]))
        habit = None if habits is None else habits[name]
        tried = [_try_pause(pause, earlier, later, habit) for pause in pauses[half:]]
        trials += [trial for trial in tried if trial.predicted]
        developers_n += 1
    if not trials:
        return None
    chosen = sum(t.costs[t.predicted[0]] or 0.0 for t in trials)
    best = sum(t.costs[t.by_later[0]] or 0.0 for t in trials)
    is_known = habits is not None
    return IdleChoiceAccuracy(
        developers_n=developers_n,
        pauses_n=len(trials),
        habit_share=fmean(t.predicted == t.by_habit for t in trials) if is_known else None,
        later_share=fmean(t.predicted == t.by_later for t in trials),
        later_limit=fmean(t.by_habit == t.by_later for t in trials) if is_known else None,
        cheapest_share=fmean(t.predicted[0] == t.by_later[0] for t in trials),
        single_share=fmean(t.predicted == t.by_length for t in trials),
        single_limit=fmean(t.by_habit == t.by_length for t in trials) if is_known else None,
        extra_cost=chosen / best - 1 if best else 0.0,
    )


class _Trial(NamedTuple):
    """A pause held back: the orders of its choices, and what each really costs."""

    predicted: tuple[str, ...]
    by_later: tuple[str, ...]
    by_habit: tuple[str, ...] | None
    by_length: tuple[str, ...]
    costs: dict[str, float | None]


def _try_pause(
    pause: Pause,
    earlier: Sequence[float],
    later: Sequence[float],
    habit: Sequence[float] | None,
) -> _Trial:
    costs = {c: pause.cost(c) for c in CHOICES}
    return _Trial(
        predicted=rank_choices_by_cost(
            {c: estimate_expected_cost(pause, c, earlier) for c in CHOICES}
        ),
        by_later=_rank_by_mean(pause, later),
        by_habit=None if habit is None else _rank_by_mean(pause, habit),
        by_length=rank_choices_by_cost(costs),
        costs=costs,
    )


def _rank_by_mean(pause: Pause, gaps: Sequence[float]) -> tuple[str, ...]:
    return rank_choices_by_cost({c: average_cost_over_gaps(pause, c, gaps) for c in CHOICES})


def make_developers_with_pauses(
    n: int = 20, seed: int = 0, sessions: int = 8
) -> dict[str, list[Session]]:
    """Make sessions of developers, each with pauses of an own habit.

    The cache is that of the documentation: a prefix lives five minutes from its last use. A
    developer's pauses are drawn from a log-normal distribution with an own median (three minutes to
    two hours) and spread.

    Args:
        n: number of developers.
        seed: seed of all that is random.
        sessions: sessions of each.

    Example:
        >>> developers = make_developers_with_pauses(2)
        >>> [len(s) for s in developers.values()]
        [8, 8]
    """
    out = {}
    for i in range(n):
        rng = random.Random(f"{seed}-{i}")  # noqa: S311  no secret
        habit = _draw_habit(rng)
        name, start = f"dev-{i}", 1.76e9
        rows = []
        for k in range(sessions):
            session, start = _make_session(rng, f"{name}-{k}", start, habit)
            rows.append(session)
        out[name] = rows
    return out


def list_habitual_pause_lengths(n: int = 20, seed: int = 0) -> dict[str, list[float]]:
    """Return lengths of pauses that stand for each made developer's true distribution.

    They are quantiles of the pauses that reach 0.9 of the cache's life, and the ends of sessions in
    the share that the generator gives them.

    Args:
        n: number of developers.
        seed: as that of `make_developers_with_pauses`.

    Example:
        >>> lengths = list_habitual_pause_lengths(1)["dev-0"]
        >>> min(lengths) >= 270, lengths[-1]
        (True, inf)
    """
    out = {}
    for i in range(n):
        typical, spread = _draw_habit(random.Random(f"{seed}-{i}"))  # noqa: S311  no secret
        distribution = NormalDist(log(typical), spread)
        shorter = distribution.cdf(log(READY_SHARE * _LIFE))
        ranks = (shorter + (1 - shorter) * (k + 0.5) / _QUANTILES for k in range(_QUANTILES))
        ends = round(_QUANTILES / max(_PAUSES_PER_SESSION * (1 - shorter), 1e-3))
        out[f"dev-{i}"] = [*(exp(distribution.inv_cdf(r)) for r in ranks), *[inf] * ends]
    return out


def _draw_habit(rng: random.Random) -> tuple[float, float]:
    """Return the median of a developer's pauses in seconds, and their spread (of the logarithm)."""
    return 180 * 40 ** rng.random(), rng.uniform(0.3, 1.2)


def _make_session(
    rng: random.Random, name: str, start: float, habit: tuple[float, float]
) -> tuple[Session, float]:
    """Return a made session, and the time a day after its end, at which the next one starts."""
    messages, time, prompt, cached = list[Message](), start, rng.randrange(12_000, 24_000), 0
    for turn in range(rng.randrange(*_TURNS)):
        gap = habit[0] * rng.lognormvariate(0, habit[1]) if turn else 0.0
        messages.append(
            Message(role="user", id=f"u{turn}", time=time + gap, parts=(Text("Go on."),))
        )
        for step in range(rng.randrange(1, 6)):
            read = cached if (step or gap < _LIFE) else 0
            output = rng.randrange(100, 900)
            time += (gap if not step else 0.0) + rng.uniform(2, 20)
            usage = Usage(
                input_tokens=0,
                cache_read_tokens=read,
                cache_write_tokens=prompt - read,
                output_tokens=output,
            )
            reply = Message(
                role="assistant",
                id=f"a{turn}-{step}",
                time=time,
                usage=usage,
                parts=(Text("Done."),),
            )
            messages.append(reply)
            cached = prompt
            prompt += output + rng.randrange(200, 4_000)
    session = Session(id=name, log=tuple(messages), model="claude-sonnet-4-5")
    return session, time + 86_400
