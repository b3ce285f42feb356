"""Cuts that did not pay: how soon the context was full again, and what was read twice because of them."""

from __future__ import annotations

import json
from bisect import bisect_left
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ctxkit.frames.cuts import cuts as compactions
from ctxkit.messages import Edit, Message
from ctxkit.metrics.breakeven import requests_until_reset_pays
from ctxkit.prices import price
from ctxkit.readers.given import of_session
from ctxkit.sizes import Sizes, sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import ToolCall
    from ctxkit.session import Call, Session

__all__ = ["Cut", "Thrash", "cuts", "spiral", "thrash"]

REREADS = 24
"""Tool calls after a cut that are looked at for repeats (the p75 of natural gaps between a call and its repeat)."""
FULL = 0.75
"""Share of the size before a cut at which the context counts as full again."""
_WRITES = ("edit", "write", "patch", "create", "replace", "insert", "delete", "move")


class Cut(msgspec.Struct, frozen=True):
    """One compaction, as its calls felt it. Sizes are tokens of the prompt; None: the log cannot say."""

    compaction: int
    """Its number, as ``frame(per="compaction")`` counts; of several before one call, that of the last."""
    call: int
    """The first call that was shown its outcome."""
    before: int
    """Prompt of the last call before."""
    after: int
    """What that prompt came down to: the first prompt after it, less what was new in it."""
    interval: int | None
    """Calls until the next cut; None for the last one."""
    minutes: float | None
    refill_3: float | None
    """Share of the freed tokens that was full again three calls later; above 1: fuller than before."""
    refill_10: float | None
    rebound_calls: int | None
    """Calls until the prompt was back at three quarters of its size before; None: it never was."""
    rebound_minutes: float | None
    """Minutes until then; None where it never was, or the log has no times."""
    pays_after: float | None
    """Requests after which the cut has paid for itself (see `breakeven`); None without a price."""
    unpaid: bool | None
    """True where the next cut came before that; None where it cannot be said."""
    reread_rate: float | None
    """Of the next 24 tool calls, the share that repeats one whose result was removed; None where none followed."""
    reorientation: int | None
    """Tool calls from the cut to the first that writes; None where none did."""

    @property
    def savings(self) -> float:
        """Share of the tokens that it saved; 0 or less: it made the prompt larger."""
        return 1 - self.after / self.before if self.before else 0.0


class Thrash(msgspec.Struct, frozen=True):
    """The cuts of a session, summed up. Shares are 0..1; None: no cut can say."""

    cuts: tuple[Cut, ...]
    unpaid_cuts_n: int
    anti_thrash: float | None
    """1 less the share of unpaid cuts, over those that can be said to be paid or not."""
    refill: float | None
    """Mean refill ratio ten calls after a cut."""
    rebound_calls: float | None
    """Median calls until three quarters full again."""
    no_progress_run: int
    """Longest run of cuts that each saved less than a tenth (OpenHands' minimum progress)."""
    reread_rate: float | None
    reorientation: float | None
    """Median tool calls to the first write."""


@of_session
def thrash(session: Session, *, anchored: Sizes | None = None) -> Thrash:
    """Return how a session's compactions held, per cut and summed up."""
    every = cuts(session, anchored=anchored)
    told = [c.unpaid for c in every if c.unpaid is not None]
    return Thrash(
        cuts=every,
        unpaid_cuts_n=sum(told),
        anti_thrash=1 - fmean(told) if told else None,
        refill=_mean([c.refill_10 for c in every]),
        rebound_calls=_median([c.rebound_calls for c in every]),
        no_progress_run=_longest([c.savings < 0.1 for c in every]),
        reread_rate=_mean([c.reread_rate for c in every]),
        reorientation=_median([c.reorientation for c in every]),
    )


@of_session
def spiral(session: Session, limit: int) -> int:
    """Return the longest run of calls whose prompts were above `limit` tokens: a trigger that changed nothing."""
    return _longest([(p or 0) > limit for p in _prompts(session, None)])


@of_session
def cuts(session: Session, *, anchored: Sizes | None = None) -> tuple[Cut, ...]:
    """Return the compactions that a later call was shown; those that free nothing are cuts too.

    Several between two calls were felt as one.
    """
    if not session.edits:
        return ()
    seen = _Seen(session, anchored or sizes(session))
    places = _places(session)
    out: list[Cut] = []
    for i, place in enumerate(places):
        following = places[i + 1].call if i + 1 < len(places) else None
        before = next((p for p in reversed(seen.prompts[: place.call]) if p), None)
        if before is not None:
            out.append(seen.cut(place, before=before, following=following))
    return tuple(out)


def aftermath(session: Session) -> tuple[float | None, float | None]:
    """Return the mean re-read rate and the median re-orientation of a session's cuts, without sizing anything."""
    told = [_afterwards(session, place) for place in _places(session) if place.call]
    return _mean([again for again, _ in told]), _median([first for _, first in told])


