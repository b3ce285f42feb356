"""The compactions to be drawn, from sessions or from a frame of compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.frames import per_compaction
from ctxkit.plots.chart_words import name_all
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ctxkit.session import Session


class Cuts(NamedTuple):
    """Compactions of some sessions."""

    names: tuple[str, ...]
    """Of the sessions."""
    sessions: tuple[Session, ...]
    """The sessions themselves; none where a frame was given."""
    columns: dict[str, list[Any]]
    """Columns of the compaction frame, "session" among them; what is missing is None."""

    @property
    def title(self) -> str:
        """The sessions as a title names them."""
        n = len(self.names)
        return f"{n} sessions" if n > 1 else self.names[0] if n else "this log"


def cuts_of(of: Any, names: Sequence[str], chart: str) -> Cuts:
    """Return the compactions of what was given.

    Args:
        of: a session, several, or a frame with one row a compaction.
        names: the columns.
        chart: who asks, for the sentence of the error.

    Raises:
        BadArguments: it is none of these.
    """
    import pandas as pd

    wanted = ("session", *names)
    if not isinstance(of, pd.DataFrame):
        sessions = tuple(name_all(of).values())
        return Cuts(tuple(map(title_of, sessions)), sessions, per_compaction.rows(sessions))
    missing = [n for n in wanted if n not in of.columns]
    if missing:
        raise BadArguments(
            f"plots.{chart} takes sessions or a frame of compactions (ck.frame(...,"
            f" per='compaction')); this frame lacks {', '.join(missing)}."
        )
    table = marked(of)[list(wanted)]
    plain = table.astype(object).where(table.notna(), None)
    found: dict[str, list[Any]] = {n: plain[n].tolist() for n in wanted}
    return Cuts(tuple(dict.fromkeys(map(str, found["session"]))), (), found)


def marked(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of compactions without the falls that no mark explains: those are none."""
    return table[table["kind"].ne("unmarked").fillna(value=True)] if "kind" in table else table
