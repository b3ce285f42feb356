"""Prunings that hide messages: by text, role, agent, turn, number, tool call or reasoning.

Messages that are empty afterwards are hidden, too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.history.growing_columns_and_sums import ASSISTANT, TOOL, USER
from ctxkit.policies.history.history_view_and_searches import get_role_code
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.schedules.pruning_changes_at_new_calls import (
    PositionsByAge,
    VisibilityChanges,
    VisiblePositions,
)
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import (
    EarlierTurnsFilter,
    ScheduledPruning,
)
from ctxkit.session.messages import (
    CORRECTION_KIND,
    OTHER_AGENT_CALL_KIND,
    OTHER_AGENT_KIND,
    OTHER_AGENT_KINDS,
    get_plain_text,
)
from ctxkit.session.tool_call_paths_and_descriptions import matches_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


CORRECTION_PREFIXES = (
    "RETRY ",
    "NO TOOL CALLS",
    "CRITICAL:",
    "APPROVED rejected:",
    "WRONG KEYWORD:",
    "JSON block correct",
    "BUILD FAILURE:",
    "STAGNATION (",
    "STUCK ",
    "HALLUCINATION:",
    "PERSISTENT BUILD FAILURE",
    "VERIFICATION FINDING",
    "Files written this turn",
    "No handoff keyword",
    "EVIDENCE INCONSISTENCY",
    "EVIDENCE AUDIT REQUIRED",
    "MISSING ARTIFACT",
)
"""Beginnings of fuseraft's corrections of an agent; see `is_fuseraft_correction`."""
_ROLES = ("system", "user", "assistant", "tool", "summary")


def is_fuseraft_correction(message: Message) -> bool:
    """Return True for a user message by which fuseraft corrects an agent, or blocks a tool call."""
    if message.role != "user":
        return False
    text = get_plain_text(message)
    return text.startswith(CORRECTION_PREFIXES) or "[fuseraft:blocked" in text


