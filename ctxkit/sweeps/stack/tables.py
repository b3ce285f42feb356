"""Logs laid end to end as one, with fences: every column an array, so that one search serves all sessions."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history import ASSISTANT, ROLES, SUMMARY, SYSTEM, USER
from ctxkit.policies.outlooks import turn_at
from ctxkit.policies.triggers import _overflowed, after_replies
from ctxkit.sweeps.stack.rising import Rising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.history import Log
    from ctxkit.history.columns import Measure

    Ints = NDArray[Any]
    Flags = NDArray[Any]
"""Columns."""


def fits(log: Log) -> bool:
    """Say whether a log can be laid among others: it only rises, and what stays is its system prompt, in front."""
    stay = len(log.stays)
    if not log.calls or not log.tokens.rising or not log.estimates.rising or SUMMARY in log.roles:
        return False
    if log.stays != list(range(stay)) or log.of_role[SYSTEM] != log.stays or stay > log.upto[0] or stay >= 50:
        return False
    return all(_safe(log, stay + 1))


class Table:
    """Columns over the rows and calls of several logs. Each log has one slot more than rows, and one more than calls.

    Running sums start where those of the log before ended, so they rise over all logs and can be searched as one; the
    difference cancels out of every size: `offset + C[call]`.
    """

    def __init__(self, logs: Sequence[Log]) -> None:
        self.logs = logs
        self.rows = _fences(len(log) + 1 for log in logs)
        """First row of each log, and the end."""
        self.calls = _fences(log.calls + 1 for log in logs)
        self.begin, self.stop = self.calls[:-1], self.calls[1:] - 1
        """First call of each log, and one past its last."""
        self.stay = np.array([len(log.stays) for log in logs], np.int64)
        """Rows in front that no policy may remove."""
        self.start = self.rows[:-1] + self.stay
        """The first row that may go."""
        self.tokens = Sizes([log.tokens for log in logs], self)
        self.upto = self.by_call(lambda log: [*log.upto, len(log)]) + np.repeat(self.rows[:-1], np.diff(self.calls))
        """For each call the end of its rows."""
        self._cold: dict[float, tuple[Flags, Ints, Ints, Ints]] = {}

    def by_row(self, column: Callable[[Log], Iterable[Any]], dtype: Any = np.int64) -> NDArray[Any]:
        """Return a column over the rows, one value a slot."""
        return np.concatenate([np.asarray(column(log), dtype) for log in self.logs])

    by_call = by_row

    @cached_property
    def estimates(self) -> Sizes:
        """Sizes in the measure that the system believes in; the tokens where it has none of its own."""
        if all(log.estimates is log.tokens for log in self.logs):
            return self.tokens
        return Sizes([log.estimates for log in self.logs], self)

    @cached_property
    def fixed(self) -> Ints:
        """For each call the tokens of its prompt that no message holds."""
        return self.by_call(lambda log: [*log.fixed_at, log.fixed])

    # -- where a cut is safe -------------------------------------------------------------------------------------------

    @cached_property
    def safe(self) -> Flags:
        """True for rows before which a cut parts no call from its results."""
        return self.by_row(lambda log: [*_safe(log), False], np.bool_)

    @cached_property
    def next_cut(self) -> Ints:
        """For each row the first safe cut from it on; the log's last slot where there is none."""
        return self._next(self.safe)

    @cached_property
    def cut_before(self) -> Ints:
        """For each row the last safe cut up to it."""
        n = len(self.safe)
        return np.asarray(np.maximum.accumulate(np.where(self.safe, np.arange(n), 0)))

    @cached_property
    def next_pair(self) -> Ints:
        """For each row the first safe cut from it on that parts no reply from its question."""
        role = self.by_row(lambda log: [*log.roles, -1])
        answers = (role == ASSISTANT) & (np.roll(role, 1) == USER)
        return self._next(self.safe & ~answers)

    def _next(self, ok: Flags) -> Ints:
        n, last = len(ok), np.repeat(self.rows[1:] - 1, np.diff(self.rows))
        found = np.minimum.accumulate(np.where(ok, np.arange(n), n)[::-1])[::-1]
        return np.asarray(np.minimum(found, last))

    # -- who said what -------------------------------------------------------------------------------------------------

    @cached_property
    def users(self) -> Ints:
        """The rows that a user said."""
        where = [
            np.asarray(log.of_role[USER], np.int64) + first for log, first in zip(self.logs, self.rows, strict=False)
        ]
        return np.concatenate([*where, [self.rows[-1]]])

    @cached_property
    def asked(self) -> Ints:
        """For each row how many of `users` come before it."""
        return np.searchsorted(self.users, np.arange(self.rows[-1] + 1)).astype(np.int64)

    def said(self, roles: tuple[str, ...]) -> tuple[Ints, Ints]:
        """Return how many messages of these roles (none: of any) come before each call, and before each row.

        Both rise over all logs.
        """
        codes = [ROLES.index(r) for r in roles] or range(len(ROLES))
        own = [[sum(log.counts[c][r] for c in codes) for r in range(len(log) + 1)] for log in self.logs]
        by_row = _stacked(own)
        return by_row[self.upto], by_row

    @cached_property
    def turns(self) -> Ints | None:
        """For each call its turn, rising over all logs; None where one log's turns fall."""
        own = [[turn_at(log, c) for c in range(log.calls + 1)] for log in self.logs]
        return _stacked(own) if all(a <= b for o in own for a, b in pairwise(o)) else None

    @property
    def one_agent(self) -> bool:
        """True where each log has one agent."""
        return all(log.one_agent for log in self.logs)

    # -- calls at which something is due -------------------------------------------------------------------------------

    def after(self, kind: str, value: float = 0.0) -> Ints:
        """Return for each call the first one from it on that is due by the clock or by the reply before."""
        due = np.zeros(self.calls[-1], bool)
        for log, first in zip(self.logs, self.calls, strict=False):
            due[np.asarray(_due(log, kind, value), np.int64) + first] = True
        n = len(due)
        found = np.minimum.accumulate(np.where(due, np.arange(n), n)[::-1])[::-1]
        return np.asarray(np.append(found, n))

    def cold(self, life: float) -> tuple[Flags, Ints, Ints, Ints]:
        """Return for each call whether no cache was left, the prompt before, and running sums of `N` and `F`."""
        if life in self._cold:
            return self._cold[life]
        clocks = [log.clock(life) for log in self.logs]
        cold = np.concatenate([[*c.cold, False] for c in clocks]).astype(bool)
        before = np.concatenate([[*[0, *log.tokens.C][: log.calls], 0] for log in self.logs]).astype(np.int64)
        n, f = (np.concatenate([getattr(c, name) for c in clocks]).astype(np.int64) for name in "NF")
        self._cold[life] = cold, before, n, f
        return self._cold[life]


