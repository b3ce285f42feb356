"""What compactions lost: which items, whether they can be found again, and whether the record needed them later.

An item is *retained* where it stands word for word (a path also as the ending of a longer one) in what is shown after
the cut; *recoverable* where a file, an artifact or an archive holds it that is named there; else *lost*. It was
*needed* where the record names it again, in a reply's text or tool arguments, before the next cut. Needed-later loss
counts what was needed and out of sight; a part of it could have been fetched again, which costs a call. The record's
own future is taken as it is: this is the opportunity for loss, not what an agent would have done without the item.
"""

from __future__ import annotations

from collections import Counter as Tally
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ctxkit.frames.cuts import cuts
from ctxkit.messages import Message, Sized, ToolCall
from ctxkit.metrics.items import FAMILIES, Family, Found, items, names, used
from ctxkit.session import Session, apply_edit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.frames.cuts import Cut
    from ctxkit.sizes import Sizes

Fate = Literal["retained", "recoverable", "lost"]
FATES: tuple[Fate, ...] = get_args(Fate)
COLUMNS = (
    *("session", "cut", "call", "family", "item", "fate"),
    *("position", "message", "role", "tool", "needed_call", "delay"),
)
_ON_DISK = ("read", "view", "cat", "open", "write", "create", "edit", "patch")
"""Words in the names of tools whose content is the file that an argument names."""
_KEPT_ELSEWHERE = ("offload", "artifact", "archive")
"""Words in an edit's reason, method or stub that say that the whole text is kept elsewhere."""


class Gone(NamedTuple):
    """One item of what a cut removed, or an earlier one had removed."""

    item: Found
    position: int
    """Place in `session.path` of the first removed message that held it."""
    fate: Fate
    needed: int | None
    """The first call before the next cut that names it again; None: none does."""


class CutLoss(NamedTuple):
    """What stood after one cut of all that had been removed since the start."""

    number: int
    call: int
    """The first call after it."""
    items: tuple[Gone, ...]
    saved: float
    """How many of the needed items the best set of messages of the same size could have kept: an upper bound."""

    def count(self, fate: Fate | None = None, family: Family | None = None, *, needed: bool = False) -> int:
        """Return how many items are of a fate and family, or were needed."""
        return sum(
            (fate is None or g.fate == fate)
            and (family is None or g.item.family == family)
            and (not needed or g.needed is not None)
            for g in self.items
        )


class Index:
    """The items of messages, each message read once; replays share the parts of their record, and so this."""

    def __init__(self, anchored: Sizes | None = None) -> None:
        self._held: dict[int, tuple[Any, frozenset[Found], frozenset[Found]]] = {}
        self._used: dict[int, frozenset[Found]] = {}
        self._size: dict[int, int] = {}
        if anchored is not None:
            messages = anchored.session.messages
            self._size = {id(m.parts): n for m, n in zip(messages, anchored.tokens, strict=True) if m.parts}

    def items(self, message: Message) -> frozenset[Found]:
        """Return the items of a message."""
        return self._of(message)[1]

    def names(self, message: Message) -> frozenset[Found]:
        """Return its items and the endings of its paths."""
        return self._of(message)[2]

    def used(self, message: Message) -> frozenset[Found]:
        """Return what a reply names in text and arguments."""
        self._of(message)  # keeps the parts alive, so that their identity is theirs
        key = id(message.parts)
        if key not in self._used:
            self._used[key] = used(message)
        return self._used[key]

    def size(self, message: Message) -> int:
        """Return the tokens of a message: anchored where it is of the record, else a quarter of its characters."""
        known = self._size.get(id(message.parts))
        if known is not None:
            return known
        sized = sum(p.tokens or 0 for p in message.parts if isinstance(p, Sized))
        return sized or len(message.text) // 4

    def _of(self, message: Message) -> tuple[Any, frozenset[Found], frozenset[Found]]:
        key = id(message.parts)
        found = self._held.get(key)
        if found is None:
            of = items(message)
            found = self._held[key] = (message.parts, of, names(of))
        return found


def cut_losses(session: Session, index: Index | None = None) -> tuple[CutLoss, ...]:
    """Return what was lost after each compaction of a session or a replay; nothing where it holds no text."""
    found = cuts(session)
    if not found or not session.has_text:
        return ()
    state = _State(session, index or Index())
    ends = [c.position for c in found[1:]] + [len(session.path)]
    return tuple(state.cut(cut, end) for cut, end in zip(found, ends, strict=True))


