"""The shared history of a team: the messages that its agents exchange, and each agent's filters.

The history is one append-only session file (the ledger). It holds the task, each turn as
the other agents see it, hand-offs, corrections, and a move after each turn. The move's
`standing` is the status of the team, from which a reopened team continues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.redaction import redact
from ctxkit.agent.session_settings_seal import make_session_settings, with_session_settings
from ctxkit.agent.turn_state_and_events import Limits
from ctxkit.metrics.team_log import (
    ADDRESSEE_KEY,
    FORK_MOVE,
    HANDOFF,
    HANDOFF_KEY,
    LEDGER_MOVE,
    SOURCE_KEY,
    TASK,
    count_entries_before_fork,
    render_for_peers,
)
from ctxkit.policies.base import Chain, ScheduledPruning, flatten_chain
from ctxkit.policies.context_rules import Rules
from ctxkit.policies.history.columns import ASSISTANT, SUMMARY, SYSTEM, USER
from ctxkit.policies.message_filters import Tail
from ctxkit.policies.schedules.message_changes import UNDO_CHANGE
from ctxkit.policies.texts import message_content
from ctxkit.session.messages import (
    CORRECTION_KIND,
    OTHER_AGENT_KINDS,
    Message,
    Text,
    get_plain_text,
)
from ctxkit.teams.plan import make_plan_details
from ctxkit.teams.turn_prompts_and_status import TeamStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.agent.store.session_log import SessionLog
    from ctxkit.policies.schedules.schedule_method_input import ScheduleView
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session
    from ctxkit.teams.plan import ContextSource, Member, TeamPlan
    from ctxkit.teams.turn_prompts_and_status import TurnDecision
    from ctxkit.tokens import ContextBudget


class SharedHistory:
    """The file of a team.

    Args:
        log: its session log.
        clock: returns seconds since 1970.
    """

    def __init__(self, log: SessionLog, clock: Callable[[], float]) -> None:
        self.log, self._clock = log, clock

    @property
    def session(self) -> Session:
        """The shared history, and the moves."""
        return self.log.session

    @property
    def task(self) -> str:
        """The current task; empty if there is none yet."""
        tasks = [m for m in self.session.messages if m.kind == TASK]
        return get_plain_text(tasks[-1]) if tasks else ""

    def store_plan(self, plan: TeamPlan, words: dict[str, Any]) -> None:
        """Store the plan and how the team was opened, if they changed."""
        how = make_session_settings(words, Rules(), Limits())
        updated = with_session_settings(
            msgspec.structs.replace(self.session, details=make_plan_details(plan)), how
        )
        if updated.details != self.session.details:
            self.log.revise(updated)

    def status(self, first: TeamStatus) -> TeamStatus:
        """Return the team's status after its last move; `first` if there is none."""
        moves = [m for m in self.session.messages if m.kind == LEDGER_MOVE]
        return msgspec.convert(moves[-1].details["standing"], TeamStatus) if moves else first

    def moves(self, *, of_task: bool = False) -> list[dict[str, Any]]:
        """Return the record of each move, in order; `of_task`: only of the current task."""
        messages = self.session.messages
        start = (
            max((i for i, m in enumerate(messages) if m.kind == TASK), default=0) if of_task else 0
        )
        moves = [m for m in messages[start:] if m.kind == LEDGER_MOVE]
        return [{"turn": m.turn, "agent": m.agent, **m.details["told"]} for m in moves]

    def list_active_agents(self) -> list[str]:
        """Return the agents that had a turn in the current task, each once."""
        agents = (m["agent"] for m in self.moves(of_task=True) if m["agent"])
        return list(dict.fromkeys(agents))

    def set_task(self, task: str, status: TeamStatus) -> None:
        """Write the task and the team's status."""
        words = self._make_message(TASK, task, None, status.turns)
        kind = FORK_MOVE if status.branches else "task"
        self._append(words, self._make_move(status, None, {"kind": kind}))

    def conclude(
        self,
        agent: str,
        spoken: Sequence[Message],
        decision: TurnDecision,
        *,
        handoff: str,
        to: str,
        extra: dict[str, Any],
    ) -> None:
        """Write a turn as other agents see it, and the decision after it.

        Args:
            agent: the agent of the turn.
            spoken: the messages of the turn in the agent's own session.
            decision: the decision after it.
            handoff: block of the hand-off; empty: none.
            to: the next agent.
            extra: further fields of the move's record.
        """
        turn = decision.status.turns - 1
        out = list(self._render_spoken(agent, spoken, turn))
        if handoff:
            out.append(self._make_message(HANDOFF, handoff, None, turn, {HANDOFF_KEY: to}))
        if decision.correction:
            out.append(
                self._make_message(
                    CORRECTION_KIND, decision.correction, None, turn, {ADDRESSEE_KEY: to}
                )
            )
        record = {"kind": decision.kind, **decision.payload, **extra}
        self._append(*out, self._make_move(decision.status, agent, record))

    def collect_unheard(
        self, member: Member, seen_ids: set[str], *, first: bool, forked: bool = False
    ) -> list[Message]:
        """Return the messages that are new to an agent, as they go into its session.

        Args:
            member: the agent.
            seen_ids: ids of the ledger's messages that its session has.
            first: the agent has had no turn.
            forked: the agent is in a branch, which does not see messages since the fork.
        """
        out = []
        messages = self.session.messages
        for m in messages[: count_entries_before_fork(messages)] if forked else messages:
            if (
                m.kind == LEDGER_MOVE
                or m.id in seen_ids
                or m.agent == member.name
                or not self._is_heard_by(m, member, first=first)
            ):
                continue
            out.append(msgspec.structs.replace(m, id="", turn=None, details={SOURCE_KEY: m.id}))
        return out

    def _is_heard_by(self, m: Message, member: Member, *, first: bool) -> bool:
        if ADDRESSEE_KEY in m.details:
            return bool(m.details[ADDRESSEE_KEY] == member.name)
        if m.kind == TASK:
            return member.isolation != "sealed"
        if m.kind == HANDOFF and m.details.get(HANDOFF_KEY) == member.name:
            return not member.context
        return not member.context and (
            member.isolation == "shared" or (member.isolation == "fork" and first)
        )

    # -- inside ----------------------------------------------------------------------------------

    def _render_spoken(
        self, agent: str, messages: Sequence[Message], turn: int
    ) -> Iterator[Message]:
        """Yield a turn's messages as other agents see them, redacted."""
        for m in render_for_peers(agent, messages):
            message = self._make_message(m.kind, m.text, agent, turn, m.details)
            yield msgspec.structs.replace(message, tool=m.tool)

    def _make_message(
        self,
        kind: str,
        text: str,
        agent: str | None,
        turn: int,
        details: dict[str, Any] | None = None,
    ) -> Message:
        return Message(role="user", kind=kind, parts=(Text(redact(text)),), agent=agent, turn=turn,
                       time=self._clock(), details=details or {})  # fmt: skip

    def _make_move(self, status: TeamStatus, agent: str | None, record: dict[str, Any]) -> Message:
        details = {"standing": msgspec.to_builtins(status), "told": record}
        return Message(
            role="system",
            kind=LEDGER_MOVE,
            visible=False,
            agent=agent,
            turn=max(status.turns - 1, 0),
            time=self._clock(),
            details=details,
        )

    def _append(self, *messages: Message) -> None:
        first = len(self.session.log)
        self.log.append(
            *(msgspec.structs.replace(m, id=f"l{first + i}") for i, m in enumerate(messages))
        )


