"""Which settings to take for one's own logs: those on the front, each with its price and its risk.

A setting is advised where it saves against no management on resampled sessions, where no single
session makes most of that, where it never goes below what must stay, and where it loses little more
of what is needed than compacting at the window would.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.display.amounts import counted
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.metrics.paces import WINDOW
from ctxkit.metrics.pooled import FEW, known_within, pairs
from ctxkit.metrics.unremovable import Risk, stays
from ctxkit.metrics.when import MORE_LOSS
from ctxkit.sizes.windows import window_of
from ctxkit.sweeps.bases import Base
from ctxkit.sweeps.batches import Bench, Options
from ctxkit.sweeps.frontiers import front
from ctxkit.sweeps.grids import rules_of
from ctxkit.sweeps.sweep_runs import frame_of, sessions_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import pandas as pd

    from ctxkit.readers.given import GivenAll
    from ctxkit.session import Session
    from ctxkit.sweeps.grids import Several

NONE = "no management"
"""The baseline, in a window that holds everything; it may be on the front itself."""
MOST_OF_ONE = 0.5
"""Share of what a setting saves that one session may make; with more it is that
session's advice.
"""
_COLUMNS = ("rules", "session", "cost_usd", "cost_low_usd", "cost_high_usd", "peak_tokens")
_SAVED = (("saved_usd", "mean"), ("saved_usd_low", "low"), ("saved_usd_high", "high"))


def advise(
    sessions: GivenAll,
    rules: Several = "all",
    *,
    executor: Executor | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Return the settings on the front for these sessions, the cheapest first, each with its price
    and its risk.

    Columns: those of `front`; `saved_usd` with its 90 % interval (against no context management,
    session by session); `carried_by_n`, the sessions that it saves on, `largest_share`, the share
    of all that it saves which the most saving session makes, and `saved_usd_without`, the mean
    without that session; `known_within_usd`, within which the cache model knows the mean cost, and
    `like`, the cheaper settings whose costs are no further away than that; `most_loss`, the
    needed-later loss that is allowed: `MORE_LOSS` above what compacting at the window puts at
    stake; `advised`, whether to take it, with `advice`, a sentence; and `session_notes`, what the
    logs behind it cannot say or say wrongly.

    Args:
        sessions: at least five recorded sessions with text, usage and prices: few tell nothing
            about the next one.
        rules: the settings to choose among: a grid, presets, or ``"all"`` presets.
        executor: where to run them (see `sweep`).
        progress: show how far it is, as `sweep` does.

    Raises:
        BadArguments: fewer than five sessions can be used; the sentence says what the others lack.
    """
    import pandas as pd

    from ctxkit.presets import none

    given = sessions_of(sessions)
    usable = [s for s in given if s.has_text and s.has_usage]
    if len(usable) < FEW:
        raise BadArguments(_too_few(len(usable), len(given)))
    asked = [*rules_of(rules), none(context_window=10_000_000).but(name=NONE)]
    bounds: dict[int, _Bound | None] = {}

    def bounded(session: Session) -> Bench:
        bench = Bench(session)
        bounds[id(session)] = _bound(bench.base)  # from what its runs share
        return bench

    options = Options(loss=True)
    every = frame_of(usable, asked, options, executor, progress=progress, bench=bounded)
    runs = pd.DataFrame(every)[[*_COLUMNS]]
    found = front(every)
    n = int(found["sessions_n"].max())
    if n < FEW:
        raise BadArguments(_too_few(n, len(given)))
    best = found[found["front"]].reset_index(drop=True)
    several = [bounds[id(s)] if id(s) in bounds else _bound(Base(s)) for s in usable]
    known = [bound for bound in several if bound is not None]
    best["known_within_usd"] = best["rules"].map(known_within(runs))
    best["like"] = [_like(row, best) for row in best.to_dict("records")]
    told = [_told(row, runs, known) for row in best.to_dict("records")]
    for column in told[0] if told else ():
        best[column] = [row[column] for row in told]
    best["session_notes"] = " ".join(f"{s.id}: {note}" for s in usable for note in s.notes) or None
    return best


def _like(row: dict[Any, Any], best: pd.DataFrame) -> str:
    """Return the cheaper settings from which a setting is not told apart in dollars."""
    near = row["cost_usd"] - best["cost_usd"] < row["known_within_usd"]
    return ", ".join(best["rules"][near & (best["cost_usd"] < row["cost_usd"])])


class _Bound(NamedTuple):
    """What bounds advice for one session."""

    session: str
    window: int
    stays: int
    at_window: float | None
    """The share of what is used again that compacting at the window puts at stake."""


def _bound(base: Base) -> _Bound | None:
    session = base.session
    try:
        must = stays(session, base.anchored, base.memory)
        window = window_of(session, session.model).tokens or WINDOW
        lost = Risk(base.memory, base.anchored, must.total, must.fixed).at(window)
    except CtxkitError:
        return None
    return _Bound(session.id, window, must.total, lost)


