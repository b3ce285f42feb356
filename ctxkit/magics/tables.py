"""Data frames with a display of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ctxkit._internal.tables import Table

_HIGH = 480


class DisplayFrame(pd.DataFrame):
    """A frame with a display of its own; what any verb makes of it is a plain frame."""

    _metadata = ["face"]  # noqa: RUF012  pandas' own way to carry attributes

    face: Table

    def _repr_html_(self) -> str:
        return self.face.to_html(high=_HIGH, sorts=False) or "<p>None.</p>"

    def __repr__(self) -> str:
        return self.face.to_text() or "None."


def with_display(frame: pd.DataFrame, face: Table) -> pd.DataFrame:
    """Return a frame with a display."""
    displayed = DisplayFrame(frame)
    displayed.face = face
    return displayed
