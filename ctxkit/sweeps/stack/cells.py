"""Arrays as cells of rows: plain values, None where nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def maybe(values: NDArray[Any], known: NDArray[Any]) -> list[Any]:
    """Return plain values, None where they are not known."""
    if known.all():
        return values.tolist()  # type: ignore[no-any-return]
    cells = values.astype(object)
    cells[~known] = None
    return cells.tolist()  # type: ignore[no-any-return]
