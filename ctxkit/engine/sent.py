"""What went out at a call: each message, what it was before, and who changed it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.policies.base import apply_policy
from ctxkit.policies.history.head import content_hash, row_content_hash
from ctxkit.policies.protocols import name_of
from ctxkit.policies.schedules.layers import changes_between
from ctxkit.policies.schedules.rows import MessageState
from ctxkit.session.messages import Message, SizeOnly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine.segments import RunLike
    from ctxkit.policies.base import BasePolicy
    from ctxkit.policies.history.history import History
    from ctxkit.policies.schedules.pruning_schedule import Schedule

FIXED_KIND = "fixed"
"""The kind of the item that stands for all that no message of the log holds."""


class SentItem(NamedTuple):
    """One message of a prompt, as it was sent."""

    message: Message
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed; 0 where a rule put it there."""
    changed_by: str | None
    """The part of the rules that changed it or put it there; None: it was sent as it was said."""
    row: int = -1
    """Its place among the messages that were said; -1: it is none of them."""
    pruned: bool = False
    """It was changed for this call alone, by a pruning; False: by a compaction, for good."""


class PromptChange(NamedTuple):
    """How a prompt differs from the one before it."""

    call: int
    anew: bool
    """True: nothing of the prompt before counts, and all of this one has come."""
    came: list[MessageState]
    gone: list[MessageState]
    fixed: int
    """Tokens that no message holds."""


def sent_items(run: RunLike, call: int | None) -> tuple[SentItem, ...]:
    """Return what went out at a call: first what no message holds, then the messages in order.

    None: what the next call would be sent, if nothing were compacted.
    """
    items, _ = _items_and_left_out(run, call)
    fixed = run.log.fixed_in(run.call if call is None else call)
    if fixed:
        said = Message(
            role="system",
            id=FIXED_KIND,
            kind=FIXED_KIND,
            parts=(SizeOnly(FIXED_KIND, tokens=fixed),),
        )
        items.insert(0, SentItem(said, fixed, fixed, None))
    return tuple(items)


def left_out_rows(run: RunLike, call: int | None) -> dict[int, str]:
    """Return the rows that stood at a call and that prunings left out, with the part that did."""
    return _items_and_left_out(run, call)[1]


def iter_prompt_changes(
    run: RunLike, start: int = 0, stop: int | None = None
) -> Iterator[PromptChange]:
    """Yield what comes and goes at each of the calls start..stop, the first of them anew.

    Their prompts are gone through once, however many there are; where a part says no schedule,
    each prompt is worked out by itself.
    """
    stop = run.call if stop is None else min(stop, run.call)
    begins = {start, run.begin, *(c.call for c in run.cuts)}
    bounds = [*sorted(c for c in begins if start <= c < stop), stop]
    for begin, end in pairwise(bounds):
        pruned = run.pruned(begin)
        if pruned.rest:
            yield from (
                full_prompt_change(call, sent_items(run, call)) for call in range(begin, end)
            )
        else:
            yield from _schedule_changes(pruned.schedule.extend(end), begin, end)


def full_prompt_change(call: int, items: Sequence[SentItem]) -> PromptChange:
    """Return a call with all that it was sent, as if nothing were known of the one before."""
    fixed, came = 0, list[MessageState]()
    for item in items:
        if item.message.kind == FIXED_KIND:
            fixed = item.tokens
        else:
            same = item.row >= 0 and item.changed_by is None
            key = content_hash(item.message)  # one text in two places counts as what each was
            content = -item.row - 1 if same else row_content_hash(item.row, key)
            came.append(MessageState(call, item.message, item.tokens, content))
    return PromptChange(call, anew=True, came=came, gone=[], fixed=fixed)


def _items_and_left_out(run: RunLike, call: int | None) -> tuple[list[SentItem], dict[int, str]]:
    """Return the messages of a prompt, and the rows that were left out of it."""
    call = run.call if call is None else call
    pruned = run.pruned(call)
    schedule = pruned.schedule.extend(call + 1)
    out: dict[int, str] = {}
    done = (c.by for c in reversed(run.cuts) if c.call <= call)
    by = next(filter(None, done), "") if run.rules.policy is None else name_of(run.rules.policy)
    items = list(_scheduled_items(schedule, call, by or "a compaction", out))
    if pruned.rest:
        items = _called_items(schedule.left(call), pruned.rest, items, run, out)
    return items, out


def _schedule_changes(schedule: Schedule, start: int, stop: int) -> Iterator[PromptChange]:
    """Yield the calls start..stop of a schedule that was extended to there, the first anew."""
    rows, top, n = schedule.rows, schedule.top, schedule.rows.shown(start)
    came, gone = [top.state(p, start) for p in range(n)], list[MessageState]()
    events, i, before = changes_between(top.events, start + 1, stop), 0, None
    for call in range(start, stop):
        if call > start:
            came, gone = [rows.said(p) for p in range(n, rows.shown(call))], []
            n = rows.shown(call)
        while i < len(events) and events[i].call <= call:
            gone.append(events[i].was)
            came.append(events[i].now)
            i += 1
        if before is not None:
            gone.append(before)
        added = top.added(call)
        before = (
            None
            if added is None
            else MessageState(call, added.message, added.tokens, added.content)
        )
        if before is not None:
            came.append(before)
        yield PromptChange(call, call == start, came, gone, rows.log.fixed_in(call))


def _scheduled_items(
    schedule: Schedule, call: int, policy: str, out: dict[int, str]
) -> Iterator[SentItem]:
    """Yield what a schedule leaves of a call's messages; note in `out` the rows that it
    leaves out.
    """
    rows, log = schedule.rows, schedule.rows.log
    changed = dict(schedule.changed(call))
    for p in range(rows.shown(call)):
        said = rows.said(p)
        state = changed.get(p, said)
        row = rows.row(p)
        part = schedule.top.origin(p, call) if p in changed else None
        if state.message is None:
            out[row] = name_of(part)
            continue
        edited = row < 0 or said.content != -row - 1  # by a compaction, or put in by one
        by = name_of(part) if part is not None else policy if edited else None
        raw = log.tokens.sizes[row] if row >= 0 else 0 if by else said.tokens
        yield SentItem(state.message, state.tokens, raw, by, row, part is not None)
    added = schedule.top.added(call)
    if added is not None:
        yield SentItem(added.message, added.tokens, 0, name_of(schedule.adder(call)), pruned=True)


def _called_items(
    view: History,
    parts: Sequence[BasePolicy],
    items: list[SentItem],
    run: RunLike,
    out: dict[int, str],
) -> list[SentItem]:
    """Return what parts leave that are asked call by call."""
    for part in parts:
        new = apply_policy(part, view, run.room)
        if new is not view:
            known = {(item.row, item.message.id.split("~")[0]): item for item in items}
            items = [_item(new, p, part, known) for p in range(len(new))]
            there = {item.row for item in items}
            out.update({row: name_of(part) for row, _ in known if row >= 0 and row not in there})
        view = new
    return items


def _item(view: History, p: int, part: Any, known: dict[tuple[int, str], SentItem]) -> SentItem:
    item, message = view.item(p), view[p]
    before = known.get((item.row, message.id.split("~")[0]))
    if before is not None and before.message.parts == message.parts:
        return before
    raw = before.raw_tokens if before is not None else 0
    return SentItem(message, item.tokens, raw, name_of(part), item.row, pruned=True)
