"""Break-even formulas of compaction from the literature, as pure functions with their sources."""

from __future__ import annotations

from math import inf, sqrt

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments

__all__ = [
    "best_interval",
    "best_trigger",
    "keep_alive_limit",
    "mutation_gain",
    "reads_until_mutation_pays",
    "requests_until_reset_pays",
    "turn_costs",
]
__dir__ = public_dir(__all__)

_WRITE, _READ = 1.25, 0.1
"""Anthropic's shares of the input price: a write that lives five minutes, a read."""


def requests_until_reset_pays(
    before: float,
    after: float,
    *,
    cost_usd: float,
    read_price: float,
    write_price: float,
    found: float | None = None,
    front: float = 0.0,
) -> float:
    """Return after how many requests a reset from `before` to `after` tokens has paid for itself.

    ``n* = (K + (p_w - p_r) S) / (p_r (L - S))``, from context-compaction-lab: the summary call `K`
    and the rewritten prefix `S` are paid back by the reads of `L - S` tokens that are saved at
    every request. Infinite where nothing is saved.

    Of the `S` tokens the `front` stays as it was, so the cache has it, and nothing of it is
    written: without a summary that is ``N > (w - r) S / (r x)`` with what stands behind the change
    as `S` (see `reads_until_mutation_pays`). Of the `L` tokens the first request would have `found`
    so many in the cache, all of them where that is None; the others it would have written anyway,
    so that many fewer are to be paid back. On a cold call a reset has paid for itself at once,
    unless the summary costs more than writing what it took away.
    """
    saved = read_price * (before - after)
    there = before if found is None else found
    anew = after - min(front, there) - (before - there)
    return max((cost_usd + (write_price - read_price) * anew) / saved, 0.0) if saved > 0 else inf


def reads_until_mutation_pays(
    saved: float, suffix: float, *, write_share: float = _WRITE, read_share: float = _READ
) -> float:
    """Return after how many reads an edit that saves `saved` tokens before a `suffix` has paid for
    rewriting it.

    ``R = ((w - r) / r) S / dT``, from headroom's compression policy; 11.5 S / dT at Anthropic's
    shares.
    """
    if saved <= 0:
        return inf
    return (write_share - read_share) / read_share * suffix / saved


def mutation_gain(
    saved: float,
    suffix: float,
    reads: float,
    *,
    alive: float = 1.0,
    write_share: float = _WRITE,
    read_share: float = _READ,
) -> float:
    """Return what an edit gains over `reads` coming reads, in fresh input tokens; negative where it
    costs.

    ``dT (w + r (R - 1)) - P_alive (w - r) (S + dT)``, from headroom's compression policy; `alive`
    is the probability that the cache still lives when the edit is made.
    """
    gain = saved * (write_share + read_share * (reads - 1))
    return gain - alive * (write_share - read_share) * (suffix + saved)


def best_interval(*, cost_usd: float, read_price: float, growth: float) -> float:
    """Return after how many requests a context should be reset, in the continuous limit.

    ``T* = sqrt(2 F / (p_r a))``, from context-compaction-lab: `F` dollars a reset, `a` tokens of
    growth a request. The context has then grown by ``a T*`` tokens.
    """
    _check(cost_usd, read_price, growth)
    return sqrt(2 * cost_usd / (read_price * growth))


def best_trigger(
    *, floor: float, start: float, growth: float, cost_usd: float, read_price: float
) -> float:
    """Return the size at which to reset, in tokens, for whole requests.

    ``h* = s - g + sqrt(g^2 + 2 g A / p_r)``, from context-compaction-lab: `s` the size after a
    reset, `g` the growth a request, `A` the dollars of a reset. `floor` bounds it from below.
    """
    _check(cost_usd, read_price, growth)
    return max(floor, start - growth + sqrt(growth**2 + 2 * growth * cost_usd / read_price))


def turn_costs(
    prefix: float,
    summary: float,
    *,
    input_price: float,
    write_share: float = _WRITE,
    read_share: float = _READ,
) -> dict[str, float]:
    """Return what a turn costs in dollars: `warm` (prefix read), `bust` (written again),
    `compaction`.

    Boise's specification, section 4: ``r P``, ``w P``, ``w F + summary``, each times the input
    price; `summary` is the size in tokens that the compaction leaves, written once.
    """
    return {
        "warm": read_share * prefix * input_price,
        "bust": write_share * prefix * input_price,
        "compaction": write_share * summary * input_price,
    }


def keep_alive_limit(
    *, life_seconds: float = 300.0, write_share: float = _WRITE, read_share: float = _READ
) -> float:
    """Return for how many seconds keeping a cache alive by reads is cheaper than letting it die and
    writing it again.

    ``life * w / r`` (Skidmore): 62.5 minutes at Anthropic's shares.
    """
    return life_seconds * write_share / read_share


def _check(cost_usd: float, read_price: float, growth: float) -> None:
    if read_price <= 0 or growth <= 0 or cost_usd < 0:
        raise BadArguments(
            "Give a price of reads and a growth above 0, and a cost that is not negative."
        )
