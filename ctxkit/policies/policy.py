"""What a policy, a pruning, a trigger and a guard are: plain callables, with optional short cuts for the engine.

A **policy** is any callable ``(history, room) -> history``. It decides on the history's columns (`sizes`, `estimates`,
`turns`, `role("tool")`, ...) and searches (`back`, `fitting`, `safe`, `nth_last`), and returns what a verb gives
(`keep`, `drop`, `shorten`, `replace`, `summarise`, `insert`, `become`), or the history itself where it does nothing.
A plain list of messages is a valid answer too. A policy never sees what comes after the call.

A **pruning** is a policy whose result is for one call only.

A **trigger** is any callable ``(history, room) -> bool``: is a compaction due before this call? With
``first(outlook, start, stop)`` it says at which coming call it will first be due; then the engine jumps.

A **guard** holds back a due compaction, or refuses its result.

Derive from `Part` to get ``a | b``; nothing else needs a base class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.history import History, Log
    from ctxkit.messages import Message
    from ctxkit.tokens.counters import Room


@runtime_checkable
class Policy(Protocol):
    """History in, history out.

    It keeps nothing between calls: all that it may know of the past is in the history (`since`, the columns, `log`), so
    that a replay, which jumps, and a live session ask the same. Optional: ``first(outlook, start, stop) -> int``, the
    earliest coming call at which it can do anything at all (the engine does not ask it before); ``using(summariser)``,
    itself with the rules' summariser where it has none of its own; ``keeps``, the tokens that it leaves at least, which
    a trigger must lie above.
    """

    def __call__(self, history: History, room: Room, /) -> History | Sequence[Message]:
        """Return the history as it shall be shown from this call on; the same object where nothing is to be done."""


@runtime_checkable
class Pruning(Protocol):
    """History in, history out, for one call.

    Optional: `changes`, the roles of which alone it changes messages, each in its place, or, with
    `removes`, leaves them out (and those of any role that say nothing); then the engine need not
    compare views.
    """

    def __call__(self, history: History, room: Room, /) -> History | Sequence[Message]:
        """Return what this call is sent."""


@runtime_checkable
class Trigger(Protocol):
    """When a compaction is due. `first` alone is enough to derive from `Due`, which makes the call from it."""

    def __call__(self, history: History, room: Room, /) -> bool:
        """Return True where a compaction is due before this call."""

    def first(self, outlook: Outlook, start: int, stop: int, /) -> int:
        """Return the first call in start..stop at which it is due if nothing is edited before; `stop` if at none."""


class Outlook(Protocol):
    """What the calls start..stop will be like if nothing is edited. A search gives the first such call, or `stop`."""

    history: History
    room: Room

    @property
    def log(self) -> Log:
        """The log: its call columns (`upto sent done agents`) may be read up to the call in question."""

    def above(self, limit: float, start: int, stop: int, /, estimated: bool = False) -> int:
        """The prompt is larger than `limit` tokens (or the messages than `limit` in the system's own measure)."""

    def count(self, n: int, roles: tuple[str, ...], start: int, stop: int, /) -> int:
        """At least `n` messages of these roles are shown (no roles: of any)."""

    def turns(self, n: int, start: int, stop: int, /) -> int:
        """At least `n` turns have begun since the last edit that was kept."""

    def spent(self, limit: float, start: int, stop: int, /, *, agent: str | None = None) -> int:
        """The prompts sent since the last kept edit, of one agent or of any one of them, add up to `limit` or more."""

    def turn_spent(self, limit: float, start: int, stop: int, /) -> int:
        """The prompts sent in the turn so far, or in the turn that just ended, add up to more than `limit`."""

    def prompts(self, start: int, stop: int, /) -> NDArray[Any]:
        """Prompt tokens of each call start..stop."""


@runtime_checkable
class Guard(Protocol):
    """Holds back a due compaction (`first`) or refuses what it gave (`refuses`); derive from `guards.Open`."""

    def first(self, past: Past, outlook: Outlook, start: int, stop: int, /) -> int:
        """Return the first call in start..stop at which a due compaction may happen; `stop` if at none."""

    def refuses(self, past: Past, was: History, new: History, /) -> str | None:
        """Return why a result is not to be taken, or None."""


class Past(Protocol):
    """What a guard knows of the run so far."""

    cuts: Sequence[Cut]
    """The compactions that were kept, in order."""
    log: Log
    begin: int
    """The first call of the run."""


class Cut(Protocol):
    """One compaction that was kept."""

    call: int
    before: int
    """Tokens of the prompt before."""
    after: int
    """Tokens of the prompt after."""
    messages_before: int
    messages_after: int


class Part:
    """Gives a policy, trigger or guard its ``|``: the next one works on what this one left."""

    def __or__(self, other: Any) -> Any:
        from ctxkit.policies.chain import Chain

        return Chain.of(self, other)

    def __ror__(self, other: Any) -> Any:
        from ctxkit.policies.chain import Chain

        return Chain.of(other, self)


def name_of(part: Any) -> str:
    """Return what a part calls itself: its `name`, a function's name, else the name of its class."""
    name = getattr(part, "name", None) or getattr(part, "__name__", None)
    return name if isinstance(name, str) else type(part).__name__
