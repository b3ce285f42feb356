"""Cuts that did not pay: how soon the context was full again, and what was read twice."""

from __future__ import annotations

from bisect import bisect_left
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from ctxkit.faces import renamed
from ctxkit.frames.costs import cost
from ctxkit.frames.recorded_cuts import cuts as placed
from ctxkit.frames.summary_costs import NO_MODEL
from ctxkit.messages import Message
from ctxkit.metrics.bills import Sheet, WrittenSummary
from ctxkit.metrics.compaction import Compaction, Verdict, felt, longest, summed, verdicts
from ctxkit.metrics.item_arrays import RowTimes
from ctxkit.metrics.means import mean, middle
from ctxkit.metrics.rereads import Rereads
from ctxkit.metrics.shared_prefixes import Sent
from ctxkit.metrics.shown import shown_in
from ctxkit.metrics.size import sent_in, spots_in
from ctxkit.readers.given import of_session
from ctxkit.session import apply_edit
from ctxkit.sizes import Sizes, sizes
from ctxkit.sizes.prompt_sizes import sizes_around

if TYPE_CHECKING:
    from ctxkit.messages import Edit
    from ctxkit.session import Session

__all__ = ["Judged", "Thrash", "compactions", "cuts", "spiral", "thrash"]


class Judged(Verdict, frozen=True, kw_only=True):
    """One compaction, as its calls felt it. Sizes are tokens of the prompt; None: not known."""

    compaction: int
    """Its number, as ``frame(per="compaction")`` counts; of several before a call the last."""
    call: int
    """The first call that was shown its outcome."""
    before: int
    """The prompt without it; in a record the last one before."""
    after: int
    """What that came down to."""
    savings: float
    """Share of the tokens that it saved; 0 or less: it made the prompt larger."""
    written: tuple[WrittenSummary, ...]
    """The summaries that a model wrote for it."""
    minutes: float | None
    """Until the next one."""
    rebound_minutes: float | None
    """Until the prompt was back at three quarters of its size before; None: it never was."""
    reread_rate: float | None
    """Of the next 24 tool calls, the share that repeats one that went; None: none followed."""
    reorientation: int | None
    """Tool calls from it to the first that writes; None where none did."""


class Thrash(msgspec.Struct, frozen=True):
    """The cuts of a session, summed up. Shares are 0..1; None: no cut can say."""

    cuts: tuple[Judged, ...]
    unpaid_cuts_n: int | None
    anti_thrash: float | None
    """1 less the share of unpaid cuts, over those that can be said to be paid or not."""
    refill: float | None
    """Mean refill ratio ten calls after a cut."""
    rebound_calls: float | None
    """Median calls until three quarters full again."""
    no_progress_n: int
    """Longest run of cuts that each saved less than a tenth (OpenHands' minimum progress)."""
    reread_rate: float | None
    reorientation: float | None
    """Median tool calls to the first write."""
    thrash: bool
    """As the column of a score: three cuts in a row without progress, or most did not pay."""


@of_session
def thrash(session: Session, *, anchored: Sizes | None = None) -> Thrash:
    """Return how the compactions of a session or a replay held, per cut and summed up."""
    every = cuts(session, anchored=anchored)
    return Thrash(
        cuts=every,
        **summed([c.savings for c in every], every),
        reread_rate=mean([c.reread_rate for c in every]),
        reorientation=middle([c.reorientation for c in every]),
    )


@of_session
def spiral(session: Session, limit: int) -> int:
    """Return the longest run of calls above `limit` tokens: a trigger that changed nothing."""
    usages = (c.message.usage for c in session.calls)
    return longest([u is not None and (u.prompt_tokens or 0) > limit for u in usages])


@of_session
def cuts(session: Session, *, anchored: Sizes | None = None) -> tuple[Judged, ...]:
    """Return the compactions that a later call was shown; those that free nothing are cuts too.

    Several between two calls were felt as one. Of a replay they are those that its score counts.
    """
    if not session.edits:
        return ()
    origin, anchored = session.origin or session, anchored or sizes(session.origin or session)
    every, prompts = compactions(session, anchored)
    found = felt(every, len(prompts))
    sheet = Sheet.of(origin, anchored)
    told = verdicts(found, prompts, sheet, [sheet.summaries_usd(c.written) for c in found])
    rows = RowTimes(session)
    shown, rereads = shown_in(rows, session), Rereads(rows)
    out = []
    for cut, verdict in zip(found, told, strict=True):
        end = None if verdict.interval is None else cut.call + verdict.interval
        full = None if verdict.rebound_calls is None else cut.call + verdict.rebound_calls
        again, write = rereads.after(shown, cut.call) if cut.call else (None, None)
        out.append(
            Judged(
                **msgspec.structs.asdict(verdict),
                compaction=cut.number,
                call=cut.call,
                before=cut.before,
                after=cut.after,
                savings=cut.savings,
                written=cut.written,
                minutes=_minutes(session, cut.call, end),
                rebound_minutes=_minutes(session, cut.call, full),
                reread_rate=again,
                reorientation=write,
            )
        )
    return tuple(out)


