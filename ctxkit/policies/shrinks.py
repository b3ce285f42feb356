"""What trimming and clearing the tool results of a log saves, as running sums that only grow with the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fnmatch import fnmatchcase
from itertools import accumulate, islice
from typing import TYPE_CHECKING

from ctxkit.history.columns import TOOL, chars
from ctxkit.policies import contents

if TYPE_CHECKING:
    from ctxkit.history import History, Log
    from ctxkit.policies.idle import CacheTtl


class Shrinks:
    """Sums over the tool results before each result of a log, for one `CacheTtl`; `chars` over the rows before each.

    `short` are the characters that trimming takes away, `trims` its tokens. `long` and `over` are the characters of the
    results that could be cleared after it, all of them and those beyond the placeholder; `clears` the tokens that
    clearing them saves, or trimming where it cannot be. `images` are results with images.
    """

    def __init__(self, policy: CacheTtl, log: Log, small: int) -> None:
        self.policy, self.log, self.small = policy, log, small
        self.chars = [0]
        self._concerned: dict[str, bool] = {}
        self._begin()

    def _begin(self) -> None:
        self.short, self.trims, self.clears = [0], [0], [0]
        self.long, self.over, self.images = [0], [0], [0]
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
        log, known, chars = self.log, len(self.chars) - 1, self.chars
        if bisect_left(log.stays, known) != self._stays:
            self._begin()
        if rows > known:
            more = accumulate(log.column("chars", rows)[known:].tolist(), initial=chars[-1])
            chars.extend(islice(more, 1, None))
        known = max(known, rows)
        for row in log.of_role[TOOL][len(self.trims) - 1 : log.counts[TOOL][known]]:
            self._add(row)
        self._stays = bisect_left(log.stays, known)
        return self

    def _add(self, row: int) -> None:
        log, policy, message = self.log, self.policy, self.log.messages[row]
        size, said, image = log.tokens.sizes[row], self.chars[row + 1] - self.chars[row], contents.has_images(message)
        may, trim, left, touched = not log.stays_in(row), 0, said, not image and self._concerns(log.tool(row))
        if touched and may and said > policy.whole:
            new = policy.trim(message)
            less = size if new is message else log.measure(new, row)
            if less < size:
                trim, left = size - less, chars(new)
        mark = len(policy.placeholder)
        long = left if touched and left > mark else 0
        clears = long and may and size - trim > self.small
        self.short.append(self.short[-1] + said - left)
        self.trims.append(self.trims[-1] + trim)
        self.long.append(self.long[-1] + long)
        self.over.append(self.over[-1] + (long - mark if long else 0))
        self.clears.append(self.clears[-1] + (size - self.small if clears else trim))
        self.images.append(self.images[-1] + image)

    def _concerns(self, tool: str) -> bool:
        """Say whether the policy concerns the results of a tool."""
        found = self._concerned.get(tool)
        if found is None:
            policy = self.policy
            found = _among(tool, policy.allow or ("*",)) and not _among(tool, policy.deny)
            self._concerned[tool] = found
        return found

    def saved(self, history: History, span: tuple[int, int], window: int) -> tuple[int, int] | None:
        """Return the tokens that are saved if the rows of a span may be touched, and those before the first change.

        None where it depends on the images there: only the last of them are left alone.

        Args:
            history: the history in force; its edited head holds no tool results.
            span: the first of these rows, and one past the last.
            window: characters of the window.
        """
        policy, counts = self.policy, self.log.counts[TOOL]
        said = self.chars[history.hi] - self.chars[history.lo] + self._ahead(history)
        if span[1] <= span[0] or said < policy.soft_trim_ratio * window:
            return 0, 0
        a, b = counts[span[0]], counts[span[1]]
        if policy.keep_images and self.images[b] > self.images[a]:
            return None
        end = a + self._cleared(said - self.short[b] + self.short[a], (a, b), window)
        clears, trims = self.clears, self.trims
        saved = clears[end] - clears[a] + trims[b] - trims[end]
        if not saved:
            return 0, 0
        first = bisect_right(clears, clears[a], a, end + 1)
        if first > end:
            first = bisect_right(trims, trims[end], end, b + 1)
        row = self.log.of_role[TOOL][first - 1]
        return saved, history.before(history.head.size + row - history.lo)

    def _cleared(self, total: int, span: tuple[int, int], window: int) -> int:
        """Return how many results of a span are cleared, if `total` characters are left after trimming."""
        policy, (a, b), limit = self.policy, span, self.policy.hard_clear_ratio * window
        enough = self.long[b] - self.long[a] >= policy.min_prunable_tool_chars
        if not policy.hard_clear or total < limit or not enough:
            return 0
        return min(bisect_right(self.over, total - limit + self.over[a], a, b + 1), b) - a

    def _ahead(self, history: History) -> int:
        """Return the characters of the edited head."""
        sums = self.chars
        return sum([sums[i.row + 1] - sums[i.row] if i.maker is None else i.maker.chars() for i in history.head.items])


def _among(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
