"""The schedule input of a history filter: only the messages of earlier turns."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit.policies.history.history_view import role_code
from ctxkit.policies.schedules.schedule_method_input import ScheduleView

if TYPE_CHECKING:
    from collections.abc import Iterator


class EarlierTurnsView(ScheduleView):
    """The new calls, where a message arrives when its turn is over, not when it was written.

    That is the first call of the next turn; messages of other agents arrive at once. So a filter
    never changes calls and results of the current turn, and the prompt changes once per turn: at
    its first call, where the messages of the turn before are filtered.
    """

    @cached_property
    def _ended_turns(self) -> list[tuple[int, int]]:
        return self.rows.became_past(self.start, self.stop)

    def arrival(self, p: int) -> int:
        """Return the first call at which the turn of a position is over; `NEVER` so far."""
        return self.rows.past_from(p)

    def new(self, *roles: str, tools: tuple[str, ...] = ("*",)) -> Iterator[int]:
        """Yield the positions whose turn ends, of these roles (none: all) and tools."""
        # A message is new when its turn is over, not when it is written.
        codes = {role_code(r) for r in roles}
        for _, p in self._ended_turns:
            if (not codes or self.role(p) in codes) and self.is_tool(p, tools):
                yield p

    def _arrivals(self, codes: frozenset[int] | None) -> Iterator[tuple[int, int]]:
        for call, p in self._ended_turns:
            if (codes is None or self.role(p) in codes) and self.message(p, call) is not None:
                yield call, p

    def _turn_calls(self) -> set[int]:
        """Return the calls that begin a turn, and those at which its first message arrives."""
        begins = self.rows.turn_changes(self.start, self.stop)
        edges = {self.turn_edge(call) for call in (max(self.start - 1, self.rows.begin), *begins)}
        arrivals = (self.rows.arrival(p) for p in edges if p < self.count_arrived(self.stop - 1))
        return {*begins, *(call for call in arrivals if call >= self.start)}
