"""fuseraft's compactions as edits: told by the turns that stayed, or by sizes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.messages import Edit, Message, Sized
from ctxkit.readers.fields import as_text, number, word

if TYPE_CHECKING:
    from ctxkit.readers.logs import ReaderLog


class FuseraftEvent(NamedTuple):
    """One event: what it tells, when, in which turn and of which agent (empty: of none)."""

    told: dict[str, Any]
    when: float | None
    turn: int | None
    agent: str


class CompactedTurns:
    """Writes the compactions of one session into its log."""

    def __init__(self, log: ReaderLog) -> None:
        self._log = log
        self._known: dict[str, Message] = {}
        self._seen = 0

    def by_turns(self, e: FuseraftEvent) -> None:
        """Write one whose event says how many turns stayed, or nothing of what did."""
        retained = number(e.told.get("turns_retained"))
        is_window = e.told.get("mode") == "window"
        kept, details = set[str](), dict[str, Any]()
        if retained is not None:
            kept = self._last(retained) if self._log.may_edit() else kept
            details = {"targets": "derived from the number of turns retained"}
        after = number(e.told.get("after_tokens"))
        summary = self._summary(after if retained is None else None, e)
        edit = Edit(
            kind="dropped" if is_window else "summarised",
            id=self._log.new_id(),
            inserted=() if is_window else (summary,),
            reason=as_text(e.told.get("focus"))[:200],
            trigger=word(e.told.get("source")) or word(e.told.get("reason")),
            method=word(e.told.get("mode")) or "compaction",
            agent=e.agent or None,
            time=e.when,
            tokens_before=number(e.told.get("before_tokens")),
            tokens_after=after,
            details=details,
        )
        self._log.compact(edit, kept)

    def by_size(self, e: FuseraftEvent) -> None:
        """Write one of a live session of this kit, which says only how large the rest is."""
        after = number(e.told.get("tokens_after"))
        counts = {f"messages_{k}": number(e.told.get(k)) for k in ("before", "after")}
        summary = self._summary(after, e)
        edit = Edit(
            kind="summarised",
            id=self._log.new_id(),
            inserted=(summary,),
            reason="what stayed is not in the log, only its size",
            trigger=word(e.told.get("trigger")),
            method="compaction",
            agent=e.agent or None,
            time=e.when,
            tokens_before=number(e.told.get("tokens_before")),
            tokens_after=after,
            details={k: n for k, n in counts.items() if n is not None},
        )
        self._log.compact(edit, ())

    def _summary(self, size: int | None, e: FuseraftEvent) -> Message:
        said, own = (Sized("summary", tokens=size),), self._log.new_id()
        return Message(role="summary", id=own, parts=said, time=e.when, turn=e.turn)

    def _last(self, n: int) -> set[str]:
        """Return the ids of the last turns, and of what belongs to all of them."""
        for e in self._log.entries[self._seen :]:
            if isinstance(e, Message):
                self._known[e.id] = e
        self._seen = len(self._log.entries)
        found = [m for i in self._log.shown if (m := self._known.get(i)) is not None]
        turns = list(dict.fromkeys(m.turn for m in found if m.turn is not None))
        last = set(turns[max(len(turns) - n, 0) :])
        return {m.id for m in found if m.turn in last or m.role == "system"}
