"""The log under a history: one row a message that can be sent, one entry a call; it only grows."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history.columns import (
    ASSISTANT,
    ROLE_CODES,
    TOOL,
    USER,
    GrowingColumn,
    Measure,
    chars,
)
from ctxkit.history.grouped_rows import GroupedRows
from ctxkit.history.running_turn import RunningTurn
from ctxkit.tokens.encoders import Remembering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ctxkit.messages import Edit, Message
    from ctxkit.tokens.counters import Counter


class Log(GroupedRows):
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
        counter: Counter,
        *,
        fixed: int = 0,
        agent: str = "main",
        estimator: Counter | None = None,
    ) -> None:
        super().__init__()
        self.counter, self.agent = counter, agent
        self.fixed = fixed
        """The fixed part of the next call, if nothing else is said."""
        self.fixed_at: list[int] = []
        self.estimator = estimator or counter
        self.tokens = Measure()
        self.estimates = self.tokens if estimator is None else Measure()
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
        self._columns |= _columns(self)

    @classmethod
    def of(cls, messages: Iterable[Message], counter: Counter, **settings: Any) -> Log:
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
            own = self.estimator.message(message) if estimate is None else estimate
            self.estimates.row(own + self._unsent)
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
        if row < 0 and isinstance(self.counter, Remembering):
            count = self.counter.composed  # rules say the same lines again and again
        new = self._counted(message, count)
        most = new if row < 0 else self.tokens.sizes[row]
        return most if new > most and chars(message) <= chars(self.messages[row]) else new

    def _counted(self, message: Message, count: Callable[[Message], int]) -> int:
        known = self.known(message)
        if known is not None:
            return known
        return count(message) if self.scale == 1.0 else round(count(message) * self.scale)

    def _reply(self, message: Message) -> None:
        if not self._open:
            known = message.time is not None and message.latency is not None
            before = self.messages[-1].time if self.messages else None
            sent = message.time - message.latency if known else before  # type: ignore[operator]
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
        known: dict[str, tuple[list[int], list[int]]] = self.memo.setdefault("spending", {})
        for name in self.callers:
            known.setdefault(name, ([0], [0]))
        for name, (n, sizes) in known.items():
            for call in range(len(n) - 1, len(self.upto)):
                own = self.agents[call] == name
                n.append(n[-1] + own)
                sizes.append(sizes[-1] + (Q[call + 1] - Q[call] if own else 0))
        return known


def _columns(log: Log) -> dict[str, GrowingColumn]:
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
    columns["chars"] = GrowingColumn(lambda a, b: [chars(m) for m in messages[a:b]], np.int64)
    columns["times"] = made(
        lambda r: nan if messages[r].time is None else messages[r].time, np.float64
    )
    columns["errors"] = made(lambda r: messages[r].is_error, np.bool_)
    columns["asks"] = made(lambda r: bool(messages[r].tool_calls), np.bool_)
    columns["thinks"] = made(lambda r: messages[r].thinks, np.bool_)
    columns["agents"] = made(lambda r: log.code("agent", messages[r].agent or log.agent), np.int64)
    columns["tools"] = made(lambda r: log.code("tool", log.tool(r)), np.int64)
    return columns
