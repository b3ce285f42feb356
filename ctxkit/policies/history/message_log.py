"""The columnar message log under a history: call groups, safe cuts, turns, and cold-cache calls."""

from __future__ import annotations

from copy import copy
from itertools import pairwise
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies.history.growing_columns_and_sums import (
    ASSISTANT,
    ROLE_CODES,
    SYSTEM,
    TOOL,
    USER,
    LazyColumn,
    RowAndCallSums,
    count_chars,
)
from ctxkit.session.messages import OTHER_AGENT_KINDS, Thinking, ToolCall
from ctxkit.tokens.exact_counters import MemoizingCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ctxkit.session.messages import Edit, Message
    from ctxkit.tokens.token_counters import TokenCounter


# Layout of a log: lists with one value per row (`messages`, `roles`, `first_calls`, `groups`, ...)
# and lists with one value per call (`upto`, `fixed_at`, `sent`, `end_times`, `replies`, ...).
# Both only grow. A prompt without edits is the rows 0 to ``upto[call]``, so every question about it
# is answered from running sums over rows, by bisection, without looking at messages.
# NumPy columns are derived lazily (`LazyColumn`); values that other code derives from the log
# (extracts, schedules) are cached in `memo` and live as long as the log. What depends on the sizes
# of prompts (clocks, sums) is in `prompt_size_memo`: logs that differ in their fixed parts only
# share all the rest (`with_fixed_parts`).


