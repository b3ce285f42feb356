"""Which of many texts hold words, or match a regular expression, within a time."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.tools import scanner
from ctxkit.tools.scans import searching
from ctxkit.tools.text_search import timed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECONDS = 2.0
"""How long a search may take."""
_EACH, _BATCH = 256, 64_000
_HITS = 10_000_000


class Sought(NamedTuple):
    """What a search found: numbers of texts, in order."""

    rows: list[int]
    until: int | None
    """The text at which the time was over; None: all were looked at."""


def sought(texts: Iterable[str], words: str, *, regex: bool, seconds: float = SECONDS) -> Sought:
    """Return which texts hold words in whatever case, or match a regular expression line by line.

    An expression runs in a process of its own, for it may never end, and sees the first 4,000
    characters of a line.

    Raises:
        BadArguments: it is no regular expression.
    """
    return _matching(texts, words, seconds) if regex else _holding(texts, words, seconds)


def _holding(texts: Iterable[str], words: str, seconds: float) -> Sought:
    low, end, rows = words.casefold(), time.monotonic() + seconds, list[int]()
    for i, text in enumerate(texts):
        if not i % _EACH and time.monotonic() > end:
            return Sought(rows, i)
        if low in text.casefold():
            rows.append(i)
    return Sought(rows, None)


def _matching(texts: Iterable[str], pattern: str, seconds: float) -> Sought:
    batches = _Batches()
    given = enumerate(batches.of(texts))
    process = searching(
        pattern, _HITS, ({"name": str(i), "first": 1, "text": text} for i, text in given)
    )
    with timed(process, seconds) as late:
        hits, batch = list[tuple[int, int]](), 0
        out: Any = process.stdout
        for said in out:
            name, _, rest = said.partition(b":")
            if said.startswith(b"\0"):
                batch = int(json.loads(said[1:]))
            else:
                hits.append((int(name), int(rest.partition(b":")[0])))
        errors: Any = process.stderr
        wrong = errors.read().decode("utf-8", "replace")
        process.wait()
    if process.returncode == scanner.WRONG:
        raise BadArguments(f"That is no regular expression: {wrong[:200].strip().rstrip('.')}.")
    rows = dict.fromkeys(batches.row(*hit) for hit in hits)
    return Sought(list(rows), batches.row(batch, 1) if late.is_set() else None)


class _Batches:
    """Texts put together, for each that is handed over alone takes a while."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._lines: list[list[int]] = []

    def row(self, batch: int, line: int) -> int:
        """Return which text a line of a batch is of."""
        if batch >= len(self._first):
            return 0
        return self._first[batch] + bisect_right(self._lines[batch], line) - 1

    def of(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield batches of whole texts."""
        for group in _grouped(texts):
            starts, line = list[int](), 1
            for text in group:
                starts.append(line)
                line += text.count("\n") + 1
            self._first.append(self._first[-1] + len(self._lines[-1]) if self._first else 0)
            self._lines.append(starts)
            yield "\n".join(group)


def _grouped(texts: Iterable[str]) -> Iterator[list[str]]:
    group, size = list[str](), 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size > _BATCH:
            yield group
            group, size = [], 0
    if group:
        yield group
