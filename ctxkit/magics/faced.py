"""A frame that a person reads as a table of its own: all columns for a program, the chief ones on
the screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ctxkit.display.sheets import Tabular

_HIGH = 480


class Faced(pd.DataFrame):
    """A frame with a display of its own; what any verb makes of it is a plain frame."""

    _metadata = ["face"]  # noqa: RUF012  pandas' own way to carry attributes

    face: Tabular

    def _repr_html_(self) -> str:
        return self.face.to_html(high=_HIGH, sorts=False) or "<p>None.</p>"

    def __repr__(self) -> str:
        return self.face.to_text() or "None."


def faced(frame: pd.DataFrame, face: Tabular) -> pd.DataFrame:
    """Return a frame with a display."""
    made = Faced(frame)
    made.face = face
    return made
