"""Prompt sizes of coming calls without pruning, from running sums, for triggers to search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from math import floor
from typing import TYPE_CHECKING, Any

from ctxkit.policies.history.history_view_and_searches import get_role_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.policies.history.history import History
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.tokens.token_counters import ContextBudget

    BilledSizes = Callable[[int, int], list[int]]
    """Returns the billed prompt tokens of the calls start..stop."""


def estimate_tokens_rounded_as_system(history: History) -> int:
    """Return the estimate of a history's messages, rounded as the system rounds: each, or once."""
    estimator = history.log.estimator
    if getattr(estimator, "scope", "") != "total" or getattr(estimator, "rounding", "") != "ceil":
        return history.estimated
    # rounding once differs by less than a token a message
    total = estimator.total(history.messages)
    return max(total, history.estimated - len(history))


class UnprunedForecast:
    """Prompt sizes if nothing is compacted or pruned from now on.

    The size of a call is a constant (what the edited head differs from the log) plus a running sum
    over the log, which never falls, so a search is a bisection: O(log n) per question.

    Args:
        history: the history in force at the first call that is searched.
        budget: the limit that triggers compare with, in tokens, and the reserve.
        sent: returns billed tokens where the bill differs from the counted prompts; None: it does
            not.

    Example:
        >>> import ctxkit as ck
        >>> counter = ck.tokens.default_counter()
        >>> log = ck.policies.MessageLog.of(ck.read(ck.samples.path("chat")).messages, counter)
        >>> history, budget = ck.policies.History.start(log), ck.ContextBudget(200_000, 0, counter)
        >>> forecast = UnprunedForecast(history, budget)
        >>> first = forecast.above(4_000, 0, log.calls)
        >>> history.at(first - 1).tokens <= 4_000 < history.at(first).tokens
        True
    """

    __slots__ = ("budget", "history", "log", "off", "sent")

    def __init__(
        self, history: History, budget: ContextBudget, sent: BilledSizes | None = None
    ) -> None:
        self.history, self.budget, self.sent = history, budget, sent
        self.log: MessageLog = history.log
        tokens = self.log.tokens
        self.off = history.head.tokens - tokens.P[history.lo]

    # -- searches of triggers ----------------------------------------------------------------------

    def above(self, limit: float, start: int, stop: int, estimated: bool = False) -> int:
        """Return the first call in start..stop whose prompt is above `limit`; `stop`: none is.

        Args:
            limit: tokens.
            start: first call.
            stop: one past the last call.
            estimated: compare the system's own estimate of the messages, not the counted prompt.
        """
        if start >= len(self.log.upto):  # a compaction by hand, before the call is opened
            coming = self.history.at(start)
            size = estimate_tokens_rounded_as_system(coming) if estimated else coming.tokens
            return start if size > limit else stop
        if estimated:
            return self._above_estimate(limit, start, stop)
        # Subtract the constant from the limit, and search the running sums of the log.
        tokens = self.log.tokens
        if tokens.rising:
            return bisect_right(tokens.C, limit - self.off, start, stop)
        return tokens.above(limit - self.off, start, stop)

    def _above_estimate(self, limit: float, start: int, stop: int) -> int:
        # The running sums add up messages rounded one by one. Where the system rounds their total
        # up instead, it is never more than such a sum, and never grows by more. So where a call is
        # too small by its total, the search goes on where the sum has grown by what is missing.
        estimates, off = self.log.estimates, self.history.head.estimate
        off -= estimates.P[self.history.lo]
        call = estimates.above(limit - off, start, stop)
        while call < stop:
            history = self.history.at(call)
            missing = floor(limit) + 1 - estimate_tokens_rounded_as_system(history)
            if missing <= 0:
                return call
            call = estimates.above(history.estimated + missing - 1 - off, call + 1, stop)
        return stop

    def count(self, n: int, roles: tuple[str, ...], start: int, stop: int) -> int:
        """Return the first call with `n` messages of these roles (none: of any)."""
        h, log = self.history, self.log
        if start >= log.calls:
            coming = h.at(start)
            return start if (coming.count(*roles) if roles else len(coming)) >= n else stop
        if not roles:
            return bisect_left(log.upto, n - h.head.size + h.lo, start, stop)
        codes = [get_role_code(r) for r in roles]
        in_tail = n - sum(h.head.count(log, c) - log.counts[c][h.lo] for c in codes)
        if len(codes) == 1:
            return bisect_left(log.upto, bisect_left(log.counts[codes[0]], in_tail), start, stop)
        return _bisect_true(
            lambda call: sum(log.counts[c][log.upto[call]] for c in codes) >= in_tail, start, stop
        )

    def turns(self, n: int, start: int, stop: int) -> int:
        """Return the first call at which `n` turns have begun since the last compaction."""
        log = self.log
        target = get_turn_of_call(log, self.history.since) + n
        return _bisect_true(lambda call: get_turn_of_call(log, call) >= target, start, stop)

    def spent(self, limit: float, start: int, stop: int, *, agent: str | None = None) -> int:
        """Return the first call by which prompts sum up to `limit` since the last compaction."""
        # Sum of prompts since the compaction: the constant once per call, plus a running sum.
        log, since, off = self.log, self.history.since, self.off
        if agent is None and log.one_agent:
            sums = log.tokens.Q
            target = limit + sums[since]
            return _bisect_true(
                lambda call: off * (call - since) + sums[call] >= target, start, stop
            )
        for name in log.spending() if agent is None else [agent]:
            agent_sums = log.spending().get(name)
            if agent_sums is not None:
                stop = self._spent_by(agent_sums, limit, start, stop)
        return stop

    def _spent_by(
        self, agent_sums: tuple[list[int], list[int]], limit: float, start: int, stop: int
    ) -> int:
        """Return the first call at which one agent's prompts sum up to `limit`."""
        calls, sizes = agent_sums
        off, since = self.off, self.history.since
        target, before = limit + sizes[since], calls[since]
        return _bisect_true(
            lambda call: off * (calls[call] - before) + sizes[call] >= target, start, stop
        )

    def turn_spent(self, limit: float, start: int, stop: int) -> int:
        """Return the first call at which the prompts of a turn sum up to more than `limit`."""
        log, since = self.log, self.history.since
        # Go back to the first call of the turn before that of `start`, but not past a compaction.
        begin = start
        while (
            begin > since and get_turn_of_call(log, begin - 1) >= get_turn_of_call(log, start) - 1
        ):
            begin -= 1
        # Sizes: of past calls as billed, of coming ones as forecast, with their extra tokens.
        past = list(self.sent(begin, start)) if self.sent else []
        Q, C = log.tokens.Q, log.tokens.C  # noqa: N806  as they are called there
        rest = range(begin + len(past), stop)
        sizes = [*past, *(self.size(c) + Q[c + 1] - Q[c] - C[c] for c in rest)]
        sums = [0, *accumulate(sizes)]
        # `first` is the first call of the current turn, `previous` the sum of the turn before.
        first = begin
        previous = 0
        for call in range(begin, stop):
            if call > begin and get_turn_of_call(log, call) != get_turn_of_call(log, call - 1):
                previous, first = sums[call - begin] - sums[first - begin], call
            so_far = sums[call - begin] - sums[first - begin]
            if call >= start and (so_far > limit or (so_far == 0 and previous > limit)):
                return call
        return stop

    # -- billing -----------------------------------------------------------------------------------

    def size(self, call: int) -> int:
        """Return the prompt tokens of one call."""
        return self.off + self.log.tokens.C[call]

    def prompts(self, start: int, stop: int) -> NDArray[Any]:
        """Return the prompt tokens of the calls start..stop."""
        return self.log.tokens.calls(start, stop) + self.off


def get_turn_of_call(log: MessageLog, call: int) -> int:
    """Return the number of the turn of a call.

    Args:
        log: the messages and their turns.
        call: number of the call, from 0; the next call is allowed.
    """
    upto = log.upto[call] if call < len(log.upto) else len(log.turns)
    return log.turns[upto - 1] if upto else 0


def _bisect_true(condition: Callable[[int], bool], start: int, stop: int) -> int:
    """Return the first call in start..stop at which a monotonic condition is true, or `stop`."""
    return bisect_left(range(stop), x=True, lo=start, hi=stop, key=condition)
