"""What a run lost, from a session's memory: the columns of `metrics.loss` where cuts take what is oldest."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.metrics.thrash import REREADS
from ctxkit.metrics.views import _KEPT_ELSEWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ctxkit.engine import Run
    from ctxkit.messages import Message
    from ctxkit.sweeps.memories import Memory

    Flags = NDArray[np.bool_]


class Mark(NamedTuple):
    """One cut: rows before `row` are gone but for the first ones, which stay, and a summary."""

    call: int
    row: int
    stay: int
    summary: Message | None
    words: str


class Taken(NamedTuple):
    """The items that a cut took out of sight, and what the best set could have saved of those that are due."""

    call: int
    items: NDArray[Any]
    lost: Flags
    missing: float


def loss_columns(memory: Memory, done: Run) -> dict[str, Any] | None:
    """Return the columns of loss of a run; None where its cuts take something else than the oldest messages."""
    marks = _marks(done)
    if marks is None:
        return None
    return {**_losses(memory, marks), **_aftermath(memory, marks)}


def _marks(done: Run) -> list[Mark] | None:
    if done.rules.pruning is not None:
        return None
    out: list[Mark] = []
    before = 0
    for cut in done.cuts:
        steps, new = cut.steps, cut.new
        stay, items = 0, new.head.items
        while stay < len(items) and items[stay].row == stay and items[stay].maker is None:
            stay += 1
        made = items[stay:]
        simple = len(steps) == 1 and steps[0].kind in ("summarised", "dropped") and not steps[0].added
        if not simple or len(made) > 1 or any(i.row >= 0 for i in made) or (out and stay != out[0].stay):
            return None
        if new.lo < before:
            return None
        before = new.lo
        summary = made[0].message(done.log) if made else None
        text = summary.text[:200] if summary is not None and steps[0].new else ""
        out.append(Mark(cut.call, new.lo, stay, summary, f"{steps[0].words[1]} {steps[0].words[2]} {text}".lower()))
    return out


class _State:
    """What is gone, in sight and out of sight, brought on from cut to cut; flags are one an item."""

    def __init__(self, memory: Memory, stay: int) -> None:
        self.memory = memory
        self.gone, self.out, self.kept, self.needed = (np.zeros(memory.n, bool) for _ in range(4))
        self.front = np.zeros(memory.n, bool)
        self.front[memory.named.of(0, stay)] = True
        self.row, self.said = stay, 0
        self.stay = stay
        self.counts = dict.fromkeys(("items", "retained", "recoverable", "lost", "window", "shown"), 0)

    def cut(self, mark: Mark, stop: int) -> Taken:
        memory, upto = self.memory, self.memory.upto[mark.call]
        removed = memory.held.of(self.row, mark.row)
        self.gone[removed] = True
        if any(word in mark.words for word in _KEPT_ELSEWHERE):
            self.kept[removed] = True
        self.out[memory.named.of(self.said, upto)] = False
        self.row, self.said = mark.row, upto
        seen = self.front.copy()
        seen[memory.named.of(mark.row, upto)] = True
        files = slice(memory.filed.starts[self.stay], memory.filed.starts[mark.row])
        if mark.summary is not None and mark.summary.text:
            self._read(mark.summary, seen, memory.paths[files])
        found = self.kept.copy()
        found[memory.filed.values[files][seen[memory.paths[files]]]] = True
        away = self.gone & ~seen
        lost = away & ~found
        due = self.gone & (memory.last_use >= mark.call)
        self.needed |= due
        self._count(away, lost, seen, memory.used.of(mark.call, stop))
        taken = np.flatnonzero(away & ~self.out)
        self.out = away
        return Taken(mark.call, taken, lost[taken], max(int(due.sum()) - self._saved(mark, upto, due), 0.0))

    def _count(self, away: Flags, lost: Flags, seen: Flags, used: NDArray[Any]) -> None:
        n, unseen, gone = (int(np.count_nonzero(flags)) for flags in (self.gone, away, lost))
        window = np.zeros_like(seen)
        window[used] = True
        window &= self.gone
        more = [n, n - unseen, unseen - gone, gone, int(window.sum()), int((window & seen).sum())]
        for name, value in zip(self.counts, more, strict=True):
            self.counts[name] += value

    def _read(self, summary: Message, seen: Flags, paths: NDArray[Any]) -> None:
        """Look for what is gone in the text of a summary."""
        memory, text = self.memory, " ".join(summary.text.split())
        for found in memory.index.names(summary):
            at = memory.numbers.get(found)
            if at is not None:
                seen[at] = True
        for at in {*np.flatnonzero(self.gone & ~seen).tolist(), *paths[~seen[paths]].tolist()}:
            if memory.texts[at] in text:
                seen[at] = True

    def _saved(self, mark: Mark, upto: int, due: Flags) -> float:
        """Return how many of the items that are due the best messages of the same size could hold, at most."""
        memory, n = self.memory, int(due.sum())
        if not n:
            return 0.0
        room = float(memory.sizes[self.stay] + memory.sizes[upto] - memory.sizes[mark.row])
        room += memory.index.size(mark.summary) if mark.summary is not None else 0
        end = memory.named.starts[upto]
        counts = np.bincount(memory.named.owner[:end][due[memory.named.values[:end]]], minlength=upto)
        holders = np.flatnonzero(counts)
        value, size = counts[holders], memory.size[holders]
        best = np.argsort(-value / size, kind="stable")
        value, size = value[best], size[best]
        left = room - np.cumsum(size) + size
        held = float((value * np.clip(left / size, 0.0, 1.0)).sum())
        return min(held, float(n))


def _losses(memory: Memory, marks: Sequence[Mark]) -> dict[str, Any]:
    state = _State(memory, marks[0].stay if marks else 0)
    stops = [*(mark.call for mark in marks[1:]), memory.calls]
    every = [state.cut(mark, stop) for mark, stop in zip(marks, stops, strict=False)]
    until = np.full(memory.n, 1 << 62)
    missed: dict[int, tuple[int, bool]] = {}
    for cut in reversed(every):  # a call is charged to the last cut that took the item before it
        uses = memory.first_uses(cut.items, cut.call)
        for at in np.flatnonzero(uses < until[cut.items]).tolist():
            missed[int(cut.items[at])] = (int(uses[at]) - cut.call, bool(cut.lost[at]))
        until[cut.items] = cut.call
    c, again = state.counts, memory.again
    n, delays = c["items"], [delay for delay, _ in missed.values()]
    least = max((cut.missing for cut in every), default=0.0)
    return {
        "items_n": n,
        **{fate: c[fate] / n if n else None for fate in ("retained", "recoverable", "lost")},
        "used_again_n": again,
        "needed_later_n": int(state.needed.sum()),
        "needed_lost_n": len(missed),
        "needed_later_loss": len(missed) / again if again else 0.0,
        "needed_later_gone": sum(lost for _, lost in missed.values()) / again if again else 0.0,
        "window_loss": (c["window"] - c["shown"]) / c["window"] if c["window"] else 0.0,
        "first_use_delay": float(median(delays)) if delays else None,
        "regret": max(len(missed) - least, 0.0) / again if again else 0.0,
    }


def _aftermath(memory: Memory, marks: Sequence[Mark]) -> dict[str, Any]:
    """Return how much was asked for again after the cuts, and how long it took to the first tool call that writes."""
    rates, firsts = [], []
    before = marks[0].stay if marks else 0
    for mark in marks:
        removed = memory.asked.of(before, mark.row)
        before = mark.row
        start = int(memory.first_tool[mark.call])
        near = memory.tool_keys[start : start + REREADS]
        if not mark.call:
            continue
        if len(near):
            rates.append(int(np.isin(near, removed).sum()) / len(near))
        write = int(memory.writes[memory.next_write[start]])
        if write >= 0:
            firsts.append(write - start)
    return {
        "reread_rate": fmean(rates) if rates else None,
        "reorientation_calls": float(median(firsts)) if firsts else None,
    }
