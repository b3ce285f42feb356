"""Formulas of compaction from the literature, with sources: break-even, best trigger, headroom."""

# Symbols: p_r, p_w prices of a cached and a written token; r, w the same as shares of the input
# price; L tokens before a reset, S after it; K or A dollars of a reset; g growth per request.

from __future__ import annotations

from math import inf, sqrt
from typing import TYPE_CHECKING

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE, get_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session.session import Session


__all__ = [
    "best_interval",
    "best_trigger",
    "compute_headroom_share",
    "estimate_append_only_prompts",
    "get_append_only_token_multiple",
    "keep_alive_limit",
    "mutation_gain",
    "price_turn_after_hit_expiry_or_compaction",
    "reads_until_mutation_pays",
    "requests_until_reset_pays",
]
__dir__ = make_dunder_dir(__all__)


_DEFAULT_MODEL = "claude"
"""Stands for Claude models without a rule of their own (4.6, 4.8, 5): reads cost a tenth of input.
"""


def _get_shares(
    model: str, write_share: float | None, read_share: float | None
) -> tuple[float, float]:
    """Return write and read share: the arguments, else the model's by `tokens.provider_rules`.

    Raises:
        BadArguments: no rule is known for the model.
    """
    write = get_value("write_share", model, 1.0) if write_share is None else write_share
    read = get_value("read_share", model) if read_share is None else read_share
    if read is None:
        raise BadArguments(
            f"No provider's rule is known for model {model!r}: give write_share and read_share."
        )
    return write, read


def requests_until_reset_pays(
    before: float,
    after: float,
    *,
    cost_usd: float,
    read_price: float,
    write_price: float,
    cached_tokens: float | None = None,
    front: float = 0.0,
) -> float:
    """Return the number of requests after which a reset of the context is paid back.

    ``n* = (K + (p_w - p_r) S) / (p_r (L - S))``, from context-compaction-lab: every request saves
    reading ``L - S`` tokens, which pays back the summary call ``K`` and writing the prefix ``S``
    again. Two corrections: an unchanged front is not rewritten, and tokens that were not in the
    cache would have been written anyway. So on a cold call a reset is paid back at once, unless
    the summary costs more than writing the tokens that it removed.

    Args:
        before: tokens before the reset, ``L``.
        after: tokens after it, ``S``.
        cost_usd: dollars of the summary call, ``K``.
        read_price: dollars per cached token, ``p_r``.
        write_price: dollars per written token, ``p_w``.
        cached_tokens: tokens of `before` that the first request would have read from the cache;
            None: all.
        front: unchanged tokens at the front, which the cache still has.

    Returns:
        Requests; infinite where nothing is saved.

    Example:
        >>> round(requests_until_reset_pays(
        ...     100_000, 20_000, cost_usd=0.4, read_price=3e-7, write_price=3.75e-6), 1)
        19.5
    """
    saved_usd = read_price * (before - after)
    cached = before if cached_tokens is None else cached_tokens
    rewritten = after - min(front, cached) - (before - cached)
    return (
        max((cost_usd + (write_price - read_price) * rewritten) / saved_usd, 0.0)
        if saved_usd > 0
        else inf
    )


def reads_until_mutation_pays(
    saved: float,
    suffix: float,
    *,
    model: str = _DEFAULT_MODEL,
    write_share: float | None = None,
    read_share: float | None = None,
) -> float:
    """Return the number of reads after which an edit in the middle of a prompt is paid back.

    ``R = ((w - r) / r) S / dT``, from headroom's compression policy: 11.5 S / dT where a read
    costs a tenth of input.

    Args:
        saved: tokens that the edit removes, ``dT``.
        suffix: tokens behind the edit, which are written again, ``S``.
        model: the model by whose prices it is; the default is a Claude with reads at a tenth.
        write_share: price of a written token over that of fresh input; None: the model's.
        read_share: price of a cached token over that of fresh input; None: the model's.

    Returns:
        Reads; infinite where nothing is saved.

    Raises:
        BadArguments: no rule is known for the model, and no shares are given.

    Example:
        >>> round(reads_until_mutation_pays(1_000, 1_000), 1)
        11.5
    """
    if saved <= 0:
        return inf
    write_share, read_share = _get_shares(model, write_share, read_share)
    return (write_share - read_share) / read_share * suffix / saved


