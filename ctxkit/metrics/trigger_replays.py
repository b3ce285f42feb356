"""Bills of one session replayed at other trigger sizes, and the sizes that cost about the same."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit._internal.progress_bar import make_progress_bar
from ctxkit.engine import make_log_from_session, run_rules
from ctxkit.engine.replay import build_replay_log
from ctxkit.metrics.compactions import get_run_compactions
from ctxkit.metrics.cost.replay_bill import ReplayCostModel, bill_replay
from ctxkit.metrics.prompt_sizes import RunPromptSizes
from ctxkit.policies import triggers
from ctxkit.policies.context_rules import Rules
from ctxkit.policies.offline_summarisers import FixedSizeSummariser
from ctxkit.policies.summary_compaction import Summary

if TYPE_CHECKING:
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes import MessageSizes


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


class TriggerReplays:
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
            log = build_replay_log(self._session, self._anchored, rules, None, self._build_log)
            run = run_rules(log, rules)
            prompts = RunPromptSizes(run)
            written = [s for c in get_run_compactions(run, prompts) for s in c.summaries]
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