DEFAULT_OWN_TURNS = 6
"""Own replies of a declared `own_history` without a number (fuseraft's default)."""
FRESH_TURN_KEY = "Anew"
"""Key of a view in which each turn begins without the agent's own earlier turns."""
_TRUNCATED_TURN = "\n[...truncated — own_history turn exceeded {n} char limit]"


# A schedule records changes, each valid from a call on. `current` is what each message says after
# the changes so far, so that only a real change is recorded. A message is left out (None), shown as
# it was recorded (the change is undone), or shown with other parts.
def _set_message(view: ScheduleView, q: int, call: int, now: Message | None) -> None:
    """Set a message from a call on, unless it is equal already."""
    current: dict[int, Message | None] = view.memory.setdefault("said", {})
    before = view.message(q, call)
    previous = current.get(q, before)
    if previous is now or (
        previous is not None and now is not None and previous.parts == now.parts
    ):
        return
    current[q] = now
    if now is None or before is None:
        view.change(q, None, since=call)
    elif now.parts == before.parts:
        view.change(q, UNDO_CHANGE, since=call)
    else:  # its calls go in any case, its words where that makes it smaller
        stripped = before if now.tool_calls else message_content.strip_to_text(before)
        view.change(q, (_ReplaceParts(stripped.parts), _ReplaceParts(now.parts)), since=call)