def mutation_gain(
    saved: float,
    suffix: float,
    reads: float,
    *,
    alive: float = 1.0,
    model: str = _DEFAULT_MODEL,
    write_share: float | None = None,
    read_share: float | None = None,
) -> float:
    """Return the gain of an edit over the reads to come, in fresh input tokens.

    ``dT (w + r (R - 1)) - P_alive (w - r) (S + dT)``, from headroom's compression policy.

    Args:
        saved: tokens that the edit removes, ``dT``.
        suffix: tokens behind the edit, ``S``.
        reads: reads to come, ``R``.
        alive: probability that the cache has not expired when the edit is made.
        model: the model by whose prices it is; the default is a Claude with reads at a tenth.
        write_share: price of a written token over that of fresh input; None: the model's.
        read_share: price of a cached token over that of fresh input; None: the model's.

    Returns:
        Tokens; negative where the edit costs more than it saves.

    Example:
        >>> mutation_gain(1_000, 1_000, 1) < 0 < mutation_gain(1_000, 1_000, 20)
        True
    """
    write_share, read_share = _get_shares(model, write_share, read_share)
    gain = saved * (write_share + read_share * (reads - 1))
    return gain - alive * (write_share - read_share) * (suffix + saved)


def best_interval(*, cost_usd: float, read_price: float, growth: float) -> float:
    """Return the number of requests between resets that costs least, in the continuous limit.

    ``T* = sqrt(2 F / (p_r a))``, from context-compaction-lab.

    Args:
        cost_usd: dollars of a reset, ``F``.
        read_price: dollars per cached token, ``p_r``.
        growth: tokens per request, ``a``.

    Raises:
        BadArguments: price or growth is not above 0, or the cost is negative.

    Example:
        >>> round(best_interval(cost_usd=0.5, read_price=3e-7, growth=1_000))
        58
    """
    _check_prices(cost_usd, read_price, growth)
    return sqrt(2 * cost_usd / (read_price * growth))


def best_trigger(
    *, floor: float, start: float, growth: float, cost_usd: float, read_price: float
) -> float:
    """Return the size of the context at which a reset costs least, in tokens, for whole requests.

    ``h* = s - g + sqrt(g^2 + 2 g A / p_r)``, from context-compaction-lab.

    Args:
        floor: lower bound of the result.
        start: tokens after a reset, ``s``.
        growth: tokens per request, ``g``.
        cost_usd: dollars of a reset, ``A``.
        read_price: dollars per cached token, ``p_r``.

    Raises:
        BadArguments: price or growth is not above 0, or the cost is negative.

    Example:
        >>> round(best_trigger(
        ...     floor=20_000, start=20_000, growth=1_000, cost_usd=0.5, read_price=3e-7))
        76744
    """
    _check_prices(cost_usd, read_price, growth)
    return max(floor, start - growth + sqrt(growth**2 + 2 * growth * cost_usd / read_price))


def price_turn_after_hit_expiry_or_compaction(
    prefix: float,
    summary: float,
    *,
    input_price: float,
    model: str = _DEFAULT_MODEL,
    write_share: float | None = None,
    read_share: float | None = None,
) -> dict[str, float]:
    """Return the dollars of a turn with a cached prefix, an expired one, and a compaction.

    ``r P``, ``w P`` and ``w S``, each times the input price (Boise's specification, section 4).

    Args:
        prefix: tokens of the prefix, ``P``.
        summary: tokens that the compaction leaves, written once, ``S``.
        input_price: dollars per token of fresh input.
        model: the model by whose prices it is; the default is a Claude with reads at a tenth.
        write_share: price of a written token over that of fresh input; None: the model's.
        read_share: price of a cached token over that of fresh input; None: the model's.

    Returns:
        Dollars under `warm`, `bust` and `compaction`.

    Example:
        >>> costs = price_turn_after_hit_expiry_or_compaction(100_000, 10_000, input_price=3e-6)
        >>> round(costs["bust"] / costs["warm"], 1)
        12.5
    """
    write_share, read_share = _get_shares(model, write_share, read_share)
    return {
        "warm": read_share * prefix * input_price,
        "bust": write_share * prefix * input_price,
        "compaction": write_share * summary * input_price,
    }


