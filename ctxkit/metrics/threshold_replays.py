"""Costs and losses of sessions replayed at each of some thresholds, and the choice of one."""

# Choice of a threshold
#
# Every session is replayed with compactions at each of some sizes, down to the floor from its own
# log (`threshold_replays`), and the items that these would remove before their use are counted
# (`context_growth_and_floor.LossBoundByThreshold`). So everything that a bill depends on is the
# person's own: growth, pauses that outlive the cache, one-hour writes, price tiers. The threshold
# is the cheapest size over all sessions whose loss exceeds that of the tool's default by at most a
# given share. It aims at `ALLOWANCE_USED` of that share: the cheapest size within a bound is often
# one whose loss in these few sessions is low by chance, and on later sessions it would exceed the
# bound.
#
# Price steps: a tool compacts at the first prompt above its threshold, and some settings are shares
# of the window in whole per cent. So sizes closer to a step than `STEP_MARGIN` are not candidates;
# the size just below that margin is.
#
# The dollars of a session are only as accurate as the cache model. The intervals come from
# resampling sessions (bootstrap) and are valid for further sessions like these.

from __future__ import annotations

from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit._internal.progress_bar import make_progress_bar
from ctxkit.engine import make_log_from_session, run_rules
from ctxkit.engine.replay import build_log_keeping_recorded_sizes
from ctxkit.metrics.compaction_savings_and_payback import get_rules_run_compactions
from ctxkit.metrics.context_growth_and_floor import estimate_floor, get_compaction_floor
from ctxkit.metrics.cost.replay_cost_model import ReplayCostModel, bill_replay
from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
from ctxkit.metrics.losable_items import MessageItemCache
from ctxkit.metrics.loss_analysis import LossAnalysis
from ctxkit.metrics.message_visibility import get_rules_run_visibility
from ctxkit.metrics.prompt_sizes_and_contents import RunPromptSizes
from ctxkit.policies import triggers
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.offline_summarisers import FixedSizeSummariser
from ctxkit.policies.summary_compaction import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.metrics.context_growth_and_floor import GrowthProfile
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes


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


class ThresholdCostAndLoss(NamedTuple):
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
    costs: dict[int, ThresholdCostAndLoss]


def list_spaced_and_step_thresholds(
    window: int, default: int | None, steps: Iterable[int]
) -> tuple[int, ...]:
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


