"""Due by what the last reply's usage said, looked at before a request is taken in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.policies.dues import Due
from ctxkit.policies.summary_places import asks_anew

if TYPE_CHECKING:
    from ctxkit.history import Log
    from ctxkit.policies.policy import Forecast
    from ctxkit.tokens.counters import Room


@dataclass(frozen=True)
class LastTotal(Due):
    """Due before a new request where the last reply and its prompt are over the window less the
    reserve.

    As Pi's `_checkCompaction` has it: of failed replies nothing is known, so what came behind the
    last good one is added as counted; a reply from before the last compaction says nothing.
    """

    word = "window_size"

    waits: bool = False
    """A reply broken off, and billed nothing, is taken at its word: not due (Pi before 1.5.2)."""

    def tokens(self, room: Room) -> float:
        """Return the window less the reserve."""
        return room.budget

    def first(self, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call with a new request behind such a reply."""
        log, since, limit = forecast.log, forecast.history.since, self.tokens(forecast.room)
        for call in range(max(start, 1), stop):
            request = log.upto[call] - 1
            if not asks_anew(log, request, call) or (self.waits and broken_off(log, call)):
                continue
            last = last_good(log, call)
            if last >= since and self.total(forecast, last, request) > limit:
                return call
        return stop

    @staticmethod
    def total(forecast: Forecast, last: int, request: int) -> int:
        """Return the tokens of a call with its reply, and of what came between it and a request."""
        log = forecast.log
        first = log.upto[last]
        between = log.tokens.P[max(request, first)] - log.tokens.P[first]
        reply = log.replies[last]
        usage = reply.usage if reply is not None and reply.visible else None
        if usage is not None and usage.output_tokens:
            between += usage.output_tokens - (log.tokens.sizes[first] if first < request else 0)
        return int(forecast.prompts(last, last + 1)[0]) + between


def broken_off(log: Log, call: int) -> bool:
    """Say whether the reply before a call was aborted and tells no usage."""
    reply = log.replies[call - 1]
    if reply is None or reply.stop != "aborted":
        return False
    return reply.usage is None or not reply.usage.prompt_tokens


def last_good(log: Log, call: int) -> int:
    """Return the last call before another whose reply did not fail; -1 where there is none."""
    for before in range(call - 1, -1, -1):
        reply = log.replies[before]
        if reply is not None and not reply.is_error:
            return before
    return -1
