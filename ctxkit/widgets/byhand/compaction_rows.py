"""The compactions of sessions, of frames and of snapshots, as a chart turned by hand takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.frames import frame, per_compaction
from ctxkit.plots.drawn_compactions import marked
from ctxkit.snapshots.snapshot_columns import NAMES

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.session import Session

BILLED = (
    "Sizes are derived: the turns around each compaction, which is what was billed, not the "
    "window; such a log has no messages, so there is no diff."
)
SIZES_ONLY = "A frame holds sizes only: give the session to see what each compaction did."
_WORDS = ("kind", "method", "trigger")
_COLUMNS = ("compaction", "call", "turn", "tokens_before", "tokens_after", "summary_tokens")
_SOURCED = ("cost_usd", "cost_source", "tokens_source")
_NEEDED = ("session", "compaction", "call", "tokens_before", "tokens_after")


class Compacted(NamedTuple):
    """One compaction; None: the log does not tell."""

    name: str
    """The session."""
    number: int
    call: int | None = None
    """The first call that was shown its outcome."""
    turn: int | None = None
    """The turn after which it fired, where calls are not known."""
    before: int | None = None
    after: int | None = None
    """Tokens in the window; of whole turns the input that they were billed."""
    put: int | None = None
    """Tokens that it put in."""
    usd: float | None = None
    """What making it cost."""
    usd_source: str | None = None
    what: str = ""
    source: str | None = None
    detail: bool = False
    """True where the kernel can say what it did."""

    @property
    def saved(self) -> float | None:
        """Share of the tokens that it saved; negative where the window grew."""
        return 1 - self.after / self.before if self.before and self.after is not None else None


def has_whole_turns(session: Session) -> bool:
    """Say whether the log tells what turns were billed instead of single calls."""
    return any(c.message.kind == "turn" for c in session.calls)


def of_session(session: Session, name: str) -> list[Compacted]:
    """Return the compactions of a session."""
    if has_whole_turns(session):
        return [one._replace(name=name) for one in around(_log(session))]
    found = per_compaction.rows([session])
    words = zip(*(found[n] for n in _WORDS), strict=True)
    told = [_words(row) for row in words]
    numbers = zip(*(found[n] for n in (*_COLUMNS, "cost_usd", "cost_source")), strict=True)
    rows = zip(numbers, told, found["tokens_source"], strict=True)
    known = session.has_sizes
    return [Compacted._make((name, *row, what, source, known)) for row, what, source in rows]


def of_frame(table: pd.DataFrame) -> tuple[list[Compacted], str]:
    """Return the compactions of a frame of snapshots or of compactions, and a note on it.

    Raises:
        BadArguments: it is neither.
    """
    if set(NAMES) <= set(table.columns):
        return around(table), BILLED
    lacking = [n for n in _NEEDED if n not in table.columns]
    if lacking:
        raise BadArguments(
            "Give sessions, a frame of snapshots, or a frame of compactions "
            f"(ck.frame(..., per='compaction')); this frame lacks {', '.join(lacking)}."
        )
    names = [n for n in ("session", *_COLUMNS, *_WORDS, *_SOURCED) if n in table]
    found = marked(table)[names]
    plain = found.astype(object).where(found.notna(), None)
    rows: list[dict[Any, Any]] = plain.to_dict("records")
    return [_of_row(i, row) for i, row in enumerate(rows)], SIZES_ONLY


def _of_row(i: int, row: dict[Any, Any]) -> Compacted:
    number, *sizes = (_whole(row.get(n)) for n in _COLUMNS)
    usd = row.get("cost_usd")
    cost = (None if usd is None else float(usd), row.get("cost_source"))
    told = (_words(row.get(n) for n in _WORDS), row.get("tokens_source"))
    name = str(row["session"])
    return Compacted._make((name, i if number is None else number, *sizes, *cost, *told, False))


def around(log: pd.DataFrame) -> list[Compacted]:
    """Return the compactions of a log of snapshots, with sizes derived from the turns around each.

    Before and after are the input of the last and of the first turn of the agents that have both;
    a resume is none.
    """
    from ctxkit.snapshots.markers import compactions as resets

    table = resets(log)
    table = table[table["kind"] == "compaction"]
    out: list[Compacted] = []
    counts: dict[str, int] = {}
    for _, rows in table.groupby(["session", "compaction"], sort=False, observed=True):
        name = str(rows["session"].iloc[0])
        counts[name] = counts.get(name, -1) + 1
        sides = rows[["turn_input_tokens_before", "turn_input_tokens_after"]].dropna()
        before, after = (int(sides[c].sum()) for c in sides) if len(sides) else (None, None)
        turn = rows["after_turn"].astype(object).where(rows["after_turn"].notna(), None).iloc[0]
        one = Compacted(name, counts[name], turn=_whole(turn), before=before, after=after)
        source = "derived" if len(sides) else None
        out.append(one._replace(what="marked in the log", source=source))
    return out


def _log(session: Session) -> pd.DataFrame:
    """Return the turns of a session as snapshots, a marker behind each that one followed."""
    import pandas as pd

    turns = frame(session, per="turn")
    fired = turns[turns["compaction_occurred"].fillna(False)]  # noqa: FBT003
    zeros = dict.fromkeys((n for n in NAMES if n.endswith("_tokens")), 0)
    marks = fired.assign(agent="system", turn=fired["turn"] + 1, **zeros)
    turns = turns.assign(compaction_occurred=False)
    marks.index = marks.index + 0.5
    both = pd.concat([turns, marks]) if len(marks) else turns
    return both.sort_index().reset_index(drop=True)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _words(row: Any) -> str:
    return line(" · ".join(str(word) for word in row if word), 120)
