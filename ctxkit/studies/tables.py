"""The tables that ship with the kit: derived figures, each with its source in its head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.faces import listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["names", "table"]
__dir__ = listed(__all__)

FOLDER = Path(__file__).parent / "tables"
SEPARATOR = ";"
_DIGITS = "%.5g"
"""Of every number that is no whole one."""


def names() -> list[str]:
    """Return the names of the tables."""
    return sorted(p.stem for p in FOLDER.glob("*.csv"))


def table(name: str) -> pd.DataFrame:
    """Return a table; where its figures come from stands in ``frame.attrs["source"]``.

    Args:
        name: `masks`, `ratios`, `floors` or `repeats`; their columns are told in the module of that
            study (`repeats`: `floors.seen`).

    Raises:
        BadArguments: there is none of that name.
    """
    import pandas as pd

    if name not in names():
        raise BadArguments(f"No table is called {name!r}.{did_you_mean(name, names())}")
    path = FOLDER / f"{name}.csv"
    head = [t[2:] for t in path.read_text(encoding="utf-8").splitlines() if t.startswith("# ")]
    frame = pd.read_csv(path, sep=SEPARATOR, comment="#", keep_default_na=False, na_values=[""])
    frame.attrs["source"] = " ".join(head)
    return frame


def write(path: Path, frame: pd.DataFrame, source: str) -> None:
    """Write a table with its source; five figures of each number."""
    body = frame.to_csv(index=False, sep=SEPARATOR, float_format=_DIGITS, lineterminator="\n")
    path.write_text("".join(f"# {line}\n" for line in source.splitlines()) + body, encoding="utf-8")
