"""Prunings one after the other, whose bill is read off their courses where each of them knows its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.policies.chain import Chain
from ctxkit.policies.traces import traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.clock import Clock
    from ctxkit.tokens.counters import Room


class Prunings(Chain):
    """A chain for one call; the last part may be one that only acts now and then."""

    @property
    def traced_bill(self) -> Callable[..., tuple[NDArray[Any], NDArray[Any]]]:
        """What all coming calls are sent at once; not there where a part knows no course."""
        *rest, last = self.parts
        if not all(hasattr(p, "trace") for p in rest) or not (hasattr(last, "trace") or hasattr(last, "acts")):
            raise AttributeError("traced_bill")
        return self._traced_bill

    @property
    def changes(self) -> tuple[str, ...]:
        """The roles of which alone it changes messages; not there where a part does not say it."""
        roles = [getattr(p, "changes", None) for p in self.parts]
        if None in roles:
            raise AttributeError("changes")
        return tuple({role: None for some in roles for role in some or ()})

    @property
    def removes(self) -> bool:
        """Whether a part leaves messages out."""
        return any(getattr(p, "removes", False) for p in self.parts)

    def _traced_bill(
        self, history: History, start: int, stop: int, clock: Clock, room: Room
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return traced(self.parts, self, history, (start, stop), clock, room)
