"""Advice on settings for sessions (`ctxkit.advise`): the Pareto front of cost and loss, with
savings and a verdict on each setting.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import format_percent, has_value, pluralize
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.experiments.cost_and_loss_scores import SessionAnalysisCache
from ctxkit.experiments.setting_grids_and_labels import resolve_rules_list
from ctxkit.experiments.sweep_runs import (
    replace_replays_by_recorded_sessions,
    run_sweep,
    summarise_runs_with_pareto_front,
)
from ctxkit.experiments.sweep_workers import SessionRunner, SweepScoreOptions
from ctxkit.metrics.bootstrap_and_paired_tests import (
    FEW_SESSIONS,
    average_cost_uncertainty_usd,
    compare_settings,
)
from ctxkit.metrics.context_growth_and_floor import DEFAULT_WINDOW, estimate_floor
from ctxkit.metrics.optimal_trigger_floor_and_wait import EXTRA_LOSS
from ctxkit.metrics.threshold_replays import LossBoundByThreshold
from ctxkit.tokens.context_windows import get_context_window

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import pandas as pd

    from ctxkit.experiments.setting_grids_and_labels import RulesArgument
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import Session

NO_MANAGEMENT = "no management"
"""Label of the baseline: nothing is ever compacted, in a window that holds every session."""
MAX_SESSION_SHARE = 0.5
"""Largest share of a saving that may come from one session; above it the setting is not advised."""
_COLUMNS = ("rules", "session", "cost_usd", "cost_low_usd", "cost_high_usd", "peak_tokens")
_SAVED = (("saved_usd", "mean"), ("saved_usd_low", "low"), ("saved_usd_high", "high"))


def advise(
    sessions: SessionsLike,
    rules: RulesArgument = "all",
    *,
    executor: Executor | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Recommend settings for sessions: the Pareto front, cheapest first, with saving and risk.

    A setting is on the front if no other setting is at least as good in dollars, needed-later
    loss and compactions not paid back, and better in one of them.

    Args:
        sessions: recorded sessions with text, usage and prices. With fewer than five nothing is
            advised, as they say little about the next one; the display names the best for them.
        rules: the settings to choose among: a grid, presets, or ``"all"`` presets.
        executor: executor of the runs (see `sweep`).
        progress: show a progress bar.

    Returns:
        One row per setting on the Pareto front; none where no setting has a cost on every session.
        Columns: those of `summarise_runs_with_pareto_front`, and

        - `saved_usd`, `saved_usd_low`, `saved_usd_high`: mean dollars saved per session against no
          context management, with a 90 % interval over paired sessions;
        - `sessions_saving_n`: number of sessions on which the setting saves;
          `largest_session_share`: share of the whole saving that the best session contributes;
          `saved_usd_without_largest`: mean saving without that session;
        - `cost_uncertainty_usd`: uncertainty of the mean cost by the cache model: the mean of the
          sessions' half widths, as errors of sessions of one tool have the same sign;
          `indistinguishable_from`: cheaper settings whose cost is closer than that;
        - `max_loss`: largest needed-later loss that is accepted, `EXTRA_LOSS` above what
          compacting at the window puts at stake;
        - `advised`: True if the interval is above zero and the saving above `cost_uncertainty_usd`,
          no session contributes more than half of the saving, no prompt is kept smaller than what
          must stay, and loss is at most `max_loss`; `advice`: a sentence that says why or why not;
        - `session_notes`: what the logs do not record or record wrongly.

    Raises:
        BadArguments: no session has text and usage, or none could be replayed.

    Example:
        >>> import ctxkit as ck
        >>> advice = ck.advise(ck.samples.path("billing"), ["pi", "inspect_edit"], progress=False)
        >>> advice["advised"].tolist()
        [False]
    """
    import pandas as pd

    from ctxkit._internal.data_frame_display import with_display
    from ctxkit.experiments.setting_choice_and_sweep_display import display_advice
    from ctxkit.presets import none

    recorded = replace_replays_by_recorded_sessions(sessions)
    usable = [s for s in recorded if s.has_text and s.has_usage]
    if not usable:
        raise BadArguments(_explain_none_usable(len(recorded)))
    settings = [*resolve_rules_list(rules), none(context_window=10_000_000).but(name=NO_MANAGEMENT)]
    bounds: dict[int, _SessionBound | None] = {}

    def bounded(session: Session) -> SessionRunner:
        bench = SessionRunner(session)
        bounds[id(session)] = _estimate_session_bound(bench.base)  # from what its runs share
        return bench

    # One sweep scores all settings on all sessions; the bounds reuse the caches of its runners.
    options = SweepScoreOptions(loss=True)
    runs_frame = run_sweep(
        usable, settings, options, executor, progress=progress, make_runner=bounded
    )
    runs = pd.DataFrame(runs_frame)[[*_COLUMNS]]
    front = summarise_runs_with_pareto_front(runs_frame)
    sessions_n = int(front["sessions_n"].max())
    if not sessions_n:
        raise BadArguments(_explain_none_usable(len(recorded)))
    best = front[front["on_pareto_front"]].reset_index(drop=True)
    # A session that a worker process ran has no runner here, so its bound is computed again.
    session_bounds = [
        bounds[id(s)] if id(s) in bounds else _estimate_session_bound(SessionAnalysisCache(s))
        for s in usable
    ]
    bounds_list = [bound for bound in session_bounds if bound is not None]
    best["cost_uncertainty_usd"] = best["rules"].map(average_cost_uncertainty_usd(runs))
    best["indistinguishable_from"] = [
        _indistinguishable_from(row, best) for row in best.to_dict("records")
    ]
    advice_rows = [_advice_columns(row, runs, bounds_list) for row in best.to_dict("records")]
    for column in advice_rows[0] if advice_rows else ():
        best[column] = [row[column] for row in advice_rows]
    best["session_notes"] = " ".join(f"{s.id}: {note}" for s in usable for note in s.notes) or None
    return with_display(best, display_advice)


