"""Whole lists of messages and edits: a history made to show them, and told as edits again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from ctxkit.errors import UnsoundHistory, failure_text
from ctxkit.history.head import Head
from ctxkit.history.head_items import Given, Item, renamed
from ctxkit.history.invariants import check
from ctxkit.history.ranges import H, new_item, size_of, with_head
from ctxkit.history.searches import is_safe
from ctxkit.messages import ERROR, Edit, EditKind, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.history.steps import Step, Words
    from ctxkit.history.view import View


def instead_of(view: H, error: str) -> H:
    """Do what `History.instead_of` says."""
    if not view.steps or not error:
        return view
    *before, last = view.steps
    return replace(view, steps=(*before, replace(last, error=failure_text(error))))


def edits_of(view: View) -> tuple[Edit, ...]:
    """Return what was done at this call, as edits with ids and messages."""
    after = [*(step.was for step in view.steps[1:]), view]
    return tuple(edit_of(step, now) for step, now in zip(view.steps, after, strict=False))


def edit_of(step: Step, now: View) -> Edit:
    """Return the step that led to `now` as an edit with ids and messages; targets stood before."""
    log = step.was.log
    positions = step.positions()
    targets = tuple(step.was[p].id for p in positions)
    new = step.new if step.new is not None else tuple(now.head.item(p) for p in positions)
    inserted = tuple(i.message(log) for i in new)
    source = sum(step.was.item(p).tokens for p in positions)
    if step.added and step.at[0] < len(step.was):
        # an edit puts messages where a target stood: so one is put back
        neighbour = step.was[int(step.at[0])]
        targets, inserted = (neighbour.id,), (*inserted, neighbour)
    kind, reason, method, usage = step.words
    details: dict[str, Any] = {"messages_before": len(step.was), "messages_after": len(now)}
    if kind == "summarised" and not step.added:
        details |= {"source_tokens": source, "summary_tokens": sum(i.tokens for i in new)}
        details["written_tokens"] = step.written(log)
    if error := step.error or _error_of(step, inserted):
        details[ERROR] = error
    return Edit(
        kind=kind,
        targets=targets,
        inserted=inserted,
        reason=reason,
        method=method,
        tokens_before=step.was.tokens,
        tokens_after=now.tokens,
        source="derived",
        usage=usage,
        details=details,
    )


def _error_of(step: Step, inserted: Sequence[Message]) -> str:
    """Return why the summary failed in whose place one of these messages was put."""
    failed = [m for m in inserted if m.role == "summary" and ERROR in m.details]
    there = {m.id for m in step.was.messages} if failed else set()
    return "; ".join(dict.fromkeys(str(m.details[ERROR]) for m in failed if m.id not in there))


def insert(
    view: H, position: int, message: Message, reason: str = "", *, method: str | None = None
) -> H:
    """Do what `History.insert` says."""
    if not is_safe(view, position):
        raise UnsoundHistory(
            f"A message at position {position} would part a tool call from its result."
        )
    made = new_item(view, message, stands=view.row(position - 1) if position else -1)
    items = [view.item(p) for p in range(max(position, view.head.size))]
    items.insert(position, made)
    words: Words = ("summarised", reason, method, None)
    upto, done = max(position, view.head.size), (np.array([position]), (made,))
    return with_head(view, Head.of(tuple(items)), upto, position, words, done=done, added=True)


def become(
    view: H, messages: Sequence[Message], reason: str = "", *, method: str | None = None
) -> H:
    """Do what `History.become` says."""
    shown = view.messages
    items = [view.item(p) for p in range(len(view))]
    places = {m.id: p for p, m in enumerate(shown)}
    new: list[Item] = []
    for m in messages:
        p = places.get(m.id)
        old = None if p is None else items[p]
        if p is not None and old is not None and (m is shown[p] or m == shown[p]):
            new.append(old)
        elif old is not None:
            changed = renamed(m, view.log.messages[old.row].id if old.row >= 0 else m.id)
            new.append(Item(old.row, *size_of(view, changed, old.row), Given(changed), old.stands))
        else:
            new.append(new_item(view, m, new[-1].row if new else -1, n=len(new)))
    pairs = enumerate(zip(items, new, strict=False))
    first = next((i for i, (a, b) in pairs if a is not b), min(len(items), len(new)))
    if first == len(items) == len(new):
        return view
    rest = np.arange(first, len(items))
    kind: EditKind = "summarised" if len(new) > first else "dropped"
    words: Words = ("replaced" if len(items) == len(new) else kind, reason, method, None)
    head, step = Head.of(tuple(new)), (rest, tuple(new[first:]))
    done = with_head(view, head, len(view), first, words, done=step)
    check(done, view)
    return done


def apply(view: H, edit: Edit) -> H:
    """Do what `History.apply` says."""
    shown = view.messages
    ids = {m.id: p for p, m in enumerate(shown)}
    at = sorted(ids[t] for t in edit.targets if t in ids)
    if edit.kind in ("shortened", "replaced"):
        pairs = zip(edit.targets, edit.inserted, strict=False)
        return _apply_changes(view, edit, {ids[t]: m for t, m in pairs if t in ids})
    where, gone = min(at, default=len(view)), set(at)
    upto = max(at[-1] + 1 if at else len(view), view.head.size)
    stands = view.row(at[-1]) if at else -1
    made = tuple(
        view.item(ids[m.id])  # it was there before something was put in front of it
        if ids.get(m.id, -1) in gone and shown[ids[m.id]] == m
        else Item(-1, *size_of(view, m, -1), Given(m), stands)
        for m in edit.inserted
    )
    items = [view.item(p) for p in range(upto) if p not in gone]
    items[where:where] = made
    words, step = (edit.kind, edit.reason, edit.method, edit.usage), (np.array(at, int), made)
    return with_head(view, Head.of(tuple(items)), upto, where, words, done=step)


def _apply_changes(view: H, edit: Edit, new: dict[int, Message]) -> H:
    if not new:
        return view
    at = sorted(new)
    upto = max(at[-1] + 1, view.head.size)
    items = [view.item(p) for p in range(upto)]
    for p in at:
        row, size = items[p].row, size_of(view, new[p], items[p].row)
        items[p] = Item(row, *size, Given(new[p]), items[p].stands)
    made = tuple(items[p] for p in at)
    words = (edit.kind, edit.reason, edit.method, edit.usage)
    return with_head(view, Head.of(tuple(items)), upto, at[0], words, done=(np.array(at), made))
