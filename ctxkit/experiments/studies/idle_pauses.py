"""Accuracy of the idle ledger: writes after recorded pauses, and the order of the choices.

The order is predicted from the first half of a developer's pauses (by time): each pause of the
second half is priced with those lengths, as nobody knows its own, and its order of choices is held
against that by its real length. Costs of choices that were not taken are modelled in both.
"""

from __future__ import annotations

import random
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.metrics.cost.idle_ledger import CHOICES, Pause, expect_cost, find_pauses, rank_choices
from ctxkit.session.messages import Message, Text, Usage
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


__all__ = [
    "IdleMeasure",
    "check_choice_rankings",
    "make_developers",
    "measure_idle",
    "measure_write_errors",
]
__dir__ = public_dir(__all__)

MIN_PAUSES = 4
"""Pauses of a developer from which the order is predicted."""
_LIFE = 300.0


class IdleMeasure(NamedTuple):
    """How often the order of the choices was predicted, over developers left out of nothing."""

    developers_n: int
    pauses_n: int
    """Pauses that were held back."""
    order_share: float
    """Of them, those whose whole order was predicted."""
    best_share: float
    """Of them, those whose cheapest choice was predicted."""
    totals_share: float
    """Of the developers, those whose order over all pauses held back was predicted."""
    regret: float
    """Dollars of the predicted choices over those of the best choice for each pause, less 1."""


def measure_write_errors(sessions: Iterable[Session]) -> list[float]:
    """Return the relative errors of the writes predicted for calls after an expired cache."""
    return [
        abs(p.predict_write() - p.recorded_write) / p.recorded_write
        for session in sessions
        for p in find_pauses(session)
        if p.recorded_write and p.prices.life <= p.gap < inf
    ]


def check_choice_rankings(sessions: Iterable[Session]) -> list[bool]:
    """Return for each pause with a return whether its order of choices, its length known, is right.

    The ledger's prices use what earlier pauses left in the cache; the right order uses what the
    next call really wrote.
    """
    rights = []
    for session in sessions:
        for pause in find_pauses(session):
            if pause.gap < inf and pause.recorded_write is not None:
                cached = max(pause.prefix + pause.grown - pause.recorded_write, 0)
                real = pause._replace(still_cached=cached)
                predicted, right = (
                    rank_choices({c: p.cost(c) for c in CHOICES}) for p in (pause, real)
                )
                rights.append(predicted == right)
    return rights


def measure_idle(pauses_by_developer: Mapping[str, Sequence[Pause]]) -> IdleMeasure | None:
    """Measure the predicted order on the second half of each developer's pauses.

    Args:
        pauses_by_developer: pauses and ends in the order of time.

    Returns:
        None where no developer has `MIN_PAUSES` pauses.
    """
    orders, bests, totals = list[bool](), list[bool](), list[bool]()
    chosen_usd = best_usd = 0.0
    for pauses in pauses_by_developer.values():
        if len(pauses) < MIN_PAUSES:
            continue
        half = len(pauses) // 2
        gaps = [p.gap for p in pauses[:half]]
        sums: dict[str, list[float]] = {"predicted": [0.0] * 4, "real": [0.0] * 4}
        for pause in pauses[half:]:
            predicted = {c: expect_cost(pause, c, gaps) for c in CHOICES}
            real = {c: pause.cost(c) for c in CHOICES}
            order, real_order = rank_choices(predicted), rank_choices(real)
            if not order:
                continue
            orders.append(order == real_order)
            bests.append(order[0] == real_order[0])
            chosen_usd += real[order[0]] or 0.0
            best_usd += real[real_order[0]] or 0.0
            for costs, word in ((predicted, "predicted"), (real, "real")):
                sums[word] = [
                    a + (costs[c] or 0.0) for a, c in zip(sums[word], CHOICES, strict=True)
                ]
        ranked = [rank_choices(dict(zip(CHOICES, s, strict=True))) for s in sums.values()]
        totals.append(ranked[0] == ranked[1])
    if not orders:
        return None
    return IdleMeasure(
        developers_n=len(totals),
        pauses_n=len(orders),
        order_share=sum(orders) / len(orders),
        best_share=sum(bests) / len(bests),
        totals_share=sum(totals) / len(totals),
        regret=chosen_usd / best_usd - 1 if best_usd else 0.0,
    )


def make_developers(n: int = 20, seed: int = 0, sessions: int = 8) -> dict[str, list[Session]]:
    """Make sessions of developers, each with pauses of an own habit.

    The cache is that of the documentation: a prefix lives five minutes from its last use. A
    developer's pauses are drawn from a log-normal distribution with an own median (three minutes to
    two hours) and spread.

    Args:
        n: number of developers.
        seed: of all that is random.
        sessions: sessions of each.

    Example:
        >>> developers = make_developers(2)
        >>> [len(s) for s in developers.values()]
        [8, 8]
    """
    out = {}
    for i in range(n):
        rng = random.Random(f"{seed}-{i}")  # noqa: S311  no secret
        typical, spread = 180 * 40 ** rng.random(), rng.uniform(0.3, 1.2)
        name, start = f"dev-{i}", 1.76e9
        rows = []
        for k in range(sessions):
            session, start = _make_session(rng, f"{name}-{k}", start, (typical, spread))
            rows.append(session)
        out[name] = rows
    return out


def _make_session(
    rng: random.Random, name: str, start: float, habit: tuple[float, float]
) -> tuple[Session, float]:
    messages, time, prompt, cached = list[Message](), start, rng.randrange(12_000, 24_000), 0
    for turn in range(rng.randrange(5, 14)):
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
