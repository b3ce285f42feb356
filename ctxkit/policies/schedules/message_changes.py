"""The change rules of one part and the message states that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.policies.history.columns import count_chars
from ctxkit.policies.history.head import content_hash
from ctxkit.policies.schedules.layers import (
    SUM_RESULT_CHARS,
    SUM_TOKENS,
    AppendedMessage,
    LayerSums,
    StateChange,
    changes_between,
)
from ctxkit.policies.schedules.rows import NEVER, MessageState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.policies.schedules.layers import Layer
    from ctxkit.session.messages import Message

    MessageChange = Callable[[Message], Message | None]
    NewContent = str | None | MessageChange | tuple[str | MessageChange, ...]


class AsItCame:
    """What takes a change back: the message is sent as the parts before left it."""


AS_IT_CAME = AsItCame()


class ChangeRule(msgspec.Struct, frozen=True):
    """What a part said of one message."""

    since: int
    until: int
    what: NewContent | AsItCame
    smaller: bool
    low: int


class PartChanges:
    """The rules of one part, and the states of the messages that follow from them."""

    def __init__(self, part: Any, before: Layer) -> None:
        self.part, self.name = part, type(part).__name__
        self.before, self.rows = before, before.rows
        self.start = self.stop = before.rows.begin
        self.events: list[StateChange] = []
        self._rules: dict[int, list[ChangeRule]] = {}
        self._states: dict[int, list[MessageState]] = {}
        self._ends: dict[int, set[int]] = {}
        self._new: set[int] = set()
        self._makers: dict[int, Callable[[], Message | None]] = {}
        self._added: dict[int, AppendedMessage | None] = {}
        self._sums = LayerSums()

    # -- what the schedule says --------------------------------------------------------------------

    def change(self, p: int, rule: ChangeRule) -> None:
        """Take down a rule for a position."""
        first = max(self.start, self.rows.arrival(p))
        if not first <= rule.since < self.stop or rule.until <= rule.since:
            self._refuse(p, rule, first)
        rules = self._rules.setdefault(p, [])
        if rules and not rules[-1].since <= rule.since >= rules[-1].until % NEVER:
            self._refuse_behind(p, rules[-1], rule)
        rules.append(rule)
        if self.stop <= rule.until < NEVER:
            self._ends.setdefault(rule.until, set()).add(p)
        self._new.add(p)

    def _refuse(self, p: int, rule: ChangeRule, first: int) -> NoReturn:
        if first <= rule.since < self.stop:
            raise BadArguments(
                f"The schedule of {self.name} let a change of message {p} end at call {rule.until},"
                f" before it begins at call {rule.since}."
            )
        raise BadArguments(
            f"The schedule of {self.name} spoke of call {rule.since} for message {p}, but was "
            f"asked about the calls {first} to {self.stop - 1}."
        )

    def _refuse_behind(self, p: int, before: ChangeRule, rule: ChangeRule) -> None:
        if rule.since < before.since:
            raise BadArguments(
                f"The schedule of {self.name} spoke of message {p} at call {rule.since} after it"
                f" had spoken of it at call {before.since}: say what becomes of a message in the"
                " order of calls."
            )
        if before.since < rule.since:
            raise BadArguments(
                f"The schedule of {self.name} gave message {p} a change at call {rule.since} while "
                f"one until call {before.until} holds: let the first end before."
            )

    def append(self, call: int, make: Callable[[], Message | None]) -> None:
        """Take down what stands at the end of a call alone; it is made when it is asked for."""
        self._makers[call] = make

    @property
    def told(self) -> bool:
        """True where the schedule said anything since `begin`, or let anything be appended."""
        return bool(self._new or self._makers)

    # -- what follows ------------------------------------------------------------------------------

    def begin(self, stop: int) -> None:
        """Stand before new calls: the part is asked about them next."""
        self.start, self.stop, self._new = self.stop, stop, set()

    def finish(self) -> None:
        """Work out what changes at the new calls: by this part, and by those before it."""
        todo, out = self._new, list[StateChange]()
        for call in [c for c in self._ends if c < self.stop]:
            todo |= self._ends.pop(call)
        if self._rules:
            stay = self.rows.came_to_stay(self.start, self.stop)
            todo.update(p for _, p in stay if p in self._rules)
        for event in changes_between(self.before.events, self.start):
            if event.position in self._rules:
                todo.add(event.position)
            else:
                out.append(event)
        for p in todo:
            out += self._remade(p)
        out.sort()  # a position changes once a call, so by these two
        self.events += out

    def _remade(self, p: int) -> list[StateChange]:
        """Return the events of a position at the new calls, and keep its states."""
        came, stays, own = self.before.states(p), self.rows.stays_from(p), self._states.get(p)
        rules = self._rules[p]
        once = own is None and len(came) == len(rules) == 1 and stays == rules[0].until == NEVER
        if once and came[0].message is self.rows.message(p):
            return self._once(p, came[0], rules[0])
        said = self.rows.said(p)
        if own is None:
            own = self._states[p] = [s for s in came if s.call < self.start]
        was, out = own[-1] if own else said, list[StateChange]()
        for call in self._bounds(p, max(said.call, self.start), came, stays):
            new = state_in_force(came, call)
            if call < stays:
                new = self._at(p, call, new)
            if new.content != was.content:
                new = new.since(call)
                out.append(StateChange(call, p, was, new))
                own.append(new)
            elif not own:
                own.append(new)
            was = own[-1]
        return out

    def _once(self, p: int, said: MessageState, rule: ChangeRule) -> list[StateChange]:
        """Return the event of a position that was said, and changes for good: nearly all do."""
        new = self.applied(p, said, rule, rule.since)
        if new.content == said.content:
            self._states[p] = [said]
            return []
        self._states[p] = [new] if rule.since == said.call else [said, new]
        return [StateChange(rule.since, p, said, new)]

    def _bounds(self, p: int, first: int, came: Sequence[MessageState], stays: int) -> list[int]:
        """Return the calls, from one on, at which a position may begin to say something else."""
        bounds, stop = {first, stays}, self.stop
        for rule in self._rules[p]:
            bounds.add(rule.since)
            bounds.add(rule.until)
        if len(came) > 1:
            bounds.update(s.call for s in came)
        return sorted([c for c in bounds if first <= c < stop])

    def _at(self, p: int, call: int, came: MessageState) -> MessageState:
        """Return what a position says at a call where the parts before left it so."""
        for rule in reversed(self._rules[p]):
            if rule.since <= call < rule.until:
                return self.applied(p, came, rule, call)
        return came

    def applied(self, p: int, was: MessageState, rule: ChangeRule, call: int) -> MessageState:
        """Return what a rule makes, from a call on, of what a position says."""
        if isinstance(rule.what, AsItCame) or (rule.low and was.chars < rule.low):
            return was
        for what in rule.what if isinstance(rule.what, tuple) else (rule.what,):
            if was.message is not None:
                was = self._changed(p, was, was.message, what, rule.smaller, call)
        return was

    def _changed(  # noqa: PLR0917  a rule taken apart
        self,
        p: int,
        was: MessageState,
        message: Message,
        what: str | MessageChange | None,
        smaller: bool,
        call: int,
    ) -> MessageState:
        if what is None:
            return MessageState(call, None, 0, 0)
        if isinstance(what, str):
            made = self.rows.replaced(p, call, message, what)
        else:
            new = what(message)
            if new is None:
                return MessageState(call, None, 0, 0)
            made = self.rows.changed(p, call, message, new)
        if made is None or (smaller and made.tokens >= was.tokens):
            return was
        if made.tokens > was.tokens:
            raise BadArguments(
                f"The schedule of {self.name} makes message {p} larger ({was.tokens:,} tokens "
                f"become {made.tokens:,}): a change takes away, `append` is for what is new."
            )
        return made

    # -- as a layer is asked -----------------------------------------------------------------------

    def state(self, p: int, call: int) -> MessageState:
        """Return what a position says at a call."""
        own = self._states.get(p)
        return self.before.state(p, call) if own is None else state_in_force(own, call)

    def states(self, p: int) -> Sequence[MessageState]:
        """Return all that it says."""
        own = self._states.get(p)
        return self.before.states(p) if own is None else own

    def touched(self) -> set[int]:
        """Return the positions that ever say something else than was said."""
        return self.before.touched() | self._states.keys()

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""
        return bool(self._makers) or self.before.adds

    def added(self, call: int) -> AppendedMessage | None:
        """Return what stands at the end of a call alone: its own, else that of a part before."""
        make = self._makers.get(call)
        if make is None:
            return self.before.added(call)
        if call not in self._added:
            self._added[call] = self._measured(make)
        return self._added[call] or self.before.added(call)

    def _measured(self, make: Callable[[], Message | None]) -> AppendedMessage | None:
        message = make()
        if message is None:
            return None
        sizes = self.rows.log.measure(message), count_chars(message), content_hash(message)
        return AppendedMessage(cast("Callable[[], Message]", make), *sizes)

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Layer.total` says."""
        total = self._sums.at(self, call, kind)
        more = self.added(call) if self.adds and kind != SUM_RESULT_CHARS else None
        return (
            total if more is None else total + (more.tokens if kind == SUM_TOKENS else more.chars)
        )

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says, as `Left.origin` does."""
        own = self._states.get(p)
        if own is None or state_in_force(own, call).content == self.before.state(p, call).content:
            return self.before.origin(p, call)
        return self.part


def state_in_force(states: Sequence[MessageState], call: int) -> MessageState:
    """Return the last of some states that began at a call or before."""
    i = len(states) - 1
    while i and states[i].call > call:
        i -= 1
    return states[i]
