"""The rows of a log in groups: what goes together, what stays, and where a cut is safe."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history.columns import ASSISTANT, ROLE_CODES, SYSTEM, TOOL, GrowingColumn

if TYPE_CHECKING:
    from ctxkit.messages import Message


class GroupedRows:
    """One row a message, in groups.

    A *group* is an assistant message with the results of its tool calls: it stays together or goes
    together. A *cut* before a row is safe where no group lies on both sides. Rows that *stay* are
    those of role `system`, pinned and pending ones, with their groups.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.roles: list[int] = []
        self.of_role: tuple[list[int], ...] = tuple([] for _ in ROLE_CODES)
        self.first_calls: list[int] = []
        self.upto: list[int] = []
        self.groups: list[int] = []
        self.results: dict[int, list[int]] = {}
        self.stays: list[int] = []
        """Rows that stay, rising."""
        self.is_cut = bytearray()
        """1 for each row before which a cut is safe."""
        self.late_stays: dict[int, int] = {}
        """Rows that came to stay after their first call, and since which call they do."""
        self.late_cuts: dict[int, int] = {}
        """Rows before which a cut is safe no more, and since which call: a result came late."""
        self.memo: dict[Any, Any] = {}
        """Tables that triggers and prunings derive from this log, by their own keys."""
        self._stay: set[int] = set()
        self._asked: dict[str, int] = {}
        self._columns = {
            "stays": GrowingColumn(lambda a, b: [self.stays_in(r) for r in range(a, b)], np.bool_)
        }

    def _bind(self, message: Message, role: int, row: int) -> None:
        """Put the row into its group, and mark where a cut is safe."""
        group = self._asker(message, row) if role == TOOL else row
        if role == ASSISTANT:
            self._asked.update({call.id: row for call in message.tool_calls})
        self.groups.append(group)
        self.is_cut.append(group == row)
        if group != row:
            self.results.setdefault(group, []).append(row)
            call = len(self.upto)
            for r in range(group + 1, row):  # nothing between a result and its call can be cut
                if self.is_cut[r]:
                    self.is_cut[r] = 0
                    if self.first_calls[r] < call:
                        self.late_cuts[r] = call
        if role == SYSTEM or message.pinned or message.pending or group in self._stay:
            self._keep(group)

    def _asker(self, message: Message, row: int) -> int:
        """Return the row of the call that a result answers; its own where the log has none."""
        if message.call_id:
            return self._asked.get(message.call_id, row)
        asked = self.of_role[ASSISTANT]
        bare = bool(asked) and all(r == TOOL for r in self.roles[asked[-1] + 1 :])
        return asked[-1] if bare and self.messages[asked[-1]].tool_calls else row

    def _keep(self, group: int) -> None:
        new = [r for r in (group, *self.results.get(group, ())) if r not in self._stay]
        if not new:
            return
        self._stay.update(new)
        self.stays.extend(new)
        if len(self.stays) > len(new) and self.stays[-len(new) - 1] > new[0]:
            self.stays.sort()
        call = len(self.upto)
        self.late_stays.update({r: call for r in new if self.first_calls[r] < call})
        self._columns["stays"].forget(new[0])

    def stays_in(self, row: int, call: float = inf) -> bool:
        """Return True where no policy may remove the row, as of a call."""
        return row in self._stay and self.late_stays.get(row, 0) <= call

    def stays_at(self, call: int) -> list[int]:
        """Return the rows that stay as of a call, rising; later ones may be among them."""
        if not self._later(self.late_stays, call):
            return self.stays
        return [r for r in self.stays if self.late_stays.get(r, 0) <= call]

    def cuts_at(self, call: int) -> bytearray:
        """Return 1 for each row before which a cut is safe as of a call; not to be written to."""
        if not self._later(self.late_cuts, call):
            return self.is_cut
        known: tuple[int, int, bytearray] | None = self.memo.get("cuts at")
        if known is None or known[:2] != (call, len(self.is_cut)):
            cuts = bytearray(self.is_cut)
            for row, since in self.late_cuts.items():
                cuts[row] = since > call
            known = self.memo["cuts at"] = call, len(cuts), cuts
        return known[2]

    @staticmethod
    def _later(late: dict[int, int], call: int) -> bool:
        """Return True where something came late, after a call: marks are in the order of calls."""
        return bool(late) and next(reversed(late.values())) > call

    def tool(self, row: int) -> str:
        """Return the name of the tool whose result the row is, or an empty string."""
        message = self.messages[row]
        if message.tool or self.roles[row] != TOOL or self.groups[row] == row:
            return message.tool or ""
        calls = self.messages[self.groups[row]].tool_calls
        return next((c.name for c in calls if c.id == message.call_id), "")
