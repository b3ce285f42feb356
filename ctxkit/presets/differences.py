"""Where a system's document and its program part ways, and which way a preset goes."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """One point at which a document and a program differ, or at which a preset cannot follow."""

    topic: str
    document: str
    program: str
    default: str
    """What the preset does."""
    quirks: str = "as the program"
    """What it does with `quirks=True`."""
