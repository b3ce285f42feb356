"""The columnar message log under a history, its call groups and safe cuts, and which calls found a
cold cache.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.history.columns import (
    ASSISTANT,
    ROLE_CODES,
    SYSTEM,
    TOOL,
    USER,
    GrowingColumn,
    SizeSums,
    count_chars,
)
from ctxkit.policies.history.running_turn import RunningTurn
from ctxkit.tokens.exact import MemoizingCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ctxkit.session.messages import Edit, Message
    from ctxkit.tokens.counters import TokenCounter


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
        replies = self.of_role[ASSISTANT]
        bare = bool(replies) and all(r == TOOL for r in self.roles[replies[-1] + 1 :])
        return replies[-1] if bare and self.messages[replies[-1]].tool_calls else row

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


class MessageLog(GroupedRows):
    """What was said, as columns; recorded compactions are lifted out (`recorded`), invisible
    messages left out. Rows count from 0.

    Args:
        counter: counts the tokens of what is written new (summaries, shortened messages).
        fixed: tokens of each prompt that no message holds (system prompt, tool schemas), as far as
            known.
        agent: name of the agent of all messages that name none.
        estimator: counts the sizes that a system itself believes in; None: they are the tokens.
    """

    def __init__(
        self,
        counter: TokenCounter,
        *,
        fixed: int = 0,
        agent: str = "main",
        estimator: TokenCounter | None = None,
    ) -> None:
        super().__init__()
        self.counter, self.agent = counter, agent
        self.fixed = fixed
        """The fixed part of the next call, if nothing else is said."""
        self.fixed_at: list[int] = []
        self.estimator = estimator or counter
        self.tokens = SizeSums()
        self.estimates = self.tokens if estimator is None else SizeSums()
        self.scale = 1.0
        """What the counter's figures are multiplied by, where recorded sizes say that it is off."""
        self.turns: list[int] = []
        self.turn = RunningTurn()
        self.turn_firsts: list[int] = []
        """For each call the row with which its turn begins; never falling."""
        self.counts: tuple[list[int], ...] = tuple([0] for _ in ROLE_CODES)
        self.index: dict[str, int] = {}
        self.sent: list[float] = []
        self.done: list[float] = []
        self.agents: list[str] = []
        self.callers: dict[str, None] = {}
        self.replies: list[Message | None] = []
        self.recorded: list[tuple[int, Edit]] = []
        self.known: Callable[[Message], int | None] = lambda _message: None
        """Recorded sizes of messages that recorded compactions brought."""
        self._names: dict[str, dict[str, int]] = {"agent": {}, "tool": {}}
        self._open = False
        self._answered = False
        self._unsent = 0
        self._columns |= _make_columns(self)

    @classmethod
    def of(cls, messages: Iterable[Message], counter: TokenCounter, **settings: Any) -> MessageLog:
        """Return the log of messages that were sent as they stand, one call before each reply."""
        log = cls(counter, **settings)
        for message in messages:
            log.append(message)
        return log

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def calls(self) -> int:
        """Number of the calls made, an open one included."""
        return len(self.upto)

    def fixed_in(self, call: int) -> int:
        """Return the tokens of a call's fixed part; of one that is yet to come, of the next."""
        return self.fixed_at[call] if call < len(self.fixed_at) else self.fixed

    def fixed_before(self, call: int) -> int:
        """Return the tokens of a call's fixed part that the call before had already."""
        fixed = self.fixed_at
        return min(fixed[max(call - 1, 0)], fixed[call])

    def turn_first(self, call: int) -> int:
        """Return the row with which a call's turn begins; of one that is yet to come, as it stands.

        What stands before it is history; the rest is said by the turn itself, but what is
        `turn.past_at_once`.
        """
        firsts = self.turn_firsts
        return firsts[call] if call < len(firsts) else self.turn.coming(len(self.messages))

    # -- growing ----------------------------------------------------------------------------------

    def open(
        self,
        time: float | None = None,
        agent: str | None = None,
        fixed: int | None = None,
        *,
        implied: bool = False,
    ) -> int:
        """Write that a call is about to be sent all the rows so far; return its number.

        Args:
            time: when, in seconds since 1970.
            agent: who makes it; None: the log's own agent.
            fixed: tokens of its prompt that no message holds; None: as many as the call before.
            implied: it is only known by its reply.
        """
        self.fixed = self.fixed if fixed is None else fixed
        self.fixed_at.append(self.fixed)
        self.upto.append(len(self.messages))
        self.turn_firsts.append(self.turn.open(len(self.messages), implied=implied))
        self.tokens.call(len(self.messages), self.fixed)
        if self.estimates is not self.tokens:
            self.estimates.call(len(self.messages))
        self.sent.append(nan if time is None else time)
        self.done.append(self.sent[-1])
        self.agents.append(agent or self.agent)
        self.replies.append(None)
        self.callers.setdefault(self.agents[-1])
        self._open = True
        return len(self.upto) - 1

    def append(
        self,
        message: Message,
        tokens: int | None = None,
        estimate: int | None = None,
        turn: int | None = None,
    ) -> None:
        """Write a message; before a reply for which no call was opened, a call is opened.

        Args:
            message: an invisible one is no row (but an invisible reply was a call all the same).
            tokens: its size; None counts it.
            estimate: its size in the second measure; None counts it.
            turn: its turn; None works it out (one turn an input, or what the message says).
        """
        role = ROLE_CODES[message.role]
        if role == ASSISTANT:
            self._reply(message)
        if not message.visible:
            self._weigh_unsent(message, role)
            return
        row = len(self.messages)
        self.messages.append(message)
        self.index.setdefault(message.id, row)
        self.tokens.row(self._counted(message, self.counter.message) if tokens is None else tokens)
        if self.estimates is not self.tokens:
            agent = self.estimator.message(message) if estimate is None else estimate
            self.estimates.row(agent + self._unsent)
            self._unsent = 0
        self.turns.append(self._turn(message, role) if turn is None else turn)
        self.first_calls.append(len(self.upto))
        for counts in self.counts:
            counts.append(counts[-1])
        self.counts[role][-1] += 1
        self.roles.append(role)
        self.of_role[role].append(row)
        self._bind(message, role, row)
        self.turn.add(row, role, message, group=self.groups[row], number=self.turns[row])

    def _weigh_unsent(self, message: Message, role: int) -> None:
        """Put a failed reply, where the system's own measure counts it, on the message behind it.

        So the place at which so much is reached stays the system's: a cut at the reply is one at
        the message behind it.
        """
        if role == ASSISTANT and message.is_error and getattr(self.estimator, "unsent", False):
            self._unsent += self.estimator.message(message)

    def measure(self, message: Message, row: int = -1) -> int:
        """Return the tokens of a message that is no row: one text has one size, whoever put it
        there.

        It is counted, and corrected by the log's `scale`. What has no more characters than the row
        that it was made from has no more tokens either, whatever that row was recorded with.
        """
        count = self.counter.message
        if row < 0 and isinstance(self.counter, MemoizingCounter):
            count = self.counter.composed  # rules say the same lines again and again
        new = self._counted(message, count)
        most = new if row < 0 else self.tokens.sizes[row]
        return (
            most if new > most and count_chars(message) <= count_chars(self.messages[row]) else new
        )

    def _counted(self, message: Message, count: Callable[[Message], int]) -> int:
        cache = self.known(message)
        if cache is not None:
            return cache
        return count(message) if self.scale == 1.0 else round(count(message) * self.scale)

    def _reply(self, message: Message) -> None:
        if not self._open:
            cache = message.time is not None and message.latency is not None
            before = self.messages[-1].time if self.messages else None
            sent = message.time - message.latency if cache else before  # type: ignore[operator]
            self.open(sent, message.agent, implied=True)
        if message.time is not None:
            self.done[-1] = message.time
        self.replies[-1] = message
        self._open = False

    def _turn(self, message: Message, role: int) -> int:
        turn = self.turns[-1] if self.turns else 0
        if message.turn is not None:
            self._answered = False
            return message.turn
        if role in (ASSISTANT, TOOL):
            self._answered = True
        elif role == USER and self._answered:
            self._answered = False
            return turn + 1
        return turn

    def owe(self, tokens: int) -> None:
        """Bill the last call so many tokens more than was known when it was sent."""
        self.tokens.owe(tokens)
        self.memo.pop("spending", None)

    # -- reading ----------------------------------------------------------------------------------

    def column(self, name: str, n: int | None = None) -> NDArray[Any]:
        """Return one value a row for the first `n` rows (None: all), as an array that must not be
        written to.

        Names: `tokens estimates chars roles turns calls groups agents tools times errors asks
        thinks stays`. `calls` is the call at which a row was first in the prompt, `groups` the row
        of the reply that a row belongs to, `agents` and `tools` are codes (see `code`), `times` are
        seconds since 1970 (NaN: unknown), `asks` and `thinks` say whether it holds tool calls and
        thinking.
        """
        return self._columns[name].upto(len(self.messages) if n is None else n)

    def code(self, kind: str, name: str) -> int:
        """Return the code of an `agent` or `tool` in its column; a new name gets a new code."""
        names = self._names[kind]
        return names.setdefault(name, len(names))

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of the `agent`s or `tool`s by their codes; no tool: ``""``."""
        self.column(f"{kind}s")
        return tuple(self._names[kind])

    @property
    def one_agent(self) -> bool:
        """True where all calls are one agent's."""
        return len(self.callers) <= 1

    def spending(self) -> dict[str, tuple[list[int], list[int]]]:
        """Return for each agent running sums over the calls before each: how many were its own, and
        their sizes.
        """
        Q = self.tokens.Q  # noqa: N806  as it is called there
        sums: dict[str, tuple[list[int], list[int]]] = self.memo.setdefault("spending", {})
        for name in self.callers:
            sums.setdefault(name, ([0], [0]))
        for name, (n, sizes) in sums.items():
            for call in range(len(n) - 1, len(self.upto)):
                agent_sums = self.agents[call] == name
                n.append(n[-1] + agent_sums)
                sizes.append(sizes[-1] + (Q[call + 1] - Q[call] if agent_sums else 0))
        return sums


