"""What a part said of the messages, and what each of them says since when because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.history.columns import chars
from ctxkit.history.head_items import content_key
from ctxkit.schedules.layers import Added, Changed, since
from ctxkit.schedules.rows import NEVER, State
from ctxkit.schedules.sums import RESULT_CHARS, TOKENS, Sums

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.messages import Message
    from ctxkit.schedules.layers import Layer

    Change = Callable[[Message], Message | None]
    What = str | None | Change | tuple[str | Change, ...]


class AsItCame:
    """What takes a change back: the message is sent as the parts before left it."""


AS_IT_CAME = AsItCame()


class ChangeRule(msgspec.Struct, frozen=True):
    """What a part said of one message."""

    since: int
    until: int
    what: What | AsItCame
    smaller: bool
    low: int


class Changes:
    """The rules of one part, and the states of the messages that follow from them."""

    def __init__(self, part: Any, before: Layer) -> None:
        self.part, self.name = part, type(part).__name__
        self.before, self.rows = before, before.rows
        self.start = self.stop = before.rows.begin
        self.events: list[Changed] = []
        self._rules: dict[int, list[ChangeRule]] = {}
        self._states: dict[int, list[State]] = {}
        self._ends: dict[int, set[int]] = {}
        self._new: set[int] = set()
        self._makers: dict[int, Callable[[], Message | None]] = {}
        self._added: dict[int, Added | None] = {}
        self._sums = Sums()

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
        todo, out = self._new, list[Changed]()
        for call in [c for c in self._ends if c < self.stop]:
            todo |= self._ends.pop(call)
        if self._rules:
            stay = self.rows.came_to_stay(self.start, self.stop)
            todo.update(p for _, p in stay if p in self._rules)
        for event in since(self.before.events, self.start):
            if event.position in self._rules:
                todo.add(event.position)
            else:
                out.append(event)
        for p in todo:
            out += self._remade(p)
        out.sort()  # a position changes once a call, so by these two
        self.events += out

    def _remade(self, p: int) -> list[Changed]:
        """Return the events of a position at the new calls, and keep its states."""
        came, stays, own = self.before.states(p), self.rows.stays_from(p), self._states.get(p)
        rules = self._rules[p]
        once = own is None and len(came) == len(rules) == 1 and stays == rules[0].until == NEVER
        if once and came[0].message is self.rows.message(p):
            return self._once(p, came[0], rules[0])
        said = self.rows.said(p)
        if own is None:
            own = self._states[p] = [s for s in came if s.call < self.start]
        was, out = own[-1] if own else said, list[Changed]()
        for call in self._bounds(p, max(said.call, self.start), came, stays):
            new = in_force(came, call)
            if call < stays:
                new = self._at(p, call, new)
            if new.content != was.content:
                new = new.since(call)
                out.append(Changed(call, p, was, new))
                own.append(new)
            elif not own:
                own.append(new)
            was = own[-1]
        return out

    def _once(self, p: int, said: State, rule: ChangeRule) -> list[Changed]:
        """Return the event of a position that was said, and changes for good: nearly all do."""
        new = self.applied(p, said, rule, rule.since)
        if new.content == said.content:
            self._states[p] = [said]
            return []
        self._states[p] = [new] if rule.since == said.call else [said, new]
        return [Changed(rule.since, p, said, new)]

    def _bounds(self, p: int, first: int, came: Sequence[State], stays: int) -> list[int]:
        """Return the calls, from one on, at which a position may begin to say something else."""
        bounds, stop = {first, stays}, self.stop
        for rule in self._rules[p]:
            bounds.add(rule.since)
            bounds.add(rule.until)
        if len(came) > 1:
            bounds.update(s.call for s in came)
        return sorted([c for c in bounds if first <= c < stop])

    def _at(self, p: int, call: int, came: State) -> State:
        """Return what a position says at a call where the parts before left it so."""
        for rule in reversed(self._rules[p]):
            if rule.since <= call < rule.until:
                return self.applied(p, came, rule, call)
        return came

    def applied(self, p: int, was: State, rule: ChangeRule, call: int) -> State:
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
        was: State,
        message: Message,
        what: str | Change | None,
        smaller: bool,
        call: int,
    ) -> State:
        if what is None:
            return State(call, None, 0, 0)
        if isinstance(what, str):
            made = self.rows.replaced(p, call, message, what)
        else:
            new = what(message)
            if new is None:
                return State(call, None, 0, 0)
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

    def state(self, p: int, call: int) -> State:
        """Return what a position says at a call."""
        own = self._states.get(p)
        return self.before.state(p, call) if own is None else in_force(own, call)

    def states(self, p: int) -> Sequence[State]:
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

    def added(self, call: int) -> Added | None:
        """Return what stands at the end of a call alone: its own, else that of a part before."""
        make = self._makers.get(call)
        if make is None:
            return self.before.added(call)
        if call not in self._added:
            self._added[call] = self._measured(make)
        return self._added[call] or self.before.added(call)

    def _measured(self, make: Callable[[], Message | None]) -> Added | None:
        message = make()
        if message is None:
            return None
        sizes = self.rows.log.measure(message), chars(message), content_key(message)
        return Added(cast("Callable[[], Message]", make), *sizes)

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Layer.total` says."""
        total = self._sums.at(self, call, kind)
        more = self.added(call) if self.adds and kind != RESULT_CHARS else None
        return total if more is None else total + (more.tokens if kind == TOKENS else more.chars)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says, as `Left.origin` does."""
        own = self._states.get(p)
        if own is None or in_force(own, call).content == self.before.state(p, call).content:
            return self.before.origin(p, call)
        return self.part


def in_force(states: Sequence[State], call: int) -> State:
    """Return the last of some states that began at a call or before."""
    i = len(states) - 1
    while i and states[i].call > call:
        i -= 1
    return states[i]
