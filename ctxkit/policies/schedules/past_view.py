"""What the schedule of a filter of history is given: the messages of earlier turns alone."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit.policies.history.view import role_code
from ctxkit.policies.schedules.schedule_input import ScheduleView

if TYPE_CHECKING:
    from collections.abc import Iterator


class PastView(ScheduleView):
    """The same calls, where a message arrives when it becomes history, not when it is said.

    It becomes history at the first call of the next turn; what other agents say is history at once.
    So a filter says nothing of the calls and results of the turn under way, and each turn begins
    with one change of the prompt: what the turn before it said is filtered there.
    """

    @cached_property
    def _became(self) -> list[tuple[int, int]]:
        return self.rows.became_past(self.start, self.stop)

    def arrival(self, p: int) -> int:
        """Return the first call for which a position is history; `NEVER` so far."""
        return self.rows.past_from(p)

    def new(self, *roles: str, tools: tuple[str, ...] = ("*",)) -> Iterator[int]:
        """Yield the messages of some roles (none: of any) that became history; results, of some
        tools.
        """
        codes = {role_code(r) for r in roles}
        for _, p in self._became:
            if (not codes or self.role(p) in codes) and self.is_tool(p, tools):
                yield p

    def _arrivals(self, codes: frozenset[int] | None) -> Iterator[tuple[int, int]]:
        for call, p in self._became:
            if (codes is None or self.role(p) in codes) and self.message(p, call) is not None:
                yield call, p

    def _turn_calls(self) -> set[int]:
        """Return the calls that begin a turn, and those that show its first message."""
        begun = self.rows.turn_changes(self.start, self.stop)
        edges = {self.turn_edge(call) for call in (max(self.start - 1, self.rows.begin), *begun)}
        shown = (self.rows.arrival(p) for p in edges if p < self.shown(self.stop - 1))
        return {*begun, *(call for call in shown if call >= self.start)}