def keep_alive_limit(
    *,
    life_seconds: float | None = None,
    model: str = _DEFAULT_MODEL,
    write_share: float | None = None,
    read_share: float | None = None,
) -> float:
    """Return the seconds for which refreshing a cache by reads is cheaper than writing it again.

    ``life * w / r`` (Skidmore): 62.5 minutes where a read costs a tenth and the life is five.

    Args:
        life_seconds: seconds after which the cache expires without a read; None: the model's.
        model: the model by whose prices it is; the default is a Claude with reads at a tenth.
        write_share: price of a written token over that of fresh input; None: the model's.
        read_share: price of a cached token over that of fresh input; None: the model's.

    Example:
        >>> keep_alive_limit() / 60, keep_alive_limit(model="claude-opus-5-5") / 60
        (62.5, 125.0)
    """
    write_share, read_share = _get_shares(model, write_share, read_share)
    if life_seconds is None:
        life_seconds = get_value("cache_life", model, DEFAULT_CACHE_LIFE)
    return life_seconds * write_share / read_share


def _check_prices(cost_usd: float, read_price: float, growth: float) -> None:
    if read_price <= 0 or growth <= 0 or cost_usd < 0:
        raise BadArguments(
            "Give a price of reads and a growth above 0, and a cost that is not negative."
        )


ASSUMED_GROWTH = 300
"""Tokens that a call adds to the previous reply where its prompt fell (Boise's rule)."""


def compute_headroom_share(trigger: float, after: float) -> float:
    """Return the share of the trigger that a compaction leaves free, ``(T - A) / T``.

    Args:
        trigger: tokens at which compactions start.
        after: tokens that a compaction leaves.

    Raises:
        BadArguments: the trigger is not above 0.

    Example:
        >>> compute_headroom_share(100_000, 25_000)
        0.75
    """
    if trigger <= 0:
        raise BadArguments(f"A trigger is a number of tokens above 0, not {trigger!r}.")
    return (trigger - after) / trigger


def estimate_append_only_prompts(prompts: Sequence[int], outputs: Sequence[int]) -> list[int]:
    """Return the prompts of the same calls if nothing had ever been removed.

    Each prompt is the previous one plus the recorded growth; where the prompt fell, the growth is
    the previous reply plus 300 tokens.

    Args:
        prompts: tokens of each call's prompt.
        outputs: tokens of each call's reply.

    Raises:
        BadArguments: the lists differ in length.

    Example:
        >>> estimate_append_only_prompts([1_000, 2_000, 500], [100, 100, 100])
        [1000, 2000, 2400]
    """
    if len(prompts) != len(outputs):
        raise BadArguments(
            f"Give one reply for each prompt: {len(prompts)} and {len(outputs)} do not match."
        )
    sizes = list(prompts[:1])
    for i in range(1, len(prompts)):
        growth = prompts[i] - prompts[i - 1]
        sizes.append(sizes[-1] + (growth if growth > 0 else outputs[i - 1] + ASSUMED_GROWTH))
    return sizes


@accepts_session
def get_append_only_token_multiple(session: Session) -> float | None:
    """Return the ratio of the tokens that an append-only session would have sent to those sent.

    Args:
        session: a session; its calls with usage count.

    Returns:
        A ratio of 1 or more where compactions saved tokens; None without recorded prompt sizes.
        (inference-sim measured 4.12 over 37,732 recorded rounds of Claude Code.)

    Example:
        >>> import ctxkit as ck
        >>> get_append_only_token_multiple(ck.samples.path("billing")) > 1
        True
    """
    sizes, source = get_prompt_sizes(session)
    replies = [c.message.usage for c in session.calls]
    billed = [
        (n, (u.output_tokens or 0) if u else 0) for n, u in zip(sizes, replies, strict=True) if n
    ]
    if not billed or source == "estimated":
        return None
    prompts = [n for n, _ in billed]
    return sum(estimate_append_only_prompts(prompts, [n for _, n in billed])) / sum(prompts)
