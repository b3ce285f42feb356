"""`%context turns`, `compactions` and `sessions`: the tables of the active session, and of all that
are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.magics.arguments import option
from ctxkit.magics.subcommands import Subcommand

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from ctxkit.display.sheets import Tabular
    from ctxkit.magics.kit_state import KitState
    from ctxkit.session import Session
    from ctxkit.spending import Spend


@dataclass(frozen=True)
class TableLine:
    """A line that names a session."""

    session: str | None = option("another session than the active one", completes="session")


@dataclass(frozen=True)
class LiveLine:
    """A line that names a live session."""

    session: str | None = option("another live session than the current one", completes="session")


@dataclass(frozen=True)
class TurnsLine(TableLine):
    """The line of `%context turns`."""

    follow: bool = option(
        default=False, help="a live session's own frame, which has a row more after each turn"
    )


@dataclass(frozen=True)
class Nothing:
    """A line without words."""


def turns(kit: KitState, asked: TurnsLine) -> pd.DataFrame:
    """One row a turn, with the columns of `ctxkit.frame(per="turn")`; followed, it grows with the
    session.

    It is shown as an exported page shows it.
    """
    if asked.follow:
        return kit.lives.get(asked.session).turns
    from ctxkit.reports.glances import turns_of

    return _frame(kit, asked, "turn", turns_of)


def compactions(kit: KitState, asked: TableLine) -> pd.DataFrame:
    """One row a compaction, with the columns of `ctxkit.frame(per="compaction")`, shown as in an
    exported page.
    """
    from ctxkit.reports.glances import cuts_of

    return _frame(kit, asked, "compaction", cuts_of)


def spend(kit: KitState, asked: TableLine) -> Spend:
    """Where the money of a session went."""
    from ctxkit.spending.spends import spend

    return spend(kit.session(asked.session))


def sessions(kit: KitState, _: Nothing) -> pd.DataFrame:
    """One row a session that the magics know; the index is the name it goes by."""
    import pandas as pd

    from ctxkit.frames.recorded_cuts import cuts
    from ctxkit.magics.faced import faced
    from ctxkit.reports.glances import sessions_of

    names, active = list(kit.sessions), kit.sessions.active_name
    known = [s for _, s in kit.sessions.items()]
    columns = {
        "active": [name == active for name in names],
        "format": [line(s.format, 40) for s in known],
        "messages": [len(s.messages) for s in known],
        "calls": [len(s.calls) for s in known],
        "compactions": [len(cuts(s)) for s in known],
        "title": [line(s.title or "", 60) for s in known],
        "file": [line(s.path_ or "", 200) for s in known],
    }
    table = pd.DataFrame(columns, index=pd.Index(names, name="session", dtype="object"))
    called = [f"{name} (active)" if name == active else name for name in names]
    return faced(table, sessions_of(known, len(known), [line(n, 60) for n in called]))


def _frame(
    kit: KitState, asked: TableLine, per: str, made: Callable[[Session], Tabular]
) -> pd.DataFrame:
    from ctxkit.frames import frame
    from ctxkit.magics.faced import faced

    session = kit.session(asked.session)
    return faced(shown(frame(session, per=per)), made(session))


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts, which come from a log, cannot disturb a terminal or a page."""
    import pandas as pd

    out = table.copy()
    for name in out.columns:
        if pd.api.types.is_string_dtype(out[name].dtype) or out[name].dtype == object:
            out[name] = (
                out[name]
                .map(lambda v: line(v, 200) if isinstance(v, str) else v)
                .astype(out[name].dtype)
            )
    return out


SUBCOMMANDS = (
    Subcommand("turns", "A table with one row a turn.", TurnsLine, turns),
    Subcommand("compactions", "A table with one row a compaction.", TableLine, compactions),
    Subcommand(
        "spend", "Where the money of a session went, in sentences and tables.", TableLine, spend
    ),
    Subcommand("sessions", "The sessions that were read, and which is active.", Nothing, sessions),
)
