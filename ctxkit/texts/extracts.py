"""Extracts: the lines of a passage that tell most, chosen by numbers (see `lines`), one by one."""

from __future__ import annotations

from math import log as ln
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ctxkit.texts.focuses import Near
from ctxkit.texts.message_lines import EARLIER, USER, Lines, Weighed, ranges
from ctxkit.texts.sentences import LONGEST, TAGS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.texts.focuses import Focus

CANDIDATES = 400
"""Lines looked at closely, the weightiest: comparing all with all grows with the square."""
STRENGTH = 4.0
"""A line that holds every word of a focus weighs this many times its weight more."""
FOCUSED = 0.5
"""Share of the room for lines near a focus."""
GRAIN = 2.0**40
"""Information is told in steps of 1 / GRAIN: sums are then exact, in whatever order."""
_LONG: NDArray[Any] = np.array([(8 + n) ** 0.9 for n in range(LONGEST + 1)])


class Wish(NamedTuple):
    """What an extract shall be like."""

    room: float
    """Characters."""
    user: float
    """Share of the room for what the user said."""
    focus: Focus | None = None


def extract(lines: Lines, parts: NDArray[Any], wish: Wish, among: NDArray[Any]) -> str:
    """Return the extract of some parts; the same passage under the same wish is written once.

    Args:
        lines: of the session.
        parts: what is summarised, in order.
        wish: room, share of the user, focus.
        among: the parts of the session so far: how rare the words of a focus are is judged by them.
    """
    with lines.lock:
        key = (parts.tobytes(), *wish, len(among) if wish.focus else 0)
        text = lines.written.get(key)
        if text is None:
            text = lines.written[key] = _written(lines, parts, wish, among)
            lines.hold(len(text) + len(key[0]))
        return text


def _written(lines: Lines, parts: NDArray[Any], wish: Wish, among: NDArray[Any]) -> str:
    weighed, room, audit = weigh(lines, parts), wish.room, ""
    near, first = None, np.zeros(0, np.int64)
    if wish.focus is not None:
        near = Near(lines, wish.focus, among)
        nearness = near.lines(weighed)
        weighed = weighed._replace(weights=weighed.weights * (1 + STRENGTH * nearness))
        first = np.flatnonzero(nearness)
        room -= near.longest if 2 * near.longest <= room else 0
    chosen = sorted(_chosen(lines, weighed, room, wish.user, first))
    if not chosen:
        return _beginning(lines, parts, max(int(wish.room), 1))
    if near is not None and room < wish.room:
        audit = "\n" + near.audit(weighed, chosen)
    at = weighed.at[chosen].tolist()
    return "\n".join(f"{lines.tags[k]}: {lines.texts[k]}" for k in at) + audit


def weigh(lines: Lines, parts: NDArray[Any]) -> Weighed:
    """Return the lines of some parts with their weights.

    A line of k words among n lines weighs sum(ln(1 + n / lines with the word)) / (8 + k) ** 0.9
    (TF-IDF, long lines less), times 1.6 with a cue, times 1.5 where it is the first or of an
    earlier summary, times 0.7 to 1.3 by its place.
    """
    firsts, starts = lines.firsts.all, lines.starts.all
    at = ranges(firsts[parts], firsts[parts + 1] - firsts[parts])
    sizes = starts[at + 1] - starts[at]
    ids = lines.ids.all[ranges(starts[at], sizes)].astype(np.intp)  # what NumPy indexes by
    n, own = len(at), sizes.cumsum() - sizes
    if not n:
        return Weighed(at, ids, own, sizes, at, np.zeros(0))
    weights = np.add.reduceat(_information(ids, n), own) / _LONG[sizes]
    weights *= np.where(lines.cues.all[at], 1.6, 1.0)
    first = np.where(lines.kinds.all[at] == EARLIER, 1.5, 1.0)
    first[0] = 1.5
    weights *= first
    weights *= 0.7 + 0.6 * np.arange(1, n + 1) / n
    return Weighed(at, ids, own, sizes, lines.costs.all[at], weights)


