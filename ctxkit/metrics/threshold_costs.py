"""Costs and losses of sessions with compactions at each of some sizes, and the choice of one."""

# Choice of a threshold
#
# Every session is replayed with compactions at each of some sizes, down to the floor from its own
# log (`trigger_replays`), and the items that these would remove before their use are counted
# (`growth_profile.LossBoundBySize`). So everything that a bill depends on is the person's own:
# growth, pauses that outlive the cache, one-hour writes, price tiers. The threshold is the cheapest
# size over all sessions whose loss exceeds that of the tool's default by at most a given share. It
# aims at `ALLOWANCE_USED` of that share: the cheapest size within a bound is often one whose loss
# in these few sessions is low by chance, and on later sessions it would exceed the bound.
#
# Price steps: a tool compacts at the first prompt above its threshold, and some settings are shares
# of the window in whole per cent. So sizes closer to a step than `STEP_MARGIN` are not candidates;
# the size just below that margin is.
#
# The dollars of a session are only as accurate as the cache model. The intervals come from
# resampling sessions (bootstrap) and are valid for further sessions like these.

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit.metrics.growth_profile import LossBoundBySize, estimate_floor
from ctxkit.metrics.item_index import ItemIndex
from ctxkit.metrics.losable_items import MessageItemCache
from ctxkit.metrics.optimal_trigger import get_floor
from ctxkit.metrics.trigger_replays import TriggerReplays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.metrics.growth_profile import GrowthProfile


CANDIDATES = 24
"""Number of candidate sizes, in addition to the default and the sizes below price steps."""
STEP_MARGIN = 0.05
"""Smallest distance of a threshold to a price step, as a share of the step."""
ROUND_TO = 1_000
"""Thresholds are multiples of this number of tokens."""
ALLOWANCE_USED = 0.8
"""Share of the allowed extra loss that a choice uses. Chosen on 40 made developers of other seeds
than those of `docs/when.md`, sixteen sessions each: with it 78 % save and stay within the bound on
later sessions, with all of the bound 68 %, and with smaller shares no more and at higher costs."""
LATER_SESSIONS = 2
"""Fewest sessions on which a choice from the earlier sessions is tried."""


class ThresholdCost(NamedTuple):
    """Cost and loss of a session with compactions at a size."""

    usd: float
    loss: float | None
    """Share of the reused items that is removed before its use; None: nothing is used again."""


class SessionThresholdCosts(NamedTuple):
    """The costs of one session with compactions at each of some sizes."""

    session: str
    floor: int
    """Tokens that a compaction leaves."""
    keep: int
    """Tokens of the newest messages and the summary in the floor."""
    peak: int
    """Tokens of its largest prompt."""
    steps: tuple[int, ...]
    """Sizes above which prompts have a higher price."""
    costs: dict[int, ThresholdCost]