def _told(row: dict[Any, Any], runs: pd.DataFrame, bounds: Sequence[_Bound]) -> dict[str, Any]:
    """Return the columns of advice of a setting on the front."""
    rules = str(row["rules"])
    pair = pairs(runs, NONE, rules, "cost_usd")
    known = [b.at_window for b in bounds if b.at_window is not None]
    most = fmean(known) + MORE_LOSS if known else None
    saved = {column: pair[key] for column, key in _SAVED}
    told = {**saved, **carried(_savings(runs, rules)), "most_loss": most}
    against = _against_none(runs, bounds) if rules == NONE else _against(row | told, runs, bounds)
    return {**told, "advised": not against, "advice": _sentence(row | told, against)}


def _savings(runs: pd.DataFrame, rules: str) -> list[float]:
    """Return what each session saves against no management, where both are known."""
    costs = runs[runs["cost_usd"].notna()].groupby(["rules", "session"])["cost_usd"].mean()
    both = (costs[NONE] - costs[rules]).dropna()
    return [float(v) for v in both]


def carried(savings: Sequence[float]) -> dict[str, Any]:
    """Return who carries a mean saving: the sessions that save, and the share of the most saving
    one.

    Missing where nothing is saved at all.
    """
    gains = sorted(v for v in savings if v > 0)
    rest = sorted(savings)[:-1]
    return {
        "carried_by_n": len(gains),
        "largest_share": gains[-1] / sum(gains) if gains else None,
        "saved_usd_without": fmean(rest) if rest else None,
    }


def _against(row: dict[Any, Any], runs: pd.DataFrame, bounds: Sequence[_Bound]) -> str:
    """Return what speaks against a setting; nothing where it is advised."""
    if (low := row["saved_usd_low"]) is None or low <= 0:
        return "it is not told apart from no management in dollars"
    if row["saved_usd"] <= row["known_within_usd"]:
        return (
            f"it is not told apart from no management: its dollars are known within "
            f"${row['known_within_usd']:,.2f} alone"
        )
    if row["largest_share"] > MOST_OF_ONE:
        return (
            f"one session makes {row['largest_share']:.0%} of what it saves "
            f"(${row['saved_usd_without']:,.2f} a session without it)"
        )
    mine = runs[runs["rules"] == row["rules"]]
    peak = mine.groupby("session")["peak_tokens"].max().to_dict()
    below = sum(peak.get(b.session, b.stays) < b.stays for b in bounds)
    if below:
        return f"in {counted(below, 'session')} it keeps less than what must stay"
    if row["most_loss"] is not None and row["needed_later_loss"] > row["most_loss"]:
        return (
            f"it loses more than the {row['most_loss']:.0%} that compacting at the window "
            "puts at stake, and a little"
        )
    return ""


def _against_none(runs: pd.DataFrame, bounds: Sequence[_Bound]) -> str:
    peak = runs[runs["rules"] == NONE].groupby("session")["peak_tokens"].max().to_dict()
    over = sum(peak.get(b.session, 0) > b.window for b in bounds)
    return f"{counted(over, 'session')} would not fit the window" if over else ""


def _too_few(usable: int, given: int) -> str:
    return (
        f"Advice needs at least {FEW} sessions with text, usage and prices; {usable} of the {given}"
        " given have them. Read more with read_all, or look at one with compare."
    )


def _sentence(row: dict[Any, Any], against: str) -> str:
    """Return the advice in plain words, with its interval and who carries it."""
    start, n = f"Not advised, as {against}: " if against else "", row["sessions_n"]
    if row["rules"] == NONE:
        return (
            f"{start}{NONE}: ${row['cost_usd']:,.2f} a session and nothing out of sight, "
            f"while the window holds it all; over {n} sessions."
        )
    share = (
        "" if row["largest_share"] is None else f", the largest {row['largest_share']:.0%} of it"
    )
    return (
        f"{start}{row['rules']}: ${row['cost_usd']:,.2f} a session (${row['saved_usd']:,.2f} less"
        f" than no management, 90 % interval ${row['saved_usd_low']:,.2f} to"
        f" ${row['saved_usd_high']:,.2f}; {row['carried_by_n']} of {n} sessions carry it{share});"
        f" {row['needed_later_loss']:.0%} of what was used again had been cut away"
        f" ({row['needed_later_loss_low']:.0%} to {row['needed_later_loss_high']:.0%});"
        f" {row['unpaid_cuts_n']:.1f} cuts a session did not pay for themselves."
        f"{_not_apart(row)}"
    )


def _not_apart(row: dict[Any, Any]) -> str:
    if not row["like"]:
        return ""
    return f" In dollars, known within ${row['known_within_usd']:,.2f}, it is like {row['like']}."