def measure_costs_by_threshold(
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

    Returns:
        Cost and loss of the session at each size.
    """
    session, anchored = profile.session, profile.message_sizes
    summary = profile.summary if summary_tokens is None else summary_tokens
    index = ItemIndex(session, MessageItemCache(anchored)) if session.has_text else None
    stays = estimate_floor(session, anchored, index)
    tokens, _ = get_compaction_floor(profile, stays, summary) if floor is None else (floor, "")
    front = min(stays.fixed, tokens)
    replays = ReplayCostByThreshold(session, anchored, tokens - front - summary, summary)
    risk = None if index is None else LossBoundByThreshold(index, anchored, tokens, front)
    costs = {}
    for size in sizes:
        usd = replays.bill(size) if size > tokens else None
        if usd is not None:
            costs[size] = ThresholdCostAndLoss(usd, None if risk is None else risk.at(size))
    return SessionThresholdCosts(
        session.id, tokens, tokens - front, profile.peak, list_price_steps(profile), costs
    )


def choose_threshold(
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
    far = [n for n in sorted(common) if not is_near_price_step(n, steps)]
    most = average_loss_at_threshold(measured, default)
    aim = ALLOWANCE_USED * extra_loss
    fits = [
        n
        for n in far
        if most is None or (average_loss_at_threshold(measured, n) or 0.0) <= most + aim
    ]
    # at equal cost prefer the default, then the larger size
    return min(
        fits,
        key=lambda n: (round(average_usd_at_threshold(measured, n), 9), n != default, -n),
        default=None,
    )


def is_near_price_step(size: int, steps: Iterable[int]) -> bool:
    """Return whether a size is closer to a price step than `STEP_MARGIN` of the step.

    Args:
        size: tokens of a prompt.
        steps: sizes in tokens above which the price per token is higher.
    """
    return any(abs(size / step - 1) < STEP_MARGIN - 1e-9 for step in steps)


def average_usd_at_threshold(measured: Sequence[SessionThresholdCosts], size: int) -> float:
    """Return the mean cost of some sessions, in US dollars.

    Args:
        measured: the sessions, each with its cost at several thresholds.
        size: the threshold, in tokens.
    """
    return fmean(m.costs[size].usd for m in measured)


def average_loss_at_threshold(measured: Sequence[SessionThresholdCosts], size: int) -> float | None:
    """Return the mean loss of the sessions that use items again; None where none does.

    Args:
        measured: the sessions, each with its loss at several thresholds.
        size: the threshold, in tokens.
    """
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


def validate_on_later_sessions(
    measured: Sequence[SessionThresholdCosts], default: int, extra_loss: float = 0.0
) -> LaterSessionsTrial | None:
    """Choose a size from the earlier half of some sessions, and try it on the later half.

    None with fewer than `LATER_SESSIONS` in either half, or if no size can be chosen.

    Args:
        measured: sessions by time, replayed at the same sizes.
        default: the size at which the tool compacts by default.
        extra_loss: see `choose_threshold`.
    """
    half = len(measured) // 2
    earlier, later = measured[:half], measured[half:]
    size = choose_threshold(earlier, default, extra_loss) if half >= LATER_SESSIONS else None
    if size is None or not all({size, default} <= set(m.costs) for m in later):
        return None
    return LaterSessionsTrial(
        size,
        len(earlier),
        len(later),
        average_usd_at_threshold(later, size),
        average_usd_at_threshold(later, default),
        average_loss_at_threshold(later, size),
        average_loss_at_threshold(later, default),
    )


NEAR_OPTIMAL = 1.05
"""Triggers cost about the same if the most expensive costs at most this multiple of the cheapest.
"""
MAX_REPLAYS = 100
"""Maximum number of triggers that are replayed on each side of the best."""
MAX_REPLAYED_CALLS = 200_000
"""Calls of all replays on each side together: a longer session is replayed at fewer triggers, so
that the time does not grow with the square of its length.
"""
MIN_REPLAYS = 10
"""Triggers on each side that also the longest session is replayed at."""


class ReplayCostByThreshold:
    """Replays of a record that compact to one floor, at triggers of any size.

    Args:
        session: a recorded session with usage and prices.
        anchored: the sizes of its messages.
        keep_tokens: tokens of the newest messages that a compaction leaves.
        summary: tokens of the summary that it writes.
    """

    def __init__(
        self, session: Session, anchored: MessageSizes, keep_tokens: int, summary: int
    ) -> None:
        self._session, self._anchored = session, anchored
        self._policy = Summary(
            keep_tokens=max(keep_tokens, 1), summariser=FixedSizeSummariser(max(summary, 1))
        )
        self._usd_by_size: dict[int | None, float | None] = {}
        self._logs: dict[int, MessageLog] = {}

    @cached_property
    def _cost_model(self) -> ReplayCostModel:
        return ReplayCostModel.of(self._session, self._anchored)

    def _build_log(self, recorded_calls: int) -> MessageLog:
        if recorded_calls not in self._logs:
            self._logs[recorded_calls] = make_log_from_session(
                self._session,
                self.make_rules(None),
                recorded_calls=recorded_calls,
                anchored=self._anchored,
            )
        return self._logs[recorded_calls]

    def make_rules(self, size: int | None) -> Rules:
        """Return the rules that compact at a size; None: never."""
        trigger = triggers.Never() if size is None else triggers.Above(size)
        return Rules(policy=self._policy, trigger=trigger)

    def bill(self, size: int | None) -> float | None:
        """Return the dollars of the session with compactions at a size; None without a price.

        Args:
            size: the trigger, in tokens; None: the session is never compacted.
        """
        if size not in self._usd_by_size:
            rules = self.make_rules(size)
            log = build_log_keeping_recorded_sizes(
                self._session, self._anchored, rules, None, self._build_log
            )
            run = run_rules(log, rules)
            prompts = RunPromptSizes(run)
            written = [s for c in get_rules_run_compactions(run, prompts) for s in c.summaries]
            bill = bill_replay(self._cost_model, prompts, self._cost_model.summaries_usd(written))
            self._usd_by_size[size] = bill.cost_usd
        return self._usd_by_size[size]

    def find_alike(
        self, best: int, low: int, high: int, step: float, *, progress: bool = False
    ) -> tuple[int, int]:
        """Return the range around a trigger within which replays cost about the same.

        The most expensive trigger in it costs at most `NEAR_OPTIMAL` times the cheapest.

        Args:
            best: the trigger.
            low: the smallest trigger that may be in the range.
            high: the largest.
            step: tokens from one replayed trigger to the next; larger if more would be needed than
                `MAX_REPLAYS` and `MAX_REPLAYED_CALLS` allow.
            progress: show a progress bar where it takes longer than a second.
        """
        usd = self.bill(best)
        if usd is None:
            return best, best
        least = most = usd
        ends = []
        max_replays = _count_replays(len(self._session.calls))
        sides = [_sizes_towards(best, end, step, max_replays) for end in (low, high)]
        total = sum(map(len, sides))
        with make_progress_bar(
            total=total, desc="when", unit="replay", disable=not progress
        ) as bar:
            for sizes in sides:
                reached = best
                for size in sizes:
                    usd = self.bill(size) or 0.0
                    bar.update()
                    if max(most, usd) > NEAR_OPTIMAL * min(least, usd):
                        break
                    least, most, reached = min(least, usd), max(most, usd), size
                ends.append(reached)
            bar.total = bar.n  # the rest is not replayed where a side ends early
        return ends[0], ends[1]


def _count_replays(calls: int) -> int:
    """Return the maximum number of replays of a session of so many calls, on each side."""
    return min(MAX_REPLAYS, max(MIN_REPLAYS, MAX_REPLAYED_CALLS // max(calls, 1)))


def _sizes_towards(start: int, end: int, step: float, max_sizes: int) -> list[int]:
    """Return sizes from a start, exclusive, to an end, inclusive."""
    n = min(max(round(abs(end - start) / step), 1), max_sizes) if end != start else 0
    return [start + round((end - start) * k / n) for k in range(1, n + 1)]


SIZE_JITTER = (0.93, 1.0, 1.07)
"""Factors of a size over which its loss is averaged, because a single item is chance at one size.
"""


class LossBoundByThreshold:
    """Upper bound of the loss by compactions at a size, measured by replays of the record.

    The replays compact to the floor with empty summaries, so no summary can lose more.

    Args:
        item_index: the items of the session's messages.
        anchored: the sizes of its messages.
        floor: tokens that a compaction leaves.
        fixed: tokens of the floor that no compaction changes.
    """

    def __init__(
        self, item_index: ItemIndex, anchored: MessageSizes, floor: int, fixed: int
    ) -> None:
        self._item_index, self._anchored = item_index, anchored
        self._floor, self._keep_tokens = floor, max(floor - fixed, 1)
        self._at_stake_by_size: dict[int, float] = {}

    @cached_property
    def _log(self) -> MessageLog:
        rules = self._make_rules(2 * self._floor)
        return make_log_from_session(self._item_index.session, rules, anchored=self._anchored)

    def _make_rules(self, size: int) -> Rules:
        policy = Summary(keep_tokens=self._keep_tokens, summariser=FixedSizeSummariser(1))
        return Rules(policy=policy, trigger=triggers.Above(max(size, self._floor + 1)))

    def at(self, size: int) -> float | None:
        """Return the share of reused items that compactions at a size remove before their use.

        It is a mean over three nearby sizes, and an upper bound of the loss. None where no item is
        used again.
        """
        reused_n = len(self._item_index.reused_items)
        if not reused_n:
            return None
        return fmean(self._count_at_stake(round(size * j)) for j in SIZE_JITTER) / reused_n

    def _count_at_stake(self, size: int) -> float:
        if size not in self._at_stake_by_size:
            run = run_rules(self._log, self._make_rules(size), None)
            visibility = get_rules_run_visibility(self._item_index, run)
            at_stake = LossAnalysis(self._item_index, visibility).items_only_in_inserted_text
            self._at_stake_by_size[size] = float(len(at_stake.item))
        return self._at_stake_by_size[size]

    def find_smallest_size(self, low: int, high: int, max_loss: float) -> int:
        """Return the smallest size in ``low..high`` whose loss is at most `max_loss`, else `high`.

        Bisection to 2 % of the size: the loss falls as the size grows.

        Args:
            low: smallest size in tokens.
            high: largest size in tokens.
            max_loss: largest acceptable loss, as a share from 0 to 1.
        """
        while high - low > max(high // 50, 1):
            middle = (low + high) // 2
            fits = (self.at(middle) or 0.0) <= max_loss
            low, high = (low, middle) if fits else (middle, high)
        return high
