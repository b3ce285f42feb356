"""The first records of a file of lines, decoded on access."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Iterator


class LazyRecords(Sequence[dict[str, Any]]):
    """A sequence over an iterator of records, which decodes no more records than are accessed.

    Up to 34 readers check the first records of a file, and most access fewer than five.

    Args:
        records: the records.
        limit: records that the sequence has at most.

    Example:
        >>> numbers = iter([{"n": 1}, {"n": 2}, {"n": 3}])
        >>> records = LazyRecords(numbers, 64)
        >>> records[:1], next(numbers), len(records)
        ([{'n': 1}], {'n': 2}, 2)
    """

    def __init__(self, records: Iterator[dict[str, Any]], limit: int) -> None:
        self._decoded: list[dict[str, Any]] = []
        self._others = islice(records, limit)

    def _decode(self, count: int | None) -> list[dict[str, Any]]:
        """Return the records, decoded up to a number of them; all if it is None or negative."""
        missing = None if count is None or count < 0 else max(count - len(self._decoded), 0)
        self._decoded.extend(islice(self._others, missing))
        return self._decoded

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self._decode(index.stop)[index]
        return self._decode(-1 if index < 0 else index + 1)[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        position = 0
        while position < len(self._decode(position + 1)):
            yield self._decoded[position]
            position += 1

    def __bool__(self) -> bool:
        return bool(self._decode(1))

    def __len__(self) -> int:
        return len(self._decode(None))