class _State:
    """What is shown and what is gone, brought on from cut to cut."""

    def __init__(self, session: Session, index: Index) -> None:
        self.session, self.index, self.at = session, index, 0
        self.shown: list[Message] = []
        self.named: Tally[Found] = Tally()
        self.written: dict[int, str] = {}
        """Texts of the messages that cuts put in and that are shown, one space between words."""
        self.gone: dict[Found, tuple[int, set[str], bool]] = {}
        """Items removed so far: where first, files that hold them, whether they are kept elsewhere."""
        self.holders: dict[Found, list[Message]] = {}
        """The messages said so far that name each item."""
        self.place = {id(e): i for i, e in enumerate(session.path)}
        self.files = _files(session)
        self.calls = {c.position: c.index for c in session.calls}

    def cut(self, cut: Cut, end: int) -> CutLoss:
        for entry in self.session.path[self.at : cut.position]:
            if isinstance(entry, Message) and entry.visible:
                self.shown.append(entry)
                found = self.index.names(entry)
                self.named.update(found)
                for item in found:
                    self.holders.setdefault(item, []).append(entry)
        before = self.shown
        for edit in cut.edits:
            self.shown = apply_edit(self.shown, edit)
        self.at = cut.position + len(cut.edits)
        self._exchange(before, cut)
        later = self._later(end)
        call = min((c for p, c in self.calls.items() if p >= cut.position), default=len(self.calls))
        out = tuple(self._fate(item, *where, later) for item, where in self.gone.items())
        return CutLoss(cut.number, call, out, self._best({g.item for g in out if g.needed is not None}))

    def _exchange(self, before: Sequence[Message], cut: Cut) -> None:
        old, new = {id(m): m for m in before}, {id(m): m for m in self.shown}
        words = " ".join(f"{e.reason} {e.method} {e.inserted[0].text[:200] if e.inserted else ''}" for e in cut.edits)
        elsewhere = any(w in words.lower() for w in _KEPT_ELSEWHERE)
        for key, message in old.items():
            if key in new:
                continue
            self.named.subtract(self.index.names(message))
            self.written.pop(key, None)
            if key in self.place:
                self._take(message, elsewhere=elsewhere)
        for key, message in new.items():
            if key not in old:
                self.named.update(self.index.names(message))
                self.written[key] = " ".join(message.text.split())

    def _take(self, message: Message, *, elsewhere: bool) -> None:
        place, file = self.place[id(message)], self.files.get(id(message))
        for item in self.index.items(message):
            first, held, kept = self.gone.get(item, (place, set(), False))
            if file:
                held.add(file)
            self.gone[item] = (first, held, kept or elsewhere)

    def _fate(
        self,
        item: Found,
        position: int,
        held: set[str],
        elsewhere: bool,
        later: dict[Found, int],
    ) -> Gone:
        if self._stands(item):
            fate: Fate = "retained"
        else:
            found = elsewhere or any(self._stands(Found("path", path)) for path in held if path != item.text)
            fate = "recoverable" if found else "lost"
        return Gone(item, position, fate, later.get(item))

    def _stands(self, item: Found) -> bool:
        return self.named[item] > 0 or any(item.text in text for text in self.written.values())

    def _later(self, end: int) -> dict[Found, int]:
        """Return what replies name before the next cut, each with the first call that does."""
        out: dict[Found, int] = {}
        for position in range(self.at, end):
            entry = self.session.path[position]
            if isinstance(entry, Message) and entry.role == "assistant":
                for item in self.index.used(entry):
                    out.setdefault(item, self.calls[position])
        return out

    def _best(self, needed: set[Found]) -> float:
        """Return how many needed items the best messages could hold in the room of what is shown.

        A fractional knapsack by size; an item that several messages hold counts for each, so this is a bound.
        """
        if not needed:
            return 0.0
        room = float(sum(map(self.index.size, self.shown)))
        counts = Tally(id(m) for item in needed for m in self.holders.get(item, ()))
        sizes = {id(m): max(self.index.size(m), 1) for item in needed for m in self.holders.get(item, ())}
        worth = [(n, sizes[key]) for key, n in counts.items()]
        held = 0.0
        for value, size in sorted(worth, key=lambda w: -w[0] / w[1]):
            held += value * min(1.0, room / size)
            room -= size
            if room <= 0 or held >= len(needed):
                break
        return min(held, float(len(needed)))