def get_advised_setting(advice: pd.DataFrame) -> str:
    """Return the setting of the first advised row as text, else that of the cheapest.

    Args:
        advice: the frame that `advise` returns.

    Returns:
        Text that `ck.load_rules` and the command line take.
    """
    advised = advice[advice["advised"]]
    rules = str((advised if len(advised) else advice)["rules"].iloc[0])
    return "none" if rules == NO_MANAGEMENT else rules


def _indistinguishable_from(row: dict[Any, Any], best: pd.DataFrame) -> str:
    """Return the cheaper settings whose cost is within the uncertainty of this one's."""
    # the front is ordered by cost, so only cheaper settings can be alternatives
    near = row["cost_usd"] - best["cost_usd"] < row["cost_uncertainty_usd"]
    return ", ".join(best["rules"][near & (best["cost_usd"] < row["cost_usd"])])


class _SessionBound(NamedTuple):
    """Limits that advice must respect for one session, in tokens."""

    session: str
    window: int
    min_tokens: int
    """Smallest prompt that holds what must stay."""
    loss_at_window: float | None
    """Share of the items used again that compacting at the full window puts at stake."""


def _estimate_session_bound(base: SessionAnalysisCache) -> _SessionBound | None:
    session = base.session
    try:
        floor = estimate_floor(session, base.message_sizes, base.memory)
        window = get_context_window(session, session.model).tokens or DEFAULT_WINDOW
        loss_at_window = LossBoundByThreshold(
            base.memory, base.message_sizes, floor.total, floor.fixed
        ).at(window)
    except CtxkitError:
        return None
    return _SessionBound(session.id, window, floor.total, loss_at_window)


# Advice is a rule-based decision on top of three estimates: a paired 90 % interval of the dollars
# saved (session by session against no management), the uncertainty of the cost model, and the mean
# needed-later loss. The loss limit is what compacting at the full window would risk on these
# sessions, plus `EXTRA_LOSS`. A setting is advised where no objection of `_find_objection` holds.
def _advice_columns(
    row: dict[Any, Any], runs: pd.DataFrame, bounds: Sequence[_SessionBound]
) -> dict[str, Any]:
    """Return the columns that advice adds to a row of the front."""
    rules = str(row["rules"])
    difference = compare_settings(runs, NO_MANAGEMENT, rules, "cost_usd")
    losses = [b.loss_at_window for b in bounds if b.loss_at_window is not None]
    max_loss = fmean(losses) + EXTRA_LOSS if losses else None
    saved = {column: difference[key] for column, key in _SAVED}
    columns = {
        **saved,
        **measure_saving_concentration(_list_savings(runs, rules)),
        "max_loss": max_loss,
    }
    objection = (
        _find_objection_to_none(row["sessions_n"], runs, bounds)
        if rules == NO_MANAGEMENT
        else _find_objection(row | columns, runs, bounds)
    )
    return {**columns, "advised": not objection, "advice": _write_advice(row | columns, objection)}


def _list_savings(runs: pd.DataFrame, rules: str) -> list[float]:
    """Return the dollars that each session saves against no management, where both are known."""
    costs = runs[runs["cost_usd"].notna()].groupby(["rules", "session"])["cost_usd"].mean()
    savings = (costs[NO_MANAGEMENT] - costs[rules]).dropna()
    return [float(v) for v in savings]


def measure_saving_concentration(savings: Sequence[float]) -> dict[str, Any]:
    """Measure how far a mean saving depends on a single session.

    Args:
        savings: dollars saved by each session; negative where a session became dearer.

    Returns:
        `sessions_saving_n`, `largest_session_share` and `saved_usd_without_largest`, as `advise`
        defines them; None where they cannot be computed.
    """
    gains = sorted(v for v in savings if v > 0)
    without_largest = sorted(savings)[:-1]
    return {
        "sessions_saving_n": len(gains),
        "largest_session_share": gains[-1] / sum(gains) if gains else None,
        "saved_usd_without_largest": fmean(without_largest) if without_largest else None,
    }


