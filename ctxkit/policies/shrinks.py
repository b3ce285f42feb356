"""What trimming and clearing the tool results of a log saves, as running sums that only grow with the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ctxkit.history.columns import TOOL, chars
from ctxkit.policies import contents

if TYPE_CHECKING:
    from ctxkit.history import History, Log
    from ctxkit.policies.idle import CacheTtl


class Shrinks:
    """Sums over the rows before each row of a log, for one `CacheTtl`.

    `chars` are the characters as said, `short` those that trimming takes away, `trims` its tokens. `long` and `over`
    are the characters of the results that could be cleared after it, all of them and those beyond the placeholder;
    `clears` the tokens that clearing them saves, or trimming where it cannot be. `images` are results with images.
    """

    def __init__(self, policy: CacheTtl, log: Log, small: int) -> None:
        self.policy, self.log, self.small = policy, log, small
        self._begin()

    def _begin(self) -> None:
        self.chars, self.short, self.trims = [0], [0], [0]
        self.long, self.over, self.clears, self.images = [0], [0], [0], [0]
        self._stays = 0

    @classmethod
    def of(cls, policy: CacheTtl, log: Log, small: int, rows: int) -> Shrinks:
        """Return the sums of a log's first rows, or of more, for a policy; `small`: tokens of its placeholder."""
        key = ("shrinks", policy)
        found = log.memo.get(key)
        if found is None:
            found = log.memo[key] = cls(policy, log, small)
        shrinks: Shrinks = found
        return shrinks.sync(rows)

    def sync(self, rows: int) -> Shrinks:
        """Bring the sums up to so many rows; begin anew where an old row has come to stay."""
        log, known = self.log, len(self.chars) - 1
        if bisect_left(log.stays, known) != self._stays:
            self._begin()
            known = 0
        for row in range(known, rows):
            self._add(row)
        self._stays = bisect_left(log.stays, max(known, rows))
        return self

    def _add(self, row: int) -> None:
        message, may = self.log.messages[row], not self.log.stays_in(row)
        size, said, image = self.log.tokens.sizes[row], chars(message), contents.has_images(message)
        trim, left, touched = 0, said, not image and self._concerns(row)
        if touched and may and said > self.policy.whole:
            new = self.policy.trim(message)
            less = size if new is message else self.log.measure(new, row)
            if less < size:
                trim, left = size - less, chars(new)
        mark = len(self.policy.placeholder)
        long = left if touched and left > mark else 0
        clears = bool(long) and may and size - trim > self.small
        for sums, more in (
            (self.chars, said),
            (self.short, said - left),
            (self.trims, trim),
            (self.long, long),
            (self.over, long - mark if long else 0),
            (self.clears, size - self.small if clears else trim),
            (self.images, image),
        ):
            sums.append(sums[-1] + more)

    def _concerns(self, row: int) -> bool:
        """Say whether a row is a result of a tool that the policy concerns."""
        log, policy = self.log, self.policy
        if log.roles[row] != TOOL:
            return False
        name = log.tool(row)
        return _among(name, policy.allow or ("*",)) and not _among(name, policy.deny)

    def saved(self, history: History, span: tuple[int, int], window: int) -> tuple[int, int] | None:
        """Return the tokens that are saved if the rows of a span may be touched, and those before the first change.

        None where it depends on the images there: only the last of them are left alone.

        Args:
            history: the history in force; its edited head holds no tool results.
            span: the first of these rows, and one past the last.
            window: characters of the window.
        """
        policy, (a, b) = self.policy, span
        if policy.keep_images and self.images[max(b, a)] > self.images[a]:
            return None
        said = self.chars[history.hi] - self.chars[history.lo] + self._ahead(history)
        if b <= a or said < policy.soft_trim_ratio * window:
            return 0, 0
        end = a + self._cleared(said - self.short[b] + self.short[a], span, window)
        clears, trims = self.clears, self.trims
        saved = clears[end] - clears[a] + trims[b] - trims[end]
        if not saved:
            return 0, 0
        first = bisect_right(clears, clears[a], a, end + 1)
        if first > end:
            first = bisect_right(trims, trims[end], end, b + 1)
        return saved, history.before(history.head.size + first - 1 - history.lo)

    def _cleared(self, total: int, span: tuple[int, int], window: int) -> int:
        """Return how many rows of a span are cleared, if `total` characters are left after trimming."""
        policy, (a, b), limit = self.policy, span, self.policy.hard_clear_ratio * window
        enough = self.long[b] - self.long[a] >= policy.min_prunable_tool_chars
        if not policy.hard_clear or total < limit or not enough:
            return 0
        return min(bisect_right(self.over, total - limit + self.over[a], a, b + 1), b) - a

    def _ahead(self, history: History) -> int:
        """Return the characters of the edited head."""
        sums = self.chars
        return sum(sums[i.row + 1] - sums[i.row] if i.maker is None else i.maker.chars() for i in history.head.items)


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