class CallGroupBoundaries:
    """The rows of a log, one per message, with their groups.

    A *group* is a reply with the results of its tool calls: it is kept or removed as a whole. A
    *cut* before a row is safe where no group has rows on both sides. *Protected* rows are system,
    pinned and pending messages, with their groups; no policy removes them.

    A row appended later can change earlier ones: a late result makes cuts between it and its call
    unsafe, a pinned result protects its reply. Both are recorded with the call from which they
    hold (`late_cuts`, `late_stays`), so that a replay at an earlier call sees the log as of then.
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
        """Protected rows, sorted."""
        self.safe_cuts = bytearray()
        """1 for each row before which a cut is safe."""
        self.late_stays: dict[int, int] = {}
        """Rows that became protected after their first call, and the call since which they are."""
        self.late_cuts: dict[int, int] = {}
        """Rows before which a late result made a cut unsafe, and the call since which it is."""
        self.memo: dict[Any, Any] = {}
        """Caches of values that other code derives from this log, by their own keys; none depends
        on the fixed part of a prompt.
        """
        self._protected: set[int] = set()
        self._call_rows: dict[str, int] = {}
        self._columns = {
            "stays": LazyColumn(lambda a, b: [self.is_protected(r) for r in range(a, b)], np.bool_)
        }

    def _add_to_group(self, message: Message, role: int, row: int) -> None:
        """Add a row to its group, and mark the safe cuts."""
        group = self._calling_row(message, row) if role == TOOL else row
        if role == ASSISTANT:
            self._call_rows.update({call.id: row for call in message.tool_calls})
        self.groups.append(group)
        self.safe_cuts.append(group == row)
        if group != row:
            self.results.setdefault(group, []).append(row)
            call = len(self.upto)
            for r in range(group + 1, row):  # nothing between a result and its call can be cut
                if self.safe_cuts[r]:
                    self.safe_cuts[r] = 0
                    if self.first_calls[r] < call:
                        self.late_cuts[r] = call
        if role == SYSTEM or message.pinned or message.pending or group in self._protected:
            self._protect_group(group)

    def _calling_row(self, message: Message, row: int) -> int:
        """Return the row of the reply whose call a result answers; its own row if there is none."""
        # An id that is used again names the last reply with it.
        if message.call_id:
            return self._call_rows.get(message.call_id, row)
        replies = self.of_role[ASSISTANT]
        # a result without an id belongs to the last reply, if only results follow that
        follows_reply = bool(replies) and all(r == TOOL for r in self.roles[replies[-1] + 1 :])
        return replies[-1] if follows_reply and self.messages[replies[-1]].tool_calls else row

    def _protect_group(self, group: int) -> None:
        new = [r for r in (group, *self.results.get(group, ())) if r not in self._protected]
        if not new:
            return
        self._protected.update(new)
        # Keep the list sorted; nearly always the new rows are the last ones.
        self.stays.extend(new)
        if len(self.stays) > len(new) and self.stays[-len(new) - 1] > new[0]:
            self.stays.sort()
        call = len(self.upto)
        self.late_stays.update({r: call for r in new if self.first_calls[r] < call})
        self._columns["stays"].forget(new[0])

    def is_protected(self, row: int, call: float = inf) -> bool:
        """Return True where a row is protected, as of a call.

        Args:
            row: row of the log, from 0.
            call: number of a call, from 0: rows that become protected later do not count; by
                default all count.
        """
        return row in self._protected and self.late_stays.get(row, 0) <= call

    def get_protected_rows(self, call: int) -> list[int]:
        """Return the protected rows as of a call, sorted; rows after the call may be included."""
        if not self.late_stays or not self._has_mark_after(self.late_stays, call):
            return self.stays
        return [r for r in self.stays if self.late_stays.get(r, 0) <= call]

    def get_safe_cuts(self, call: int) -> bytearray:
        """Return 1 for each row before which a cut is safe as of a call; do not write to it."""
        if not self.late_cuts or not self._has_mark_after(self.late_cuts, call):
            return self.safe_cuts
        cached: tuple[int, int, bytearray] | None = self.memo.get("cuts at")
        if cached is None or cached[:2] != (call, len(self.safe_cuts)):
            cuts = bytearray(self.safe_cuts)
            for row, since in self.late_cuts.items():
                cuts[row] = since > call
            cached = self.memo["cuts at"] = call, len(cuts), cuts
        return cached[2]

    @staticmethod
    def _has_mark_after(late: dict[int, int], call: int) -> bool:
        """Return True where a mark is later than a call; marks are in the order of calls."""
        return next(reversed(late.values())) > call

    def tool(self, row: int) -> str:
        """Return the name of the tool of a result; an empty string for other rows."""
        message = self.messages[row]
        if message.tool:
            return message.tool
        calls = self.messages[self.groups[row]].tool_calls
        return next((c.name for c in calls if c.id == message.call_id), "")


class MessageLog(CallGroupBoundaries):
    """The visible messages of a session as columns, and its calls; both only grow.

    Recorded compactions are not rows, but are in `recorded`. Rows and calls count from 0. Call c
    is sent the rows before ``upto[c]``.

    Args:
        counter: counts the tokens of new text (summaries, shortened messages).
        fixed: tokens of each prompt outside all messages (system prompt, tool schemas), if known.
        agent: name of the agent of messages that name none.
        estimator: the system's own size estimate; None: the same as the tokens.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> log = MessageLog.of(session.messages, ck.tokens.default_counter())
        >>> log.calls == len(session.calls), log.upto[0]
        (True, 2)
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
        """Fixed part of the next call, unless `open` sets another."""
        self.fixed_at: list[int] = []
        self.estimator = estimator or counter
        self.tokens = RowAndCallSums()
        self.estimates = self.tokens if estimator is None else RowAndCallSums()
        self.scale = 1.0
        """Factor that corrects the counter where recorded sizes show a bias."""
        self.prompt_size_memo: dict[Any, Any] = {}
        """Caches, like `memo`, of values that depend on the sizes of prompts."""
        self.turns: list[int] = []
        self.turn = TurnStartTracker()
        self.turn_firsts: list[int] = []
        """For each call the first row of its turn; it never falls."""
        self.counts: tuple[list[int], ...] = tuple([0] for _ in ROLE_CODES)
        self.index: dict[str, int] = {}
        self.sent: list[float] = []
        self.end_times: list[float] = []
        self.agents: list[str] = []
        self.callers: dict[str, None] = {}
        self.replies: list[Message | None] = []
        self.recorded: list[tuple[int, Edit]] = []
        self.recorded_size: Callable[[Message], int | None] = lambda _message: None
        """Recorded sizes of messages that recorded compactions inserted; None: not recorded."""
        self._names: dict[str, dict[str, int]] = {"agent": {}, "tool": {}}
        self._has_open_call = False
        self._has_answer = False
        self._unsent_estimate = 0
        self._shares_rows = False
        self._columns |= _make_columns(self)

    @classmethod
    def of(cls, messages: Iterable[Message], counter: TokenCounter, **settings: Any) -> MessageLog:
        """Return a log of messages, with one call before each reply.

        Args:
            messages: the messages of a conversation, in order.
            counter: counts the tokens of each message.
            settings: `fixed`, `agent` and `estimator`, as in the constructor.
        """
        log = cls(counter, **settings)
        for message in messages:
            log.append(message)
        return log

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def calls(self) -> int:
        """Number of calls, an open one included."""
        return len(self.upto)

    def fixed_in(self, call: int) -> int:
        """Return the tokens of the fixed part of a call; for a future one, of the next call."""
        return self.fixed_at[call] if call < len(self.fixed_at) else self.fixed

    def fixed_before(self, call: int) -> int:
        """Return the tokens of the fixed part that a call shares with the call before."""
        fixed = self.fixed_at
        return min(fixed[max(call - 1, 0)], fixed[call])

    def turn_first(self, call: int) -> int:
        """Return the first row of the turn of a call; for a future call, as of now.

        Rows before it belong to earlier turns, and so do the rows `turn.past_at_once`.
        """
        firsts = self.turn_firsts
        return firsts[call] if call < len(firsts) else self.turn.coming(len(self.messages))

    def with_fixed_parts(self, fixed_at: Sequence[int]) -> MessageLog:
        """Return a log of the same rows and calls, with other fixed parts of the prompts.

        The two logs share all that does not depend on the fixed parts, so neither can grow again.

        Args:
            fixed_at: tokens of the fixed part of each call.
        """
        self._shares_rows = True
        other = copy(self)
        other.fixed_at, other.prompt_size_memo = list(fixed_at), {}
        other.fixed = fixed_at[-1] if fixed_at else self.fixed
        changes = [new - old for new, old in zip(fixed_at, self.fixed_at, strict=True)]
        other.tokens = self.tokens.with_call_changes(changes)
        if self.estimates is self.tokens:
            other.estimates = other.tokens
        return other

    # -- growing ----------------------------------------------------------------------------------

    def open(
        self,
        time: float | None = None,
        agent: str | None = None,
        fixed: int | None = None,
        *,
        implied: bool = False,
    ) -> int:
        """Append a call whose prompt holds all rows so far; return its number.

        Args:
            time: time of sending, in seconds since 1970.
            agent: the agent; None: the agent of the log.
            fixed: tokens of the fixed part; None: as in the call before.
            implied: the call is only known from its reply.
        """
        self._check_growth()
        self.fixed = self.fixed if fixed is None else fixed
        self.fixed_at.append(self.fixed)
        self.upto.append(len(self.messages))
        self.turn_firsts.append(self.turn.open(len(self.messages), implied=implied))
        # The prompt of a call is all rows before it, so its size is a running sum.
        self.tokens.append_call(len(self.messages), self.fixed)
        if self.estimates is not self.tokens:
            self.estimates.append_call(len(self.messages))
        self.sent.append(nan if time is None else time)
        self.end_times.append(self.sent[-1])
        self.agents.append(agent or self.agent)
        self.replies.append(None)
        self.callers.setdefault(self.agents[-1])
        self._has_open_call = True
        return len(self.upto) - 1

    def append(
        self,
        message: Message,
        tokens: int | None = None,
        estimate: int | None = None,
        turn: int | None = None,
    ) -> None:
        """Append a message; a reply without an open call opens one.

        Args:
            message: the message; an invisible one is no row, but an invisible reply is a call.
            tokens: its tokens; None: count them.
            estimate: its size by the estimator; None: count it.
            turn: number of its turn; None: the message's own, else one per user message.
        """
        self._check_growth()
        role = ROLE_CODES[message.role]
        if role == ASSISTANT:
            self._record_reply(message)
        if not message.visible:
            self._carry_unsent_estimate(message, role)
            return
        row = len(self.messages)
        self.messages.append(message)
        self.index.setdefault(message.id, row)
        self.tokens.append_row(
            self._recorded_or_counted(message, self.counter.message) if tokens is None else tokens
        )
        if self.estimates is not self.tokens:
            size = self.estimator.message(message) if estimate is None else estimate
            self.estimates.append_row(size + self._unsent_estimate)
            self._unsent_estimate = 0
        self.turns.append(self._turn_number(message, role) if turn is None else turn)
        self.first_calls.append(len(self.upto))
        for counts in self.counts:
            counts.append(counts[-1])
        self.counts[role][-1] += 1
        self.roles.append(role)
        self.of_role[role].append(row)
        self._add_to_group(message, role, row)
        self.turn.add(row, role, message, group=self.groups[row], number=self.turns[row])

    def _check_growth(self) -> None:
        if self._shares_rows:
            raise BadArguments("Another log shares the rows of this one: build a log that grows.")

    def _carry_unsent_estimate(self, message: Message, role: int) -> None:
        """Add the estimate of a failed reply to the next message, if the estimator counts failures.

        So running sums of estimates equal the system's, and a cut at the failed reply becomes one
        at the message after it.
        """
        if role == ASSISTANT and message.is_error and getattr(self.estimator, "unsent", False):
            self._unsent_estimate += self.estimator.message(message)

    def measure(self, message: Message, row: int = -1) -> int:
        """Return the tokens of a message that is no row, or that replaces one.

        They are counted, and corrected by `scale`. A message with no more characters than the row
        that it replaces has at most the tokens of that row, whatever was recorded for it.

        Args:
            message: the message.
            row: the row that it replaces; -1: none.
        """
        count = self.counter.message
        if row < 0 and isinstance(self.counter, MemoizingCounter):
            count = self.counter.count_composed  # cached: policies write the same lines many times
        tokens = self._recorded_or_counted(message, count)
        row_tokens = tokens if row < 0 else self.tokens.sizes[row]
        if tokens > row_tokens and count_chars(message) <= count_chars(self.messages[row]):
            return row_tokens
        return tokens

    def _recorded_or_counted(self, message: Message, count: Callable[[Message], int]) -> int:
        recorded = self.recorded_size(message)
        if recorded is not None:
            return recorded
        return count(message) if self.scale == 1.0 else round(count(message) * self.scale)

    def _record_reply(self, message: Message) -> None:
        # A log read from a file knows a call only by its reply: its time is that less the latency.
        if not self._has_open_call:
            has_times = message.time is not None and message.latency is not None
            before = self.messages[-1].time if self.messages else None
            sent = message.time - message.latency if has_times else before  # type: ignore[operator]
            self.open(sent, message.agent, implied=True)
        if message.time is not None:
            self.end_times[-1] = message.time
        self.replies[-1] = message
        self._has_open_call = False

    def _turn_number(self, message: Message, role: int) -> int:
        turn = self.turns[-1] if self.turns else 0
        if message.turn is not None:
            self._has_answer = False
            return message.turn
        if role in (ASSISTANT, TOOL):
            self._has_answer = True
        elif role == USER and self._has_answer:
            self._has_answer = False
            return turn + 1
        return turn

    def bill_extra(self, tokens: int) -> None:
        """Bill the last call `tokens` more than its prompt was known to have."""
        self.tokens.bill_extra(tokens)
        self.prompt_size_memo.pop("spending", None)

    # -- reading ----------------------------------------------------------------------------------

    def column(self, name: str, n: int | None = None) -> NDArray[Any]:
        """Return a column: one value for each of the first `n` rows (None: all), read-only.

        Args:
            name: one of `tokens estimates chars roles turns calls groups agents tools times errors
                asks thinks stays`. `calls` is the first call with a row, `groups` the row of its
                reply, `agents` and `tools` are codes (see `code`), `times` seconds since 1970 (NaN:
                unknown); `asks` and `thinks` are True for tool calls and reasoning, `stays` for
                protected rows.
            n: number of rows.
        """
        return self._columns[name].upto(len(self.messages) if n is None else n)

    def code(self, kind: str, name: str) -> int:
        """Return the code of an agent or a tool; a new name gets a new code.

        Args:
            kind: "agent" or "tool".
            name: name of the agent or tool.
        """
        names = self._names[kind]
        return names.setdefault(name, len(names))

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of agents or tools, indexed by code; ``""`` stands for no tool.

        Args:
            kind: `agent` or `tool`.
        """
        self.column(f"{kind}s")
        return tuple(self._names[kind])

    @property
    def one_agent(self) -> bool:
        """True where one agent makes all calls."""
        return len(self.callers) <= 1

    def spending(self) -> dict[str, tuple[list[int], list[int]]]:
        """Return for each agent running sums over calls: number and size of its own calls."""
        Q = self.tokens.Q  # noqa: N806  as it is called there
        sums: dict[str, tuple[list[int], list[int]]] = self.prompt_size_memo.setdefault(
            "spending", {}
        )
        for name in self.callers:
            sums.setdefault(name, ([0], [0]))
        for name, (counts, sizes) in sums.items():
            for call in range(len(counts) - 1, len(self.upto)):
                is_by_agent = self.agents[call] == name
                counts.append(counts[-1] + is_by_agent)
                sizes.append(sizes[-1] + (Q[call + 1] - Q[call] if is_by_agent else 0))
        return sums


def _make_columns(log: MessageLog) -> dict[str, LazyColumn]:
    """Return the columns of a log, computed from its rows on demand."""
    part = {
        "tokens": (log.tokens.sizes, np.int64),
        "estimates": (log.estimates.sizes, np.int64),
        "roles": (log.roles, np.int8),
        "turns": (log.turns, np.int64),
        "calls": (log.first_calls, np.int64),
        "groups": (log.groups, np.int64),
    }
    columns = {
        name: LazyColumn(lambda a, b, x=values: x[a:b], kind)  # type: ignore[misc]
        for name, (values, kind) in part.items()
    }

    def column_of(value: Any, kind: Any) -> LazyColumn:
        return LazyColumn(lambda a, b: [value(row) for row in range(a, b)], kind)

    messages = log.messages
    columns["chars"] = LazyColumn(lambda a, b: [count_chars(m) for m in messages[a:b]], np.int64)
    columns["times"] = column_of(
        lambda r: nan if messages[r].time is None else messages[r].time, np.float64
    )
    columns["errors"] = column_of(lambda r: bool(messages[r].is_error), np.bool_)
    columns["asks"] = column_of(lambda r: bool(messages[r].tool_calls), np.bool_)
    columns["thinks"] = column_of(lambda r: messages[r].thinks, np.bool_)
    columns["agents"] = column_of(
        lambda r: log.code("agent", messages[r].agent or log.agent), np.int64
    )
    columns["tools"] = column_of(lambda r: log.code("tool", log.tool(r)), np.int64)
    return columns


class ColdCacheCalls:
    """Calls with a cold cache, and running sums of uncached tokens, if nothing is edited.

    A call is cold where it is the first, or is sent `life` seconds or more after the end of the
    call before; where a time is unknown it counts as warm. `N[c]` is the number of cold calls
    before call `c`. `F[c]` is the number of uncached (fresh) tokens of the calls before `c`: the
    whole prompt of a cold call, and the growth of a warm one.
    """

    __slots__ = ("F", "N", "_fresh", "calls", "cold", "life", "log")

    def __init__(self, log: MessageLog, life: float) -> None:
        if not life > 0:
            raise BadArguments(
                f"A cache that lives {life} seconds is none: give a number above 0, or infinity."
            )
        self.log, self.life = log, life
        # logs that share their rows share these, as they do not depend on the sizes of prompts
        self.cold: list[bool]
        self.calls: list[int]
        self.N: list[int]
        self.cold, self.calls, self.N = log.memo.setdefault(("cold calls", life), ([], [], [0]))
        self.F: list[int] = [0]
        self._fresh = LazyColumn(
            lambda a, b: [new - old for old, new in pairwise(self.F[a : b + 1])], np.int64
        )

    @classmethod
    def of(cls, log: MessageLog, life: float) -> ColdCacheCalls:
        """Return the calls of a log that find a cold cache; the log keeps the result.

        Args:
            log: the messages and calls.
            life: seconds for which the cache keeps a prefix after its last use.
        """
        key = ("clock", life)
        clock: ColdCacheCalls | None = log.prompt_size_memo.get(key)
        if clock is None:
            clock = log.prompt_size_memo[key] = cls(log, life)
        return clock.sync()

    def sync(self) -> ColdCacheCalls:
        """Extend the columns to the calls of the log."""
        log, cold, calls_n = self.log, self.cold, len(self.log.upto)
        if len(self.F) > calls_n:
            return self
        for c in range(len(cold), calls_n):
            is_cold = c == 0 or log.sent[c] - log.end_times[c - 1] >= self.life
            cold.append(is_cold)
            if is_cold:
                self.calls.append(c)
            self.N.append(self.N[-1] + is_cold)
        sizes, fixed, sums = log.tokens.C, log.fixed_at, self.F
        for c in range(len(sums) - 1, calls_n):
            fresh = sizes[c]
            if not cold[c]:
                fresh = max(fresh + max(fixed[c - 1] - fixed[c], 0) - sizes[c - 1], 0)
            sums.append(sums[-1] + fresh)
        return self

    def alive(self, before: int, call: int) -> bool:
        """Return True where the cache of one call is alive at a later one, or times are unknown.

        Args:
            before: number of the earlier call.
            call: number of the later call.
        """
        return not self.log.sent[call] - self.log.end_times[before] >= self.life

    def fresh(self, upto: int) -> NDArray[Any]:
        """Return the uncached tokens of each call before `upto`, read-only."""
        return self._fresh.upto(upto)


_UNFINISHED_STOPS = ("tool", "length", "error", "aborted")
"""Stop reasons of replies that do not end their turn."""


class TurnStartTracker:
    """State machine for the first row of the current turn, updated as a log grows.

    A turn begins with the last user message before its first reply. It ends with the next user
    message, with a reply without tool calls (the next call then begins a turn without input), or
    with a reply of another agent. Messages injected as the user while tools run do not end it.
    Where messages have turn numbers, these decide instead.
    """

    # States: before the first reply of a turn (`_answered` False); within it (True); after its last
    # reply (`_ended`). Transitions: `add` for each message, `open` for each call. `first` never
    # moves back, so a row that was history once stays history.

    __slots__ = (
        "_agent",
        "_answered",
        "_ended",
        "_first_number",
        "_number",
        "_pending_input",
        "first",
        "in_items",
        "past_at_once",
    )

    def __init__(self) -> None:
        self.first = 0
        """The first row of the current turn; it never moves back."""
        self.past_at_once: list[int] = []
        """Sorted rows that never belong to the current turn: messages of other agents while a turn
        runs, and results of calls of an earlier turn.
        """
        self.in_items = False
        """True where a reply is logged as several messages, which continue each other."""
        self._answered = self._ended = False  # see the states above
        self._first_number = self._number = 0
        """Turn numbers: at the beginning of the turn, and of the last message."""
        self._agent: str | None = None
        """The last agent that a reply of the turn names; None: none is named."""
        self._pending_input: int | None = None
        """Row of a user message that no reply has followed yet."""

    def coming(self, rows: int) -> int:
        """Return the first row of the turn of the next call, if the log has so many rows."""
        return rows if self._ended else self.first

    def open(self, rows: int, *, implied: bool) -> int:
        """Update for a call that is opened; return the first row of its turn.

        Args:
            rows: number of rows before the call.
            implied: the call is only known from its reply.
        """
        if self._ended and not (implied and self.in_items):
            self._begin_turn(rows, self._number)
        return self.first

    def add(self, row: int, role: int, message: Message, *, group: int, number: int) -> None:
        """Update for a row that is appended.

        Args:
            row: the row.
            role: the code of its role.
            message: its message.
            group: for a tool result, the row of the reply that called the tool.
            number: the number of its turn.
        """
        # A reply of another agent or turn begins a turn, with the user message before it, if any.
        if role == ASSISTANT:
            if self._answered and self._is_other_turn(message, number):
                first = self._pending_input if number == self._number else None
                self._begin_turn(row if first is None else first, number)
            self._answered, self._number, self._pending_input = True, number, None
            self._agent = message.agent or self._agent
            self._ended = _is_final_reply(message)
        elif role == TOOL and group >= self.first:
            self._answered, self._ended, self._pending_input = True, False, None
        # A late result of an earlier turn, or a message of another agent, belongs to no turn.
        elif role == TOOL or message.kind in OTHER_AGENT_KINDS:
            self.past_at_once.append(row)
        elif role == USER:
            if self._begins_turn(message, number):
                self._begin_turn(row, number)
            self._ended, self._number, self._pending_input = False, number, row

    def _begin_turn(self, row: int, number: int) -> None:
        self.first, self._first_number, self._agent = row, number, None
        self._answered = self._ended = False

    def _begins_turn(self, message: Message, number: int) -> bool:
        """Return True for a user message that begins a turn."""
        if not self._answered:
            return True
        if message.kind and not self._ended:
            return False
        return message.turn is None or number != self._first_number

    def _is_other_turn(self, message: Message, number: int) -> bool:
        """Return True for a reply of another agent, or with another turn number."""
        named = message.agent is not None and self._agent is not None
        if named and message.agent != self._agent:
            return True
        return message.turn is not None and number != self._number


def _is_final_reply(reply: Message) -> bool:
    """Return True for a complete reply without tool calls that holds more than reasoning."""
    if reply.is_error or reply.stop in _UNFINISHED_STOPS:
        return False
    kinds = {type(part) for part in reply.parts} - {Thinking}
    return bool(kinds) and ToolCall not in kinds