@dataclass(frozen=True)
class _ReplaceParts:
    """Replaces the parts of a message."""

    parts: tuple[Part, ...]

    def __call__(self, message: Message) -> Message:
        return msgspec.structs.replace(message, parts=self.parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class DeclaredContextView(ScheduledPruning):
    """A declared context: each turn shows the task, some own replies, and new messages."""

    counts = False
    turns: int = 0
    """Number of the agent's own earlier replies with text."""
    max_chars: int = 0
    """Characters of these replies: the oldest are dropped first, a single longer one is cut."""
    heard: bool = False
    """True if messages of other agents stay, too."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Hide the messages of earlier turns when a turn begins."""
        for call, edge in view.turns():
            self._begin_turn(view, call, _first_new(view, edge, call))

    def _begin_turn(self, view: ScheduleView, call: int, first: int) -> None:
        """Hide the messages before position `first` when a turn begins."""
        # From the newest to the oldest: own replies with words stay while turns and characters are
        # left. One reply that is too long alone is cut; one that does not fit ends the list.
        turns_left, chars_left = self.turns, self.max_chars
        old: list[int] = view.memory.setdefault("old", [])
        old += range(view.memory.get("first", 0), first)
        view.memory["first"] = first
        kept_positions = list[int]()
        for q in reversed(old):
            message = view.message(q, call)
            if message is None or not self._is_removable(view, q, message):
                continue
            shortened = (
                message_content.strip_to_text(message) if view.role(q) == ASSISTANT else message
            )
            words = get_plain_text(shortened) if view.role(q) == ASSISTANT else ""
            if not words or not turns_left or (len(words) > chars_left and turns_left < self.turns):
                turns_left = 0 if words else turns_left  # stop at the first that does not fit
                _set_message(view, q, call, None)
                continue
            text = (
                words
                if len(words) <= chars_left
                else words[:chars_left] + _TRUNCATED_TURN.format(n=chars_left)
            )
            turns_left, chars_left = turns_left - 1, chars_left - len(words)
            _set_message(view, q, call, message_content.replace_text(shortened, text))
            kept_positions.append(q)
        view.memory["old"] = kept_positions[::-1]

    def _is_removable(self, view: ScheduleView, q: int, message: Message) -> bool:
        if message.kind == TASK or message.sections or view.role(q) in (SYSTEM, SUMMARY):
            return False
        return not (self.heard and message.kind in (*OTHER_AGENT_KINDS, HANDOFF))


def _first_new(view: ScheduleView, edge: int, call: int) -> int:
    """Return the first position of the messages before a turn's input that are new in it."""
    first = edge if edge < view.count_arrived(call) else edge - 1
    turn = view.rows.message(first).turn if first >= 0 else None
    # messages of other agents for this turn are just before its input and have its number
    while edge and view.role(edge - 1) == USER and view.rows.message(edge - 1).turn == turn:
        edge -= 1
    return edge


def with_view_filters(member: Member) -> Rules:
    """Return an agent's rules with the filters of its view.

    Args:
        member: an agent with a declared context, or with a window of the team's messages.

    Returns:
        Its rules with the filters put before its own pruning.
    """
    rules: Any = member.rules
    parts = flatten_chain(rules.pruning) if rules.pruning is not None else ()
    if member.context:
        turns, chars = get_own_history_limits(member.context)
        parts = (DeclaredContextView(turns=turns, max_chars=chars), *parts)
    else:  # the input of each turn is the team's own, and no message of fuseraft's
        parts = tuple(replace(p, besides_prompt=True) if isinstance(p, Tail) else p for p in parts)
    filtered: Rules = rules.but(pruning=Chain.of(*parts) if parts else None)
    return filtered


def without_own_earlier_turns(member: Member, **changes: Any) -> Member:
    """Return an agent, changed, whose turns begin without its own earlier turns.

    Args:
        member: the agent.
        changes: fields of the agent that are replaced, too.

    Returns:
        The agent with one more filter before its pruning; the ledger stores that as a view key.
    """
    rules: Any = member.rules
    pruning = Chain.of(DeclaredContextView(heard=True), *flatten_chain(rules.pruning))
    view_keys = {**member.view_keys, FRESH_TURN_KEY: True}
    return replace(member, rules=rules.but(pruning=pruning), view_keys=view_keys, **changes)


def get_own_history_limits(context: Sequence[ContextSource]) -> tuple[int, int]:
    """Return the number and the characters of own replies that a declared context shows.

    Args:
        context: sources of a declared context.

    Returns:
        Replies and characters; both 0 where own history is no source.
    """
    source = next((s for s in context if s.kind == "own_history"), None)
    return (int(source.argument or DEFAULT_OWN_TURNS), source.max_chars) if source else (0, 0)