def _make_columns(log: MessageLog) -> dict[str, GrowingColumn]:
    """Return the columns of a log, each made from its rows on demand."""
    part = {
        "tokens": (log.tokens.sizes, np.int64),
        "estimates": (log.estimates.sizes, np.int64),
        "roles": (log.roles, np.int8),
        "turns": (log.turns, np.int64),
        "calls": (log.first_calls, np.int64),
        "groups": (log.groups, np.int64),
    }
    columns = {
        name: GrowingColumn(lambda a, b, x=values: x[a:b], kind)  # type: ignore[misc]
        for name, (values, kind) in part.items()
    }

    def made(each: Any, kind: Any) -> GrowingColumn:
        return GrowingColumn(lambda a, b: [each(row) for row in range(a, b)], kind)

    messages = log.messages
    columns["chars"] = GrowingColumn(lambda a, b: [count_chars(m) for m in messages[a:b]], np.int64)
    columns["times"] = made(
        lambda r: nan if messages[r].time is None else messages[r].time, np.float64
    )
    columns["errors"] = made(lambda r: messages[r].is_error, np.bool_)
    columns["asks"] = made(lambda r: bool(messages[r].tool_calls), np.bool_)
    columns["thinks"] = made(lambda r: messages[r].thinks, np.bool_)
    columns["agents"] = made(lambda r: log.code("agent", messages[r].agent or log.agent), np.int64)
    columns["tools"] = made(lambda r: log.code("tool", log.tool(r)), np.int64)
    return columns