class Sizes:
    """Sizes in one measure: `P` over rows, `C` over calls, `Q` the sum of `C` before each call, all rising."""

    def __init__(self, measures: Sequence[Measure], table: Table) -> None:
        spans = [max([*m.P[-1:], *m.C[-1:]]) + 1 for m in measures]
        self.base = _fences(spans)[:-1]
        """What was added to the sums of each log."""
        rows, calls = np.diff(table.rows), np.diff(table.calls)
        self.P = np.concatenate([np.asarray(m.P, np.int64) for m in measures]) + np.repeat(self.base, rows)
        own = [[*m.C, m.C[-1]] for m in measures]
        self.C = np.concatenate([np.asarray(o, np.int64) for o in own]) + np.repeat(self.base, calls)
        self.Q = np.concatenate(([0], np.cumsum(self.C)[:-1]))
        self.head = self.P[table.start] - self.base
        """Tokens of what stays in front of each log."""
        self.rows, self.calls = Rising(self.P), Rising(self.C)


def _fences(sizes: Iterable[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(np.fromiter(sizes, np.int64))))


def _stacked(parts: Sequence[Sequence[int]]) -> Ints:
    """Return rising numbers of several logs end to end, so that they rise over all."""
    base, out = 0, []
    for part in parts:
        out.append(np.asarray(part, np.int64) - part[0] + base)
        base = int(out[-1][-1]) + 1
    return np.concatenate(out)


def _safe(log: Log, rows: int | None = None) -> list[bool]:
    return [bool(cut) for cut in log.is_cut[:rows]]


def _due(log: Log, kind: str, value: float) -> list[int]:
    if kind == "idle":
        return [c for c in log.clock(value).calls if c]
    if kind == "turn":
        return [c for c, upto in enumerate(log.upto) if upto and log.roles[upto - 1] == USER]
    if kind == "overflow":
        return after_replies(log, "overflow", _overflowed)
    if kind == "length":
        return after_replies(log, "length", lambda m: m.stop == "length")
    return [call for call, _ in log.recorded if call < log.calls]
