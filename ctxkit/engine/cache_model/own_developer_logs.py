"""The logs of one developer: when the last one was before a session, and what they teach."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.engine.cache_model.call_features import measure_start, select_billed_calls
from ctxkit.engine.cache_model.training_counts import count_session, is_informative

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.engine.cache_model.training_counts import SessionCounts
    from ctxkit.session.session import Session

OWN_DEVELOPER = "own"
"""Owner of the counts of a developer's own logs."""


class DeveloperLogs:
    """Sessions of one developer, such as those of a folder of logs.

    Cost: O(calls) once; a lookup is O(log calls).

    Args:
        sessions: sessions with their subagents, in any order; the predicted one may be among them.
    """

    def __init__(self, sessions: Iterable[Session] = ()) -> None:
        every = (s for session in sessions for s in (session, *session.children))
        self.sessions = list({session.id: session for session in every}.values())
        self._times = defaultdict[tuple[str, str | None], list[tuple[float, str]]](list)
        for session in self.sessions:
            for call in session.calls:
                if call.message.time is not None:
                    key = session.format, call.message.model
                    self._times[key].append((call.message.time, session.id))
        for times in self._times.values():
            times.sort()

    def measure_idle(self, session: Session) -> float | None:
        """Return the seconds from the last call in other logs to a session's first call.

        Only calls of the same program and model count, as a cache belongs to a model.

        Returns:
            Infinite where no such call is before; None without other logs, or without times.
        """
        billed = select_billed_calls(session)
        start = measure_start(session, billed[0]) if billed else None
        if start is None or all(log.id == session.id for log in self.sessions):
            return None
        times = self._times.get((session.format, billed[0].message.model), [])
        at = bisect_right(times, start, key=lambda entry: entry[0]) - 1
        while at >= 0 and times[at][1] == session.id:
            at -= 1
        return start - times[at][0] if at >= 0 else inf

    @cached_property
    def counts(self) -> list[SessionCounts]:
        """Counts of the logs that show a cache."""
        return [
            replace(count_session(log, idle=self.measure_idle(log)), developer=OWN_DEVELOPER)
            for log in self.sessions
            if is_informative(log)
        ]
