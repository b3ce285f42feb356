"""`ctxkit.advise`: settings on the Pareto front, each with its saving, loss and a
recommendation.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import pluralize
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.experiments.grids import resolve_rules
from ctxkit.experiments.scores import SessionScoreCache
from ctxkit.experiments.session_runner import RunOptions, SessionRunner
from ctxkit.experiments.sweep_runs import get_pareto_front, get_recorded_sessions, run_sweep
from ctxkit.metrics.growth_profile import DEFAULT_WINDOW, LossRisk, estimate_floor
from ctxkit.metrics.stats import FEW_SESSIONS, compare_settings, estimate_cost_uncertainty
from ctxkit.metrics.timing import EXTRA_LOSS
from ctxkit.tokens.context_windows import get_context_window

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import pandas as pd

    from ctxkit.experiments.grids import RulesArgument
    from ctxkit.formats.inputs import SessionsLike
    from ctxkit.session.session import Session

NO_MANAGEMENT = "no management"
"""The baseline, in a window that holds everything; it may be on the front itself."""
MAX_SESSION_SHARE = 0.5
"""Share of what a setting saves that one session may make; with more it is that
session's advice.
"""
_COLUMNS = ("rules", "session", "cost_usd", "cost_low_usd", "cost_high_usd", "peak_tokens")
_SAVED = (("saved_usd", "mean"), ("saved_usd_low", "low"), ("saved_usd_high", "high"))


def advise(
    sessions: SessionsLike,
    rules: RulesArgument = "all",
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

    given = get_recorded_sessions(sessions)
    usable = [s for s in given if s.has_text and s.has_usage]
    if len(usable) < FEW_SESSIONS:
        raise BadArguments(_too_few(len(usable), len(given)))
    asked = [*resolve_rules(rules), none(context_window=10_000_000).but(name=NO_MANAGEMENT)]
    bounds: dict[int, _SessionBound | None] = {}

    def bounded(session: Session) -> SessionRunner:
        bench = SessionRunner(session)
        bounds[id(session)] = _session_bound(bench.base)  # from what its runs share
        return bench

    options = RunOptions(loss=True)
    every = run_sweep(usable, asked, options, executor, progress=progress, bench=bounded)
    runs = pd.DataFrame(every)[[*_COLUMNS]]
    found = get_pareto_front(every)
    n = int(found["sessions_n"].max())
    if n < FEW_SESSIONS:
        raise BadArguments(_too_few(n, len(given)))
    best = found[found["front"]].reset_index(drop=True)
    several = [
        bounds[id(s)] if id(s) in bounds else _session_bound(SessionScoreCache(s)) for s in usable
    ]
    known = [bound for bound in several if bound is not None]
    best["known_within_usd"] = best["rules"].map(estimate_cost_uncertainty(runs))
    best["like"] = [_indistinguishable_from(row, best) for row in best.to_dict("records")]
    told = [_advice_columns(row, runs, known) for row in best.to_dict("records")]
    for column in told[0] if told else ():
        best[column] = [row[column] for row in told]
    best["session_notes"] = " ".join(f"{s.id}: {note}" for s in usable for note in s.notes) or None
    return best


def _indistinguishable_from(row: dict[Any, Any], best: pd.DataFrame) -> str:
    """Return the cheaper settings from which a setting is not told apart in dollars."""
    near = row["cost_usd"] - best["cost_usd"] < row["known_within_usd"]
    return ", ".join(best["rules"][near & (best["cost_usd"] < row["cost_usd"])])


class _SessionBound(NamedTuple):
    """What bounds advice for one session."""

    session: str
    window: int
    stays: int
    at_window: float | None
    """The share of what is used again that compacting at the window puts at stake."""


def _session_bound(base: SessionScoreCache) -> _SessionBound | None:
    session = base.session
    try:
        must = estimate_floor(session, base.anchored, base.memory)
        window = get_context_window(session, session.model).tokens or DEFAULT_WINDOW
        lost = LossRisk(base.memory, base.anchored, must.total, must.fixed).at(window)
    except CtxkitError:
        return None
    return _SessionBound(session.id, window, must.total, lost)


def _advice_columns(
    row: dict[Any, Any], runs: pd.DataFrame, bounds: Sequence[_SessionBound]
) -> dict[str, Any]:
    """Return the columns of advice of a setting on the front."""
    rules = str(row["rules"])
    pair = compare_settings(runs, NO_MANAGEMENT, rules, "cost_usd")
    known = [b.at_window for b in bounds if b.at_window is not None]
    most = fmean(known) + EXTRA_LOSS if known else None
    saved = {column: pair[key] for column, key in _SAVED}
    told = {**saved, **measure_saving_concentration(_savings(runs, rules)), "most_loss": most}
    against = (
        _objection_to_none(runs, bounds)
        if rules == NO_MANAGEMENT
        else _objection(row | told, runs, bounds)
    )
    return {**told, "advised": not against, "advice": _sentence(row | told, against)}


def _savings(runs: pd.DataFrame, rules: str) -> list[float]:
    """Return what each session saves against no management, where both are known."""
    costs = runs[runs["cost_usd"].notna()].groupby(["rules", "session"])["cost_usd"].mean()
    both = (costs[NO_MANAGEMENT] - costs[rules]).dropna()
    return [float(v) for v in both]


def measure_saving_concentration(savings: Sequence[float]) -> dict[str, Any]:
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


def _objection(row: dict[Any, Any], runs: pd.DataFrame, bounds: Sequence[_SessionBound]) -> str:
    """Return what speaks against a setting; nothing where it is advised."""
    if (low := row["saved_usd_low"]) is None or low <= 0:
        return "it is not told apart from no management in dollars"
    if row["saved_usd"] <= row["known_within_usd"]:
        return (
            f"it is not told apart from no management: its dollars are known within "
            f"${row['known_within_usd']:,.2f} alone"
        )
    if row["largest_share"] > MAX_SESSION_SHARE:
        return (
            f"one session makes {row['largest_share']:.0%} of what it saves "
            f"(${row['saved_usd_without']:,.2f} a session without it)"
        )
    mine = runs[runs["rules"] == row["rules"]]
    peak = mine.groupby("session")["peak_tokens"].max().to_dict()
    below = sum(peak.get(b.session, b.stays) < b.stays for b in bounds)
    if below:
        return f"in {pluralize(below, 'session')} it keeps less than what must stay"
    if row["most_loss"] is not None and row["needed_later_loss"] > row["most_loss"]:
        return (
            f"it loses more than the {row['most_loss']:.0%} that compacting at the window "
            "puts at stake, and a little"
        )
    return ""


def _objection_to_none(runs: pd.DataFrame, bounds: Sequence[_SessionBound]) -> str:
    peak = runs[runs["rules"] == NO_MANAGEMENT].groupby("session")["peak_tokens"].max().to_dict()
    over = sum(peak.get(b.session, 0) > b.window for b in bounds)
    return f"{pluralize(over, 'session')} would not fit the window" if over else ""


def _too_few(usable: int, given: int) -> str:
    return (
        f"Advice needs at least {FEW_SESSIONS} sessions with text, usage and prices; {usable} "
        f"of the {given}"
        " given have them. Read more with read_all, or look at one with compare."
    )


def _sentence(row: dict[Any, Any], against: str) -> str:
    """Return the advice in plain words, with its interval and who carries it."""
    start, n = f"Not advised, as {against}: " if against else "", row["sessions_n"]
    if row["rules"] == NO_MANAGEMENT:
        return (
            f"{start}{NO_MANAGEMENT}: ${row['cost_usd']:,.2f} a session and nothing out of sight, "
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