def _files(session: Session) -> dict[int, str]:
    """Return for tool results and calls the file on disk whose content they carry, by identity of the message."""
    asked: dict[str, str] = {}
    out: dict[int, str] = {}
    for message in session.messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and any(w in part.name.lower() for w in _ON_DISK):
                path = next((v for k in ("path", "file_path", "filePath") if (v := part.arguments.get(k))), None)
                if isinstance(path, str):
                    asked[part.id] = out[id(message)] = path
        if message.call_id in asked:
            out[id(message)] = asked[message.call_id]
    return out


def shares(session: Session, index: Index | None = None) -> dict[str, Any]:
    """Return a score's columns of loss, over all cuts; missing without text, or where a pruning hides messages.

    Where nothing was cut, nothing was lost that was needed: that is a zero.
    """
    if not session.has_text or session.details.get("replay", {}).get("pruning"):
        return {}
    return summed(cut_losses(session, index))


def summed(every: Iterable[CutLoss]) -> dict[str, Any]:
    """Return the columns of loss for some cuts."""
    every = tuple(every)
    n, needed = sum(len(c.items) for c in every), sum(c.count(needed=True) for c in every)
    kept = sum(c.count("retained", needed=True) for c in every)
    gone = sum(c.count("lost", needed=True) for c in every)
    best = sum(max(c.count(needed=True) - c.saved, 0.0) for c in every)
    delays = [g.needed - c.call for c in every for g in c.items if g.fate != "retained" and g.needed is not None]
    of: dict[str, Any] = {fate: sum(c.count(fate) for c in every) / n if n else None for fate in FATES}
    return {
        "items_n": n,
        **of,
        "needed_later_n": needed,
        "needed_later_loss": (needed - kept) / needed if needed else 0.0,
        "needed_later_gone": gone / needed if needed else 0.0,
        "first_use_delay": float(median(delays)) if delays else None,
        "regret": max(needed - kept - best, 0.0) / needed if needed else 0.0,
    }


def families(session: Session, index: Index | None = None) -> pd.DataFrame:
    """Return one row for each cut and family.

    Columns: `cut call family items_n retained recoverable lost needed_n needed_lost_n`. Retained, recoverable and lost
    are shares of the items removed since the start, missing where there are none.
    """
    import pandas as pd

    rows = []
    for c in cut_losses(session, index):
        for family in FAMILIES:
            n = c.count(family=family)
            of = {fate: c.count(fate, family) / n if n else None for fate in FATES}
            needed = c.count(family=family, needed=True)
            lost = needed - c.count("retained", family, needed=True)
            rows.append((c.number, c.call, family, n, *of.values(), needed, lost))
    names_ = ["cut", "call", "family", "items_n", "retained", "recoverable", "lost", "needed_n", "needed_lost_n"]
    return pd.DataFrame(rows, columns=names_).astype(dict.fromkeys(("retained", "recoverable", "lost"), "Float64"))


def losses(session: Session, index: Index | None = None) -> pd.DataFrame:
    """Return one row for each item that a cut took out of what is shown.

    Columns: `session cut call family item fate position message role tool needed_call delay`: the cut that took it and
    the first call after it, where it was (place in the path, id, role and tool of the first message that held it), the
    first later call before the next cut that named it again (missing: none did), and how many calls after the cut.
    """
    import pandas as pd

    rows, out = [], set()
    for c in cut_losses(session, index):
        for g in sorted(c.items, key=lambda g: (g.position, g.item)):
            if g.fate == "retained":
                out.discard(g.item)
            elif g.item not in out or g.needed is not None:
                out.add(g.item)
                m = session.path[g.position]
                told = (m.id, m.role, m.tool) if isinstance(m, Message) else (m.id, None, None)
                delay = None if g.needed is None else g.needed - c.call
                row = (session.id, c.number, c.call, *g.item, g.fate, g.position, *told, g.needed, delay)
                rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"needed_call": "Int64", "delay": "Int64"})
