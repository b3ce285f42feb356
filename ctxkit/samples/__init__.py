"""Sessions that ship with the kit, made by `notebooks/make_sample.py`, for a first look and for the
tour.
"""

from __future__ import annotations

from pathlib import Path

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.faces import listed

__all__ = ["names", "path"]
__dir__ = listed(__all__)

_FOLDER = Path(__file__).parent
_NAMES = ("billing",)


def names() -> list[str]:
    """Return the names of the sessions that ship with the kit."""
    return list(_NAMES)


def path(name: str = "billing") -> Path:
    """Return the file of a session that ships with the kit, to be given to `ctxkit.read`.

    Raises:
        BadArguments: there is none of that name.
    """
    if name not in _NAMES:
        raise BadArguments(
            f"No sample is called {name!r}; there is"
            f" {', '.join(_NAMES)}.{did_you_mean(name, _NAMES)}"
        )
    return _FOLDER / f"{name}.jsonl"
