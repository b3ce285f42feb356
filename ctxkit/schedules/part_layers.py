"""One part of a pruning as a layer: its schedule is asked about what is new, its answer kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.schedules.changes import Changes
from ctxkit.schedules.past_view import PastView
from ctxkit.schedules.schedule_view import SaysWhen, ScheduleView
from ctxkit.schedules.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.schedules.layers import Added, Changed, Layer
    from ctxkit.schedules.rows import State
    from ctxkit.tokens.counters import Room


class PartLayer:
    """What one part leaves."""

    def __init__(self, part: SaysWhen, before: Layer, room: Room) -> None:
        self.part, self.before, self.room, self.rows = part, before, room, before.rows
        self._changes = Changes(part, before)
        self._stages: Stages | None = None
        self._inner: Changes | Stages = self._changes
        self._memory: dict[Any, Any] = {}
        self._asked = False

    @property
    def stop(self) -> int:
        """One past the last call that is known."""
        return self._changes.stop

    @property
    def events(self) -> Sequence[Changed]:
        """All that changed so far, in order."""
        return self._inner.events

    def extend(self, stop: int) -> None:
        """Ask the schedule about the calls that are new."""
        if stop <= self.stop:
            return
        self.before.extend(stop)
        self._changes.begin(stop)
        of_past = getattr(self.part, "filters_history", False)
        view = (PastView if of_past else ScheduleView)(self._changes, self._memory)
        self.part.schedule(view, self.room)
        if self._asked and (view.staged is None) != (self._stages is None):
            raise BadArguments(
                f"The schedule of {type(self.part).__name__} spoke of stages only now and then: "
                "say them each time that it is asked, or never."
            )
        self._asked = True
        if view.staged is None:
            self._changes.finish()
            return
        if self._changes.told:
            raise BadArguments(
                f"The schedule of {type(self.part).__name__} says changes beside its stages, which"
                " no call would be sent: make them in a part of their own, as in `a | b`."
            )
        parts, choose = view.staged
        if self._stages is None:
            layers = [self.before if p is None else self._stage(p) for p in parts]
            self._inner = self._stages = Stages(layers, self.rows)
        self._stages.extend(stop, choose)

    def _stage(self, part: SaysWhen) -> PartLayer:
        """Return what a stage leaves.

        Raises:
            BadArguments: it has no schedule, or a class below its schedule redefines the call.
        """
        calls = sum("__call__" in vars(kind) for kind in type(part).__mro__)
        if calls > 1 or not isinstance(part, SaysWhen):
            raise BadArguments(
                f"{type(self.part).__name__} gives a call what {type(part).__name__} leaves, which"
                " has a call of its own: name it in `steps`, and say in `stepped` what a call is"
                " sent."
            )
        return PartLayer(part, self.before, self.room)

    def state(self, p: int, call: int) -> State:
        """Return what a position says at a call."""
        return self._inner.state(p, call)

    def states(self, p: int) -> Sequence[State]:
        """Return all that it says."""
        return self._inner.states(p)

    def touched(self) -> set[int]:
        """Return the positions that ever say something else than was said."""
        return self._inner.touched()

    @property
    def adds(self) -> bool:
        """False where nothing stands at the end of any call so far."""
        return self._inner.adds

    def added(self, call: int) -> Added | None:
        """Return what stands at the end of a call alone."""
        return self._inner.added(call)

    def total(self, call: int, kind: int) -> int:
        """Return a sum over a call's messages, as `Layer.total` says."""
        return self._inner.total(call, kind)

    def origin(self, p: int, call: int) -> Any:
        """Return the part that made a position say what it says; None: it is as said."""
        if self._stages is None:
            return self._changes.origin(p, call)
        made = self._stages.origin(p, call)
        return made if made is self.before.origin(p, call) else self.part

    def branches(self) -> Sequence[Layer]:
        """Return the layers of which each call is given one."""
        return (self,) if self._stages is None else self._stages.layers

    def taken(self, call: int) -> int:
        """Return which of them a call is given."""
        return 0 if self._stages is None else self._stages.taken(call)