class _Place(NamedTuple):
    """What was done between two calls."""

    number: int
    call: int
    """The first call after it."""
    position: int
    """Where the last edit stands."""
    edits: tuple[Edit, ...]


class _Seen:
    """A session with the sizes of its prompts, known once for all of its cuts."""

    def __init__(self, session: Session, anchored: Sizes) -> None:
        self.session, self.anchored, self.prompts = session, anchored, _prompts(session, anchored)

    def cut(self, place: _Place, *, before: int, following: int | None) -> Cut:
        call = place.call
        after = self._after(call, place.position)
        interval = None if following is None else following - call
        stop = following if following is not None else len(self.prompts)
        pays = _pays_after(self.session, self.session.calls[call], place.edits, before, after)
        again, first_write = _afterwards(self.session, place)
        full = next((k for k in range(call, stop) if (self.prompts[k] or 0) >= FULL * before), None)

        def refill(calls: int) -> float | None:
            size = self.prompts[call + calls] if call + calls < stop else None
            return None if size is None or before <= after else (size - after) / (before - after)

        return Cut(
            compaction=place.number,
            call=call,
            before=before,
            after=after,
            interval=interval,
            minutes=_minutes(self.session, call, following),
            refill_3=refill(3),
            refill_10=refill(10),
            rebound_calls=None if full is None else full - call,
            rebound_minutes=_minutes(self.session, call, full),
            pays_after=pays,
            unpaid=None if pays is None or interval is None else interval < pays,
            reread_rate=again,
            reorientation=first_write,
        )

    def _after(self, call: int, position: int) -> int:
        """Return the first known prompt after the cut less what was written since; failed calls are passed over."""
        for k in range(call, len(self.prompts)):
            if self.session.calls[k].message.usage is not None and self.prompts[k]:
                return max((self.prompts[k] or 0) - self._written(position, k), 0)
        return self.anchored.modelled[call] - self._written(position, call)

    def _written(self, position: int, call: int) -> int:
        new = self.session.path[position + 1 : self.session.calls[call].position]
        return sum(self.anchored.of(m) for m in new if isinstance(m, Message) and m.visible)


def _prompts(session: Session, anchored: Sizes | None) -> list[int | None]:
    """Return the size of each prompt: recorded, else modelled."""
    out: list[int | None] = []
    for call in session.calls:
        size = call.message.usage.prompt_tokens if call.message.usage else None
        out.append(size or (anchored.modelled[call.index] if anchored else None))
    return out


def _places(session: Session) -> list[_Place]:
    """Return what was done between two calls, of all calls that were followed by one."""
    replies = [c.position for c in session.calls]
    found: dict[int, _Place] = {}
    for cut in compactions(session):
        call = bisect_left(replies, cut.position)
        if call < len(replies):
            was = found.get(call)
            edits = (*(was.edits if was else ()), *cut.edits)
            found[call] = _Place(cut.number, call, cut.position + len(cut.edits) - 1, edits)
    return list(found.values())


def _pays_after(session: Session, call: Call, edits: Sequence[Edit], before: int, after: int) -> float | None:
    p = price(call.message.model or session.model)
    if p is None or p.cache_read is None:
        return None
    cost = 0.0
    for edit in edits:
        if edit.usage is not None and edit.usage.cost_usd is not None:
            cost += edit.usage.cost_usd
        elif edit.inserted:  # the least: the summary call reads the warm prefix
            cost += before * p.cache_read + sum(len(m.text) for m in edit.inserted) / 4 * p.output
    write = p.cache_write or p.input
    return requests_until_reset_pays(before, after, cost_usd=cost, read_price=p.cache_read, write_price=write)


def _minutes(session: Session, call: int, following: int | None) -> float | None:
    if following is None:
        return None
    a, b = session.calls[call].message.time, session.calls[following].message.time
    return None if a is None or b is None else (b - a) / 60


def _afterwards(session: Session, place: _Place) -> tuple[float | None, int | None]:
    """Return the share of repeats among the next tool calls, and the number of tool calls to the first write."""
    gone = {target for edit in place.edits for target in edit.targets}
    path = session.path
    removed = {_key(c) for e in path[: place.position] if isinstance(e, Message) and e.id in gone for c in e.tool_calls}
    later = [c for e in path[place.position :] if isinstance(e, Message) for c in e.tool_calls]
    near = later[:REREADS]
    again = sum(_key(c) in removed for c in near) / len(near) if near else None
    return again, next((i for i, c in enumerate(later) if any(w in c.name.lower() for w in _WRITES)), None)


def _key(call: ToolCall) -> tuple[str, str]:
    """Two calls are the same where tool and arguments are; a read is the same where the path is."""
    path = call.arguments.get("path") or call.arguments.get("file_path")
    if isinstance(path, str) and "read" in call.name.lower():
        return call.name.lower(), path
    return call.name.lower(), call.raw or json.dumps(call.arguments, sort_keys=True, default=str)


def _longest(flags: list[bool]) -> int:
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return fmean(known) if known else None


def _median(values: list[int | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None