def _information(ids: NDArray[Any], n: int) -> NDArray[Any]:
    seen = np.bincount(ids)
    often = np.flatnonzero(np.bincount(seen))
    of = np.zeros(often[-1] + 1)
    of[often] = [round(ln(1 + n / k) * GRAIN) / GRAIN if k else 0.0 for k in often.tolist()]
    told: NDArray[Any] = of[seen[ids]]
    return told


def _chosen(
    lines: Lines, weighed: Weighed, room: float, user: float, first: NDArray[Any]
) -> list[int]:
    """Return the places of the lines chosen.

    Half of the room is for lines near a focus, where there is one; of the rest a share is for what
    the user said, then comes what others said, then the user again.
    """
    asked = lines.kinds.all[weighed.at] == USER
    chosen = choose(weighed, first, room * FOCUSED, [])
    left = room - weighed.costs[chosen].sum()
    for mine, share in ((True, user), (False, 1.0), (True, 1.0)):
        places = asked == mine
        places[chosen] = False
        chosen += choose(weighed, np.flatnonzero(places), left * share, chosen)
        left = room - weighed.costs[chosen].sum()
    return chosen


def choose(weighed: Weighed, places: NDArray[Any], room: float, known: list[int]) -> list[int]:
    """Return places that fit the room, one by one the weightiest that repeats the least.

    A line is worth its weight less 0.8 of it times the largest share of words that it has in common
    with one that was chosen or is known (maximal marginal relevance); of two of one worth the first
    is taken.
    """
    weights = weighed.weights
    places = np.sort(places[np.argsort(-weights[places], kind="stable")[:CANDIDATES]])
    open_ = places[weighed.costs[places] <= room]
    chosen: list[int] = []
    if not len(open_):
        return chosen
    repeats = LineRepeats(weighed, open_)
    for place in known:
        repeats.add(weighed.words(place))
    weights, costs = weights[open_], weighed.costs[open_]
    while True:
        worth = weights * (1 - 0.8 * repeats.alike)
        best = int(worth.argmax())
        if worth[best] <= 0:
            return chosen
        place = int(open_[best])
        chosen.append(place)
        room -= int(costs[best])
        weights[best] = 0.0
        weights[costs > room] = 0.0
        repeats.add(weighed.words(place))


class LineRepeats:
    """How much each of some lines repeats of what was chosen."""

    __slots__ = ("_ids", "_mark", "_sizes", "_starts", "alike")

    def __init__(self, weighed: Weighed, places: NDArray[Any]) -> None:
        self._sizes = weighed.sizes[places]
        self._ids = weighed.ids[ranges(weighed.starts[places], self._sizes)]
        self._starts = self._sizes.cumsum() - self._sizes
        self._mark = np.zeros(int(weighed.ids.max()) + 1)
        self.alike = np.zeros(len(places))
        """For each line the most that one chosen shares with it: words / words of the shorter."""

    def add(self, words: NDArray[Any]) -> None:
        """Take up one more chosen line."""
        self._mark[words] = 1.0
        shared = np.add.reduceat(self._mark[self._ids], self._starts)
        self._mark[words] = 0.0
        shared /= np.minimum(self._sizes, len(words))
        np.maximum(self.alike, shared, out=self.alike)


def _beginning(lines: Lines, parts: NDArray[Any], most: int) -> str:
    """Return the beginning of what was said: of nothing but signs, or where no line fits."""
    rows: list[str] = []
    held = 0
    for part in parts.tolist():
        message = lines.messages[part]
        said = " ".join(message.text.split(None, most)[:most])
        if said:
            rows.append(f"{TAGS.get(message.role, 'Result')}: {said}")
            held += len(rows[-1]) + 1
            if held > most:
                break
    return "\n".join(rows)[:most]