@dataclass(frozen=True, kw_only=True, repr=False)
class TextOnly(EarlierTurnsFilter):
    """Strip earlier turns to their text: without tool results, calls and reasoning.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = TextOnly()
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 31)
    """

    counts = False

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Strip each message when its turn is over."""
        for p in _agent_messages(view):
            view.change(p, _strip_to_text, since=view.arrival(p), only_if_smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class RoleFilter(EarlierTurnsFilter):
    """Keep only some roles of earlier turns; without `tool`, replies lose their tool calls.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = RoleFilter(roles=("user", "assistant"))
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 31)
    """

    roles: tuple[str, ...] = ("user", "assistant", "summary")
    """Roles that stay; protected messages (system, pinned, pending) stay anyway."""

    def __post_init__(self) -> None:
        for role in self.roles:
            if role not in _ROLES:
                raise BadArguments(f"There is no role {role!r}.{did_you_mean(role, _ROLES)}")

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide each message of another role when its turn is over, a result with its reply."""
        role_codes = {get_role_code(role) for role in self.roles}
        for p in view.new():
            call, role = view.arrival(p), view.role(p)
            if role not in role_codes or (
                ASSISTANT not in role_codes and _is_answer(view, p, call)
            ):
                view.change(p, None, since=call)
            elif role == ASSISTANT and TOOL not in role_codes:
                view.change(p, _strip_to_text, since=call, only_if_smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class WithoutAgents(EarlierTurnsFilter):
    """Hide messages of some agents in earlier turns, and all tool results (they have no author).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = WithoutAgents(agents=("main",))
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 17)
    """

    counts = False
    agents: tuple[str, ...] = ()
    """Names or globs of agents, in any case."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide the messages of these agents when their turn is over, and strip those of others."""
        for p in _agent_messages(view) if self.agents else ():
            what = None if self._is_by_agents(view, p) else _strip_to_text
            view.change(p, what, since=view.arrival(p), only_if_smaller=False)

    def _is_by_agents(self, view: ScheduleView, p: int) -> bool:
        author = view.rows.message(p).agent or view.rows.log.agent
        return view.role(p) != TOOL and matches_tool(author, tuple(self.agents))


@dataclass(frozen=True, kw_only=True, repr=False)
class TurnAge(EarlierTurnsFilter):
    """Keep the newest replies of earlier turns, from the user message before the oldest of them.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = TurnAge(turns=3)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 8)
    """

    counts = False
    turns: Natural = 0
    """Number of replies to keep; 0: all. Replies that only call tools count, unless stripped."""
    from_reply: bool = False
    """Begin with the reply itself, without the message that it answers (fuseraft's program)."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide older messages when a turn begins after enough replies."""
        visible: VisiblePositions = view.memory.setdefault("shown", VisiblePositions())
        replies: PositionsByAge = view.memory.setdefault("replies", PositionsByAge())
        pinned: PositionsByAge = view.memory.setdefault("pinned", PositionsByAge())
        for call, added, hidden, _ in view.iter_visibility_changes() if self.turns else ():
            visible.follow(added, hidden)
            for of in (replies, pinned):
                for p in filter(of.__contains__, hidden):
                    of.remove(p)
            # Replies are counted; messages that the session inserted are never hidden.
            for p in added:
                if _is_reply(view, p):
                    replies.insert(p)
                elif _is_inserted(view.rows.message(p)):
                    pinned.insert(p)
            # Hide all before the first kept position; messages that the session inserted stay.
            first = self._first(view, visible, replies.positions, call)
            _hide_before(view, first, [p for p in pinned.positions if p < first], (), call)

    def _first(
        self, view: ScheduleView, visible: VisiblePositions, replies: Sequence[int], call: int
    ) -> int:
        """Return the first position that is kept."""
        count = bisect_left(replies, view.turn_edge(call))
        if count < self.turns:
            return 0
        i = visible.index(replies[count - self.turns])
        while not self.from_reply and i and _is_request(view, visible.positions[i - 1]):
            i -= 1
        i = visible.safe_before(view, i, call)
        return visible.positions[i] if i else 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Tail(EarlierTurnsFilter):
    """Keep the newest messages when a turn begins; corrections of an agent stay, uncounted.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = Tail(messages=10)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 12)
    """

    messages: Natural = 0
    """Number of messages to keep, with the input of the turn; 0: all."""
    pin_corrections: bool = True
    """Keep all user messages by which fuseraft corrects an agent."""
    besides_prompt: bool = False
    """Do not count the input of the turn, for teams that write it themselves."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide older messages when a turn begins after enough messages."""
        if not self.messages:
            return
        visible: VisiblePositions = view.memory.setdefault("shown", VisiblePositions())
        pinned: PositionsByAge = view.memory.setdefault("pinned", PositionsByAge())
        free: PositionsByAge = view.memory.setdefault("free", PositionsByAge())
        for call, added, hidden, protected in view.iter_visibility_changes():
            visible.follow(added, hidden)
            for p in hidden:
                (pinned if p in pinned else free).remove(p)
            for p in added:
                (pinned if self._is_pinned(view, p, call) else free).insert(p)
            for p in protected:
                if p in free:
                    free.remove(p)
                    pinned.insert(p)
            first = self._first(view, free.positions, call)
            # Without pinned messages a safe cut is enough; else hide one by one, with the results
            # whose reply is hidden.
            if first and not (pinned.positions and pinned.positions[0] < first):
                _hide_before(view, _next_safe_cut(view, visible, first, call), (), (), call)
            else:
                pinned_before = [p for p in pinned.positions if p < first]
                orphans = _orphaned_results(view, visible, first, call)
                _hide_before(view, first, pinned_before, orphans, call)

    def _first(self, view: ScheduleView, free: Sequence[int], call: int) -> int:
        """Return the first position that is kept, pinned ones aside."""
        # Unpinned messages before the turn; the input of the turn takes one place, if it counts.
        edge = view.turn_edge(call)
        count, available = bisect_left(free, edge), self.messages
        if not self.besides_prompt and view.has_prompt(call):
            available -= not self._is_pinned(view, edge, call)
        if count <= available:
            return 0
        return free[count - available] if available else edge

    def _is_pinned(self, view: ScheduleView, p: int, call: int) -> bool:
        if view.stays(p, call) or _is_inserted(view.rows.message(p)):
            return True
        message = view.message(p, call) if self.pin_corrections and view.role(p) == USER else None
        return message is not None and is_fuseraft_correction(message)


def _agent_messages(view: ScheduleView) -> Iterator[int]:
    """Yield the new replies and results, of this agent and of others."""
    for p in view.new("user", "assistant", "tool"):
        if view.role(p) != USER or view.rows.message(p).kind in OTHER_AGENT_KINDS:
            yield p


def _strip_to_text(message: Message) -> Message | None:
    """Return a message with its text only; None where it has none, or is a tool result."""
    if message.role == "tool" or message.kind == OTHER_AGENT_CALL_KIND:
        return None
    text = message_content_and_truncation.strip_to_text(message)
    return text if get_plain_text(text) else None


def _is_reply(view: ScheduleView, p: int) -> bool:
    """Return True for a reply of this agent or of another one."""
    return view.role(p) == ASSISTANT or view.rows.message(p).kind == OTHER_AGENT_KIND


def _is_request(view: ScheduleView, p: int) -> bool:
    """Return True for a user message that is no other agent's reply."""
    return view.role(p) == USER and not _is_reply(view, p)


def _is_inserted(message: Message) -> bool:
    """Return True for a message that the session or team inserted: sections, corrections."""
    return message.kind == CORRECTION_KIND or bool(message.sections)


def _is_answer(view: ScheduleView, p: int, call: int) -> bool:
    """Return True for the result of a call whose reply is in the history."""
    group = view.rows.members(view.rows.group(p), call)
    return view.role(p) == TOOL and view.role(group[0]) == ASSISTANT


def _next_safe_cut(view: ScheduleView, visible: VisiblePositions, first: int, call: int) -> int:
    """Return the position of the next safe cut up to the current turn, else of the last before."""
    edge, i = view.turn_edge(call), visible.index(first)
    at = visible.safe(view, i, call)
    if at < len(visible.positions) and visible.positions[at] < edge:
        return visible.positions[at]
    if edge < view.count_arrived(call) and view.is_safe(edge, call):
        return edge
    at = visible.safe_before(view, min(i, len(visible.positions) - 1), call)
    return visible.positions[at] if at > 0 else 0


def _orphaned_results(
    view: ScheduleView, visible: VisiblePositions, first: int, call: int
) -> list[int]:
    """Return the results from a position on whose reply is hidden before it."""
    rows, i = view.rows, visible.index(first)
    return [
        p
        for p in visible.positions[i : visible.safe(view, i, call)]
        if view.role(p) == TOOL
        and first > rows.members(rows.group(p), call)[0]
        and not view.stays(p, call)
    ]


def _hide_before(
    view: ScheduleView, first: int, exceptions: Sequence[int], also_hidden: Sequence[int], call: int
) -> None:
    """Hide, from a call on, all positions before `first` with exceptions, and some after it.

    Only differences to the last call are changed; the last arguments are in the view's memory.
    """
    old_first: int = view.memory.get("gone", 0)
    old_exceptions: set[int]
    old_also_hidden: set[int]
    old_exceptions, old_also_hidden = view.memory.get("but", (set(), set()))
    new_exceptions, new_also_hidden = set(exceptions), set(also_hidden)
    view.memory["gone"], view.memory["but"] = first, (new_exceptions, new_also_hidden)
    edge = range(min(old_first, first), max(old_first, first))
    for p in sorted(
        {*edge, *(old_exceptions ^ new_exceptions), *(old_also_hidden ^ new_also_hidden)}
    ):
        hide = (p < first and p not in new_exceptions) or p in new_also_hidden
        if hide != ((p < old_first and p not in old_exceptions) or p in old_also_hidden):
            view.change(p, None if hide else UNDO_CHANGE, since=call)


_MODE = re.compile(r"none|all|before-last-message|before-last-(\d+)-messages")


@dataclass(frozen=True, kw_only=True, repr=False)
class PruneToolCalls(ScheduledPruning):
    """Drop tool calls with their results, and reasoning, before the newest messages (AI SDK).

    A call stays where its id occurs among the newest messages, so a call just before them stays
    with its result. The results of one reply count as one message, as in the AI SDK. `all` means
    all earlier turns: the SDK's own example prunes the messages with which a turn begins, so an
    agent sees the results of its current turn.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = PruneToolCalls(tool_calls="before-last-10-messages")
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 37)
    """

    tool_calls: str = "none"
    """`none`, `all`, `before-last-message` or `before-last-N-messages`; N = 0 drops nothing."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of tools whose calls are dropped."""
    reasoning: Literal["none", "all", "before-last-message"] = "none"
    """The messages whose reasoning is dropped."""
    empty_messages: Literal["remove", "keep"] = "remove"
    """Whether messages that are empty afterwards are hidden."""

    def __post_init__(self) -> None:
        if not _MODE.fullmatch(self.tool_calls):
            raise BadArguments(
                f"PruneToolCalls knows none, all, before-last-N-messages, not {self.tool_calls!r}."
            )

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Drop a call when no message with its id is among the newest, or protected."""
        pruned: _Pruned = view.memory.setdefault("pruned", _Pruned(self))
        changed, news = view.events(), {new.call: new for new in view.iter_visibility_changes()}
        if "all" in (self.tool_calls, self.reasoning):
            news = {call: VisibilityChanges(call, [], [], []) for call, _ in view.turns()} | news
        for call in sorted(changed.keys() | news.keys()):
            emptied = set(changed.get(call, ())) - pruned.changed
            todo = pruned.follow(view, news[call]) if call in news else set()
            for p in sorted(todo | emptied):
                pruned.change(view, p, call, emptied=p in emptied)

    @property
    def last(self) -> int | None:
        """Number of newest messages that keep their calls; None: no call is dropped."""
        match = _MODE.fullmatch(self.tool_calls)
        if match is None or self.tool_calls == "none" or match[1] == "0":
            return None
        return 0 if self.tool_calls == "all" else int(match[1] or 1)

    def strip_message(
        self, message: Message, *, removed_ids: frozenset[str], keeps_reasoning: bool
    ) -> Message | None:
        """Return a message without the calls of these ids, and without reasoning unless kept.

        Args:
            message: any message.
            removed_ids: ids of the calls to remove; a result of one of them goes wholly.
            keeps_reasoning: whether the reasoning of a reply stays.

        Returns:
            The message, or None where nothing of it stays.
        """
        new = message
        if message.role == "tool" and message.call_id in removed_ids:
            return None
        if message.role == "assistant":
            new = message_content_and_truncation.without_calls(message, removed_ids)
            new = new if keeps_reasoning else message_content_and_truncation.without_reasoning(new)
        return (
            None
            if self.empty_messages == "remove"
            and message_content_and_truncation.is_empty_message(new)
            else new
        )

    def concerns(self, tool: str) -> bool:
        """Return True for a tool whose calls are dropped."""
        return matches_tool(tool, tuple(self.tools))


class _Pruned:
    """State of the schedule of `PruneToolCalls` between calls.

    It tracks, per call id, the visible positions with that id. An id is dropped while its last
    position is before the edge (the newest messages) and none of its positions is protected. Only
    ids of changed messages, and those that the edge passes, are looked at.
    """

    def __init__(self, rule: PruneToolCalls) -> None:
        self.rule = rule
        self.changed: set[int] = set()
        """Positions that have a change."""
        self._visible, self._units = VisiblePositions(), PositionsByAge()
        """Visible positions, and of them the first of each message in the SDK's sense."""
        self._positions: dict[str, list[int]] = {}
        """For each call id the visible positions with it."""
        self._dropped: set[str] = set()
        self._edge = self._end = self._turn = 0

    def follow(self, view: ScheduleView, news: VisibilityChanges) -> set[int]:
        """Apply the news of a call; return the positions that may change."""
        call, added, hidden, protected = news
        self._visible.follow(added, hidden)
        self._update_units(view, added, hidden)
        ids = {i for p in (*added, *hidden, *protected) for i in _call_ids(view, p)}
        for p in hidden:
            for i in _call_ids(view, p):
                self._positions[i].remove(p)
        for p in added:
            for i in _call_ids(view, p):
                insort(self._positions.setdefault(i, []), p)
        ids.update(self._move_edge(view, call))
        changed = set(added)
        for i in ids:
            if self._is_dropped(view, i, call) != (i in self._dropped):
                self._dropped ^= {i}
                changed.update(self._positions[i])
        return changed | self._update_reasoning(view, call)

    def _update_reasoning(self, view: ScheduleView, call: int) -> set[int]:
        """Update which messages keep their reasoning; return the positions that may change."""
        visible, ends, turns = self._visible, self._end, self._turn
        self._end = visible.positions[-1] if visible.positions else 0
        self._turn = view.turn_edge(call)
        if self.rule.reasoning == "before-last-message":
            return {self._end, ends} if ends != self._end else set()
        passed = self.rule.reasoning == "all" and self._turn != turns
        return set(
            visible.positions[visible.index(turns) : visible.index(self._turn)] if passed else ()
        )

    def change(self, view: ScheduleView, p: int, call: int, *, emptied: bool = False) -> None:
        """Change a message from a call on, where it has something to drop."""
        rule, gone = self.rule, frozenset(i for i in _call_ids(view, p) if i in self._dropped)
        thinks = rule.reasoning != "none" and view.role(p) == ASSISTANT
        empty = emptied or message_content_and_truncation.is_empty_message(view.rows.message(p))
        if gone or thinks or empty or p in self.changed:
            self.changed.add(p)
            keeps_reasoning = {"none": True, "all": p >= self._turn}.get(
                rule.reasoning, p == self._end
            )
            what = partial(rule.strip_message, removed_ids=gone, keeps_reasoning=keeps_reasoning)
            view.change(p, what, since=call, only_if_smaller=False)

    def _update_units(self, view: ScheduleView, added: list[int], hidden: list[int]) -> None:
        """Update where messages in the SDK's sense begin: results in a row are one message."""
        for p in hidden:
            if p in self._units:
                self._units.remove(p)
        positions = self._visible.positions
        for p in (*added, *hidden):
            for i in range(at := self._visible.index(p), min(at + 2, len(positions))):
                is_joined = i and view.role(positions[i]) == view.role(positions[i - 1]) == TOOL
                if bool(is_joined) == (positions[i] in self._units):
                    (self._units.remove if is_joined else self._units.insert)(positions[i])

    def _move_edge(self, view: ScheduleView, call: int) -> Iterable[str]:
        """Move the edge to the newest messages; return the ids between its old and new position."""
        last, units = self.rule.last, self._units.positions
        edge = units[-last] if last and len(units) >= last else 0
        if last == 0:
            edge = view.turn_edge(call)
        # Only ids of messages between the old and the new edge can change their state.
        a, b = sorted((self._edge, edge))
        self._edge = edge
        between = self._visible.positions[self._visible.index(a) : self._visible.index(b)]
        return [i for p in between for i in _call_ids(view, p)]

    def _is_dropped(self, view: ScheduleView, i: str, call: int) -> bool:
        """Return True where a call id is before the edge, unprotected, and of a matching tool."""
        positions = self._positions[i]
        if (
            not positions
            or positions[-1] >= self._edge
            or any(view.stays(p, call) for p in positions)
        ):
            return False
        if "*" in self.rule.tools:
            return True
        tools = [c.name for p in positions for c in view.recorded_calls(p) if c.id == i]
        return self.rule.concerns(tools[-1] if tools else "")


def _call_ids(view: ScheduleView, p: int) -> Iterable[str]:
    """Return the ids of the calls that a message makes or answers."""
    cache: dict[int, tuple[str, ...]] = view.memory.setdefault("names", {})
    names = cache.get(p)
    if names is None:
        answered = view.rows.message(p).call_id
        ids = dict.fromkeys(c.id for c in view.recorded_calls(p))
        names = cache[p] = tuple(ids if answered is None else {**ids, answered: None})
    return names


@dataclass(frozen=True, kw_only=True, repr=False)
class MessageCountCap(ScheduledPruning):
    """Keep at most a number of messages: those before the first reply, and the newest (Tyrum).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = MessageCountCap(max_messages=12)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> len(session.sent(-1)), len(pruned.sent(-1))
        (115, 13)
    """

    max_messages: Natural = 0
    """Maximum number of messages; 0: any number."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide the messages between the head and the newest ones when there are too many."""
        visible: VisiblePositions = view.memory.setdefault("shown", VisiblePositions())
        protected: PositionsByAge = view.memory.setdefault("stays", PositionsByAge())
        for call, added, hidden, newly_protected in (
            view.iter_visibility_changes() if self.max_messages else ()
        ):
            visible.follow(added, hidden)
            for p in hidden:
                if p in protected:
                    protected.remove(p)
            for p in (*added, *newly_protected):
                if p not in protected and view.stays(p, call):
                    protected.insert(p)
            old_left: set[int] | None = view.memory.get("left")
            if old_left is None and len(visible.positions) <= self.max_messages:
                continue
            old_left = set(visible.positions) if old_left is None else old_left.difference(hidden)
            # Compare with the last call: only differences are changed.
            left = view.memory["left"] = set(self._apply(view, visible, protected, call))
            all_hidden: set[int] = view.memory.setdefault("gone", set())
            to_hide, to_restore = old_left.union(added) - left - all_hidden, left & all_hidden
            for p in sorted(to_hide | to_restore):
                view.change(p, None if p in to_hide else UNDO_CHANGE, since=call)
            all_hidden ^= to_hide | to_restore

    def _apply(
        self,
        view: ScheduleView,
        visible: VisiblePositions,
        protected: PositionsByAge,
        call: int,
    ) -> list[int]:
        """Return the positions that stay: hide until at most `max_messages` are left."""
        positions = visible.positions
        # Tyrum repeats its cap until it fits, or a pass changes nothing.
        while len(positions) > self.max_messages:
            new = self._apply_once(view, visible, protected, call)
            if len(new) == len(positions):
                break
            visible = VisiblePositions()
            visible.positions = positions = new
        return positions

    def _apply_once(
        self,
        view: ScheduleView,
        visible: VisiblePositions,
        protected: PositionsByAge,
        call: int,
    ) -> list[int]:
        """Return the positions that one pass of Tyrum's cap leaves; groups are not parted."""
        positions, most = visible.positions, self.max_messages
        roles = [view.role(p) for p in positions[:most]]
        head = next((i for i, role in enumerate(roles) if role in (ASSISTANT, TOOL)), most) or 1
        # The head alone fills the limit: cut it, but do not part a group.
        if head >= most:
            head_positions = [
                p
                for p in positions[:most]
                if not _loses_group_member(view, p, positions[most], call)
            ]
            return (
                head_positions
                + protected.positions[bisect_left(protected.positions, positions[most]) :]
            )
        # Keep the head and the newest messages; protected ones between them stay, too.
        stop = visible.safe(view, len(positions) - (most - head), call)
        start = visible.safe(view, head, call)
        if stop <= start:
            return positions
        first, last = (
            positions[start],
            positions[stop] if stop < len(positions) else positions[-1] + 1,
        )
        a, b = bisect_left(protected.positions, first), bisect_left(protected.positions, last)
        return positions[:start] + protected.positions[a:b] + positions[stop:]


def _loses_group_member(view: ScheduleView, p: int, edge: int, call: int) -> bool:
    """Return True where a member of a message's group is at `edge` or after it."""
    rows = view.rows
    return not view.stays(p, call) and any(q >= edge for q in rows.members(rows.group(p), call))