def compactions(session: Session, anchored: Sizes) -> tuple[list[Compaction], Sent]:
    """Return all compactions of a session or a replay, and its prompts."""
    if session.origin is not None:
        return spots_in(session), sent_in(session)
    prompts = _prompts(session, anchored)
    return _recorded(session, anchored, prompts), Sent(prompts)


def _prompts(session: Session, anchored: Sizes) -> list[int]:
    """Return the size of each prompt: recorded, else modelled."""
    usages = (c.message.usage for c in session.calls)
    recorded = (u.prompt_tokens if u else None for u in usages)
    return [size or n for size, n in zip(recorded, anchored.modelled, strict=True)]


def _recorded(session: Session, anchored: Sizes, prompts: list[int]) -> list[Compaction]:
    """Return those of a record, also where no call came before or after."""
    replies = [c.position for c in session.calls]
    one: dict[int, tuple[int, int, int, list[Edit]]] = {}
    for cut in placed(session):
        call = bisect_left(replies, cut.position)
        _, first, _, edits = one.get(call, (0, cut.position, 0, []))
        last = cut.position + len(cut.edits) - 1
        one[call] = cut.number, first, last, [*edits, *cut.edits]
    out, shown, at = [], list[Message](), 0
    for call, (number, first, position, edits) in one.items():
        before = next((p for p in reversed(prompts[:call]) if p), None)
        was, source = shown, dict[int, int]()  # an edit leaves `was` as it is: it makes a new list
        for entry in session.path[at : position + 1]:
            if isinstance(entry, Message):
                if entry.visible:
                    shown.append(entry)
                continue
            targets = set(entry.targets)
            source[id(entry)] = sum(anchored.of(m) for m in shown if m.id in targets)
            shown = apply_edit(shown, entry)
        at = position + 1
        had, left = (sum(map(anchored.of, messages)) for messages in (was, shown))
        live = sizes_around(session, first, position)
        if live is not None:
            before, after, _ = live
        elif before is None or call >= len(replies):
            before = max(before or 0, had)
            after = max(before - had + left, 0)
        else:
            after = _after(session, anchored, prompts, call, position)
        size = {id(e): sum(anchored.of(m) for m in e.inserted) for e in edits}
        written = [_written(session, e, call, source[id(e)], before, size[id(e)]) for e in edits]
        told = tuple(w for w in written if w is not None)
        counts, put = (len(was), len(shown)), sum(size.values())
        alike = sum(anchored.of(a) for a, _ in takewhile(_same, zip(was, shown, strict=False)))
        front = min(max(before - had, 0) + alike, after)
        out.append(Compaction(call, before, after, *counts, put, told, number, front))
    return out


def _same(pair: tuple[Message, Message]) -> bool:
    return pair[0] is pair[1]


def _after(session: Session, anchored: Sizes, prompts: list[int], call: int, position: int) -> int:
    """Return the first known prompt after a cut less what came since; failed calls are none."""
    for k in range(call, len(prompts)):
        if session.calls[k].message.usage is not None and prompts[k]:
            return max(prompts[k] - _since(session, anchored, position, k), 0)
    return anchored.modelled[call] - _since(session, anchored, position, call)


def _since(session: Session, anchored: Sizes, position: int, call: int) -> int:
    new = session.path[position + 1 : session.calls[call].position]
    return sum(anchored.of(m) for m in new if isinstance(m, Message) and m.visible)


def _written(  # noqa: PLR0917  the fields of `WrittenSummary`
    session: Session, edit: Edit, call: int, source: int, prompt: int, size: int
) -> WrittenSummary | None:
    """Return the summary of an edit as a replay has it: made from what went, by one more call."""
    if edit.kind != "summarised" or not edit.inserted or edit.method in NO_MODEL:
        return None
    usd = None
    if edit.usage is not None:
        model = edit.model or session.model
        usd, _ = cost(Message(role="assistant", usage=edit.usage), model)
    return WrittenSummary(call, source, prompt, size, usd)


def _minutes(session: Session, call: int, following: int | None) -> float | None:
    if following is None:
        return None
    a, b = session.calls[call].message.time, session.calls[following].message.time
    return None if a is None or b is None or b < a else (b - a) / 60


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Cut": "Judged"})