def _find_objection(
    row: dict[Any, Any], runs: pd.DataFrame, bounds: Sequence[_SessionBound]
) -> str:
    """Return the first reason against a setting as a clause; empty where it is advised."""
    if row["sessions_n"] < FEW_SESSIONS:
        return _describe_few(row["sessions_n"])
    # The order is that of severity: no saving, saving within the error of the model, a saving
    # of one session only, then prompts too small to work, then too much loss.
    if (low := row["saved_usd_low"]) is None or low <= 0:
        return "it is within noise of no management in dollars"
    if row["saved_usd"] <= row["cost_uncertainty_usd"]:
        return (
            f"it is within noise of no management: its dollars are known within "
            f"${row['cost_uncertainty_usd']:,.2f} alone"
        )
    if row["largest_session_share"] > MAX_SESSION_SHARE:
        return (
            f"one session makes {format_percent(row['largest_session_share'])} of what it saves "
            f"(${row['saved_usd_without_largest']:,.2f} a session without it)"
        )
    mine = runs[runs["rules"] == row["rules"]]
    peak = mine.groupby("session")["peak_tokens"].max().to_dict()
    below = sum(peak.get(b.session, b.min_tokens) < b.min_tokens for b in bounds)
    if below:
        return f"in {pluralize(below, 'session')} it keeps less than what must stay"
    if row["max_loss"] is not None and row["needed_later_loss"] > row["max_loss"]:
        return (
            f"it loses more than the {format_percent(row['max_loss'])} that compacting at the"
            " window puts at stake, and a little"
        )
    return ""


def _describe_few(sessions_n: int) -> str:
    return f"{pluralize(sessions_n, 'session says', 'sessions say')} little about the next one"


def _find_objection_to_none(
    sessions_n: int, runs: pd.DataFrame, bounds: Sequence[_SessionBound]
) -> str:
    if sessions_n < FEW_SESSIONS:
        return _describe_few(sessions_n)
    peak = runs[runs["rules"] == NO_MANAGEMENT].groupby("session")["peak_tokens"].max().to_dict()
    over = sum(peak.get(b.session, 0) > b.window for b in bounds)
    return f"{pluralize(over, 'session')} would not fit the window" if over else ""


def _explain_none_usable(sessions_n: int) -> str:
    return (
        f"Advice needs sessions with text, usage and prices; of the {sessions_n} given none has"
        " them all."
    )


def _write_advice(row: dict[Any, Any], objection: str) -> str:
    """Return the advice as a sentence with cost, saving, interval and loss."""
    start, n = f"Not advised, as {objection}: " if objection else "", row["sessions_n"]
    if row["rules"] == NO_MANAGEMENT:
        return (
            f"{start}{NO_MANAGEMENT}: ${row['cost_usd']:,.2f} a session and nothing out of sight, "
            f"while the window holds it all; over {pluralize(n, 'session')}."
        )
    return (
        f"{start}{row['rules']}: ${row['cost_usd']:,.2f} a session (${row['saved_usd']:,.2f} less"
        f" than no management{_describe_saving(row)});"
        f" {format_percent(row['needed_later_loss'])} of what was used again had been cut away"
        f"{_describe_loss(row)}; {row['not_paid_back_n']:.1f} compactions a session were"
        " not paid back."
        f"{_list_similar(row)}"
    )


def _describe_saving(row: dict[Any, Any]) -> str:
    """Return the interval of a saving, and who carries it; few sessions have no interval."""
    if row["sessions_n"] < FEW_SESSIONS:
        return ""
    share = (
        ""
        if row["largest_session_share"] is None
        else f", the largest {format_percent(row['largest_session_share'])} of it"
    )
    return (
        f", 90 % interval ${row['saved_usd_low']:,.2f} to ${row['saved_usd_high']:,.2f};"
        f" {row['sessions_saving_n']} of {row['sessions_n']} sessions carry it{share}"
    )


def _describe_loss(row: dict[Any, Any]) -> str:
    if row["sessions_n"] < FEW_SESSIONS:
        return ""
    low, high = row["needed_later_loss_low"], row["needed_later_loss_high"]
    return f" ({format_percent(low)} to {format_percent(high)})"


def _list_similar(row: dict[Any, Any]) -> str:
    """Return what is known of the error of the cost, and the settings that are within it."""
    if not has_value(row["cost_uncertainty_usd"]):
        return " The error of these dollars is not known."
    if not row["indistinguishable_from"]:
        return ""
    return (
        f" In dollars, known within ${row['cost_uncertainty_usd']:,.2f}, it is like"
        f" {row['indistinguishable_from']}."
    )
