"""The beginning of a list that only grows, without a copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterator

T_co = TypeVar("T_co", covariant=True)


class Beginning(Sequence[T_co]):
    """The first values of a list to which values are added and of which none is changed.

    A tuple in all but its size; slices and sums of it are tuples.
    """

    __slots__ = ("_n", "_values")

    def __init__(self, values: list[T_co]) -> None:
        self._values, self._n = values, len(values)

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[T_co]:
        return islice(self._values, self._n)

    @overload
    def __getitem__(self, at: int) -> T_co: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return tuple(self._values[i] for i in range(self._n)[at])
        return self._values[range(self._n)[at]]

    def added_since(self, earlier: object) -> Sequence[T_co] | None:
        """Return what was added to the list since an earlier beginning of it; None: that is of
        another list.
        """
        if isinstance(earlier, Beginning) and earlier._values is self._values:  # noqa: SLF001
            return self._values[earlier._n : self._n]  # noqa: SLF001
        return None

    def __add__(self, more: Sequence[Any]) -> tuple[Any, ...]:
        return (*self, *more)

    def __radd__(self, before: Sequence[Any]) -> tuple[Any, ...]:
        return (*before, *self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, Beginning)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