def list_sizes(window: int, default: int | None, steps: Iterable[int]) -> tuple[int, ...]:
    """Return the sizes to replay in ascending order: candidates, the default and the window.

    Args:
        window: tokens of the window.
        default: tokens at which the tool compacts by default; None: unknown.
        steps: tokens above which prompts have a higher price.
    """
    low = max(window // 25, ROUND_TO)
    spaced = np.geomspace(low, window, CANDIDATES)
    below_steps = [s * (1 - STEP_MARGIN) for s in steps if low < s < window]
    rounded = {int(n // ROUND_TO) * ROUND_TO for n in (*spaced, *below_steps)}
    return tuple(sorted({n for n in rounded if n > 0} | {default or window, window}))


def measure_costs_by_size(
    profile: GrowthProfile,
    sizes: Sequence[int],
    *,
    floor: int | None = None,
    summary_tokens: int | None = None,
) -> SessionThresholdCosts:
    """Replay a session with compactions at each of some sizes.

    Args:
        profile: the growth profile of the session.
        sizes: tokens at which to compact; sizes that the session does not reach cost the same, and
            sizes within its floor are left out.
        floor: tokens that a compaction leaves; None: see `when`.
        summary_tokens: tokens of a summary; None: see `when`.
    """
    session, anchored = profile.session, profile.anchored
    summary = profile.summary if summary_tokens is None else summary_tokens
    index = ItemIndex(session, MessageItemCache(anchored)) if session.has_text else None
    stays = estimate_floor(session, anchored, index)
    tokens, _ = get_floor(profile, stays, summary) if floor is None else (floor, "")
    front = min(stays.fixed, tokens)
    replays = TriggerReplays(session, anchored, tokens - front - summary, summary)
    risk = None if index is None else LossBoundBySize(index, anchored, tokens, front)
    costs = {}
    for size in sizes:
        usd = replays.bill(size) if size > tokens else None
        if usd is not None:
            costs[size] = ThresholdCost(usd, None if risk is None else risk.at(size))
    return SessionThresholdCosts(
        session.id, tokens, tokens - front, profile.peak, list_price_steps(profile), costs
    )


def choose_size(
    measured: Sequence[SessionThresholdCosts], default: int, extra_loss: float = 0.0
) -> int | None:
    """Return the cheapest size whose loss exceeds that of the default by at most a share.

    None where every size is within a session's floor or near a price step. The default itself is
    always allowed unless it is near a price step.

    Args:
        measured: sessions, replayed at the same sizes.
        default: the size whose loss bounds that of the answer.
        extra_loss: share of reused items that may be removed in addition to that, on sessions like
            these; the choice itself uses `ALLOWANCE_USED` of it.
    """
    steps = {step for m in measured for step in m.steps}
    common = set.intersection(*(set(m.costs) for m in measured)) if measured else set()
    far = [n for n in sorted(common) if not is_near_step(n, steps)]
    most = average_loss(measured, default)
    aim = ALLOWANCE_USED * extra_loss
    fits = [n for n in far if most is None or (average_loss(measured, n) or 0.0) <= most + aim]
    # at equal cost prefer the default, then the larger size
    return min(
        fits, key=lambda n: (round(average_usd(measured, n), 9), n != default, -n), default=None
    )


def is_near_step(size: int, steps: Iterable[int]) -> bool:
    """Return whether a size is closer to a price step than `STEP_MARGIN` of the step."""
    return any(abs(size / step - 1) < STEP_MARGIN - 1e-9 for step in steps)


def average_usd(measured: Sequence[SessionThresholdCosts], size: int) -> float:
    """Return the mean dollars of some sessions at a size."""
    return fmean(m.costs[size].usd for m in measured)


def average_loss(measured: Sequence[SessionThresholdCosts], size: int) -> float | None:
    """Return the mean loss of the sessions that reuse items; None: none does."""
    costs = (m.costs.get(size) for m in measured)
    losses = [c.loss for c in costs if c is not None and c.loss is not None]
    return fmean(losses) if losses else None


def list_price_steps(profile: GrowthProfile) -> tuple[int, ...]:
    """Return the sizes above which prompts of a session have a higher price."""
    return tuple(tier.above for tier in profile.price.tiers)


class LaterSessionsTrial(NamedTuple):
    """The choice of the earlier sessions, tried on the later ones."""

    size: int
    earlier_n: int
    later_n: int
    usd: float
    """Mean dollars of a later session."""
    default_usd: float
    loss: float | None
    default_loss: float | None


def hold_out(
    measured: Sequence[SessionThresholdCosts], default: int, extra_loss: float = 0.0
) -> LaterSessionsTrial | None:
    """Choose a size from the earlier half of some sessions, and try it on the later half.

    None with fewer than `LATER_SESSIONS` in either half, or if no size can be chosen.

    Args:
        measured: sessions by time, replayed at the same sizes.
        default: the size at which the tool compacts by default.
        extra_loss: see `choose_size`.
    """
    half = len(measured) // 2
    earlier, later = measured[:half], measured[half:]
    size = choose_size(earlier, default, extra_loss) if half >= LATER_SESSIONS else None
    if size is None or not all({size, default} <= set(m.costs) for m in later):
        return None
    return LaterSessionsTrial(
        size,
        len(earlier),
        len(later),
        average_usd(later, size),
        average_usd(later, default),
        average_loss(later, size),
        average_loss(later, default),
    )
