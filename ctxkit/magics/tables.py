"""`%context turns`, `compactions` and `sessions`: the tables of the active session, and of all that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.magics.arguments import option
from ctxkit.magics.subcommands import Subcommand
from ctxkit.markup import line

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.magics.kit import CtxKit


@dataclass(frozen=True)
class Table:
    """The line of a table."""

    session: str | None = option("another session than the active one", completes="session")


@dataclass(frozen=True)
class Growing(Table):
    """The line of `%context turns`."""

    follow: bool = option(default=False, help="a live session's own frame, which has a row more after each turn")


@dataclass(frozen=True)
class Nothing:
    """A line without words."""


def turns(kit: CtxKit, asked: Growing) -> pd.DataFrame:
    """One row a turn, with the columns of `ctxkit.frame(per="turn")`; followed, it grows with the session."""
    if asked.follow:
        return kit.lives.get(asked.session).turns
    return _frame(kit, asked, "turn")


def compactions(kit: CtxKit, asked: Table) -> pd.DataFrame:
    """One row a compaction, with the columns of `ctxkit.frame(per="compaction")`."""
    return _frame(kit, asked, "compaction")


def sessions(kit: CtxKit, _: Nothing) -> pd.DataFrame:
    """One row a session that the magics know; the index is the name it goes by."""
    import pandas as pd

    from ctxkit.frames.cuts import cuts

    rows = [
        {
            "active": name == kit.sessions.active_name,
            "format": line(s.format, 40),
            "messages": len(s.messages),
            "calls": len(s.calls),
            "compactions": len(cuts(s)),
            "title": line(s.title or "", 60),
            "file": line(s.path_ or "", 200),
        }
        for name, s in kit.sessions.items()
    ]
    columns = ["active", "format", "messages", "calls", "compactions", "title", "file"]
    return pd.DataFrame(rows, columns=columns, index=pd.Index(list(kit.sessions), name="session", dtype="object"))


def _frame(kit: CtxKit, asked: Table, per: str) -> pd.DataFrame:
    from ctxkit.frames import frame

    return shown(frame(kit.session(asked.session), per=per))


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts, which come from a log, cannot disturb a terminal or a page."""
    import pandas as pd

    out = table.copy()
    for name in out.columns:
        if pd.api.types.is_string_dtype(out[name].dtype) or out[name].dtype == object:
            out[name] = out[name].map(lambda v: line(v, 200) if isinstance(v, str) else v).astype(out[name].dtype)
    return out


SUBCOMMANDS = (
    Subcommand("turns", "A table with one row a turn.", Growing, turns),
    Subcommand("compactions", "A table with one row a compaction.", Table, compactions),
    Subcommand("sessions", "The sessions that were read, and which is active.", Nothing, sessions),
)