class CacheClock:
    """Calls that found the cache cold, and running sums over the calls before each, as they would
    be without edits.

    The first call is cold; another one where it was sent `life` seconds or more after the one
    before was done. Where a time is unknown the cache counts as warm. `N[c]` cold calls come before
    call `c`; `F[c]` is what the calls before it were sent that no cache held: all that a cold one
    was sent, and what a warm one had more than the one before.
    """

    __slots__ = ("F", "N", "_fresh", "calls", "cold", "life", "log")

    def __init__(self, log: MessageLog, life: float) -> None:
        if not life > 0:
            raise BadArguments(
                f"A cache that lives {life} seconds is none; give a number above 0, or infinity."
            )
        self.log, self.life = log, life
        self.cold: list[bool] = []
        self.calls: list[int] = []
        self.N: list[int] = [0]
        self.F: list[int] = [0]
        self._fresh = GrowingColumn(
            lambda a, b: [new - old for old, new in pairwise(self.F[a : b + 1])], np.int64
        )

    @classmethod
    def of(cls, log: MessageLog, life: float) -> CacheClock:
        """Return the clock of a log, made once for each `life` and brought up to its calls."""
        key = ("clock", life)
        clock: CacheClock | None = log.memo.get(key)
        if clock is None:
            clock = log.memo[key] = cls(log, life)
        return clock.sync()

    def sync(self) -> CacheClock:
        """Bring the columns up to the calls that the log has by now."""
        log, known, fixed = self.log, len(self.cold), self.log.fixed_at
        if known == len(log.upto):
            return self
        sent, done, sizes = log.sent, log.done, log.tokens.C
        for c in range(known, len(log.upto)):
            cold = c == 0 or sent[c] - done[c - 1] >= self.life
            shrunk = 0 if cold else max(fixed[c - 1] - fixed[c], 0)
            more = sizes[c] if cold else max(sizes[c] + shrunk - sizes[c - 1], 0)
            self.cold.append(cold)
            if cold:
                self.calls.append(c)
            self.N.append(self.N[-1] + cold)
            self.F.append(self.F[-1] + more)
        return self

    def alive(self, before: int, call: int) -> bool:
        """Return True where the cache of one call is still there at a later one; unknown: it is."""
        return not self.log.sent[call] - self.log.done[before] >= self.life

    def fresh(self, upto: int) -> NDArray[Any]:
        """Return the tokens that each call before `upto` was sent and no cache held, not to be
        written to.
        """
        return self._fresh.upto(upto)
