"""The base of the prunings that say what changes when: their call and their bill follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ctxkit.errors import BadArguments
from ctxkit.policies.chain import Part, in_a_row
from ctxkit.policies.policy import name_of
from ctxkit.policies.setting import Setting
from ctxkit.schedules import Schedule

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens.counters import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class Scheduled(Setting):
    """A pruning made of settings, whose one method says what becomes of each message, and when.

    A member in five lines::

        @dataclass(frozen=True, kw_only=True, repr=False)
        class Failures(Scheduled):
            keep_last: int = 3

            def schedule(self, view, room):
                for p, call, old in view.window("tool", lambda n: n - self.keep_last):
                    view.change(p, "[failed]" if old else AS_IT_CAME, since=call)

    A class that overrides `__call__` below an inherited `schedule`, or a `schedule` below another
    one's, is asked call by call: then the call alone counts, for the bill too. So does one whose
    `steps` hold such a part.
    """

    counts: ClassVar[bool] = True
    """It may go by all messages, also by those that a part before puts at the end of calls, which
    no schedule says: behind a part that `appends` it is asked call by call. One that looks at
    replies and results alone says False.
    """

    @property
    def appends(self) -> bool:
        """True where it may put a message at the end of a call."""
        return False

    @property
    def filters_history(self) -> bool:
        """True where it filters what was said before the turn under way: its schedule is given a
        `PastView`, so the turn's own calls and results stay until the turn is over.
        """
        return False

    @property
    def steps(self) -> tuple[Part, ...]:
        """Parts of which its schedule gives each call one, as `stepped` does for one call."""
        return ()

    def schedule(self, view: ScheduleView, room: Room) -> None:
        """Say what becomes of the messages at the calls that are new to the view."""
        raise NotImplementedError

    def __call__(self, history: History, room: Room) -> History:
        """Return what this call is sent."""
        if not all(map(says_when, self.steps)):
            return self.stepped(history, room)
        first = self.begin(history)
        begun = history if first == history.call else history.at(first)  # what was done stays
        return Schedule(begun, (self,), room).left(history.call, name_of(self))

    def begin(self, history: History) -> int:
        """Return the first call on which it can depend what a call is sent: itself."""
        return history.call

    def stepped(self, history: History, room: Room) -> History:  # noqa: ARG002  as those who say
        """Return what this call is sent where a step has to be called."""
        raise BadArguments(
            f"A step of {type(self).__name__} has a call of its own: say in `stepped` what a call"
            " is sent."
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class HistoryFilter(Scheduled):
    """A view: what is left of the messages that were said before the turn under way.

    The turn's own input, calls and results stay as they are until the turn is over. With the next
    turn they are history, and are filtered then: once a turn the prompt changes from the first
    message that a filter touches, and what stood behind it in a provider's cache is sent anew.
    A view bounds no single long turn; prunings and compactions do.
    """

    @property
    def filters_history(self) -> bool:
        """True."""
        return True


def says_when(part: Any) -> bool:
    """Return True where a part's `schedule` says all that its call does.

    No class redefined the call, or a schedule below another one (which of the two speaks last of a
    message depends on how many calls both are asked about); nor did that of a step.
    """
    if not isinstance(part, Scheduled) or type(part).__call__ is not Scheduled.__call__:
        return False
    said = sum("schedule" in vars(kind) for kind in type(part).__mro__)  # its own and the base's
    return said <= 2 and all(map(says_when, part.steps))


def split(pruning: Part | None) -> tuple[tuple[Scheduled, ...], tuple[Part, ...]]:
    """Return the parts of a pruning that say a schedule, and those from the first on
    that does not, or that counts what one before it appends.
    """
    parts = () if pruning is None else in_a_row(pruning)
    known, appended = list[Scheduled](), False
    for part in parts:
        if not (isinstance(part, Scheduled) and says_when(part)) or (part.counts and appended):
            break
        known.append(part)
        appended = appended or part.appends
    return tuple(known), parts[len(known) :]
