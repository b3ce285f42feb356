"""The functions that make a widget of a session: `explore`, `budget`, `tune` and their like."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ctxkit.formats.sessions_from_arguments import accepts_session, as_session
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from typing import Any, Literal

    from ctxkit.formats.sessions_from_arguments import SessionLike
    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.session import Session
    from ctxkit.widgets.anti_thrash_guard_widget import ThrashWidget
    from ctxkit.widgets.budget_threshold_hits_widget import BudgetWidget
    from ctxkit.widgets.result_removal_break_even_widget import ResultRemovalBreakEvenWidget
    from ctxkit.widgets.session_compactions_widget import SavingsWidget
    from ctxkit.widgets.session_explorer import Explorer
    from ctxkit.widgets.session_pair_diff import SessionDiffWidget
    from ctxkit.widgets.tuner import Tuner
    from ctxkit.widgets.watcher import Watcher


@overload
def explore(session: SessionLike, call: int = -1) -> Explorer: ...
@overload
def explore(session: SessionLike, call: int = -1, *, beside: SessionLike) -> SessionDiffWidget: ...
def explore(
    session: SessionLike, call: int = -1, *, beside: SessionLike | None = None
) -> Explorer | SessionDiffWidget:
    """Return a widget to go through the calls of a session, see what fills each prompt, search its
    messages and read them.

    Args:
        session: any session, the path of a log, or a list of messages; its subagents are a tree
            from which each can be opened.
        call: the call shown first; negatives count from the end.
        beside: another session: the two are shown side by side from their first difference on.

    Returns:
        The widget; its `call` can be set. With `beside` one that shows both sessions.

    Raises:
        BadArguments: not a session, or it has no such call.

    Example:
        >>> import ctxkit as ck
        >>> widget = ck.explore(ck.samples.path("billing"), 40)
        >>> type(widget).__name__
        'Explorer'
    """
    resolved = as_session(session)
    if beside is not None:
        from ctxkit.widgets.session_pair_diff import SessionDiffWidget

        return SessionDiffWidget(resolved, as_session(beside))
    from ctxkit.widgets.session_explorer import Explorer

    return Explorer(resolved, resolved.call(call).index if resolved.calls else 0)


@accepts_session
def break_even(session: Session, call: int = -1) -> ResultRemovalBreakEvenWidget:
    """Return a widget that removes a result from one prompt, and says when this is paid back.

    The tokens behind the result must be written to the cache again, where they would have been
    read; then each call reads less. It is paid back after ``N > (w - r) S / (r x)`` calls, with `w`
    and `r` the prices of a written and a read token, `x` removed tokens and `S` tokens behind them.

    Args:
        session: a session whose record tells cached from uncached input, or a replay of one.
        call: number of the call, negative from the end.

    Returns:
        The widget; its `removal` holds the values of its controls, its `answer` the sentence.

    Raises:
        BadArguments: there is no such call, its cache read is unknown, or its model has no price.

    Example:
        >>> import ctxkit as ck
        >>> widget = ck.break_even(ck.read(ck.samples.path("billing")), 5)
        >>> type(widget).__name__
        'ResultRemovalBreakEvenWidget'
    """
    from ctxkit.plots.cache_and_prompt_strip_charts import get_prompt_strip
    from ctxkit.widgets.result_removal_break_even_widget import ResultRemovalBreakEvenWidget

    return ResultRemovalBreakEvenWidget(session, get_prompt_strip(session, call))


def tune(session: Any, rules: RulesLike | None = None, **ranges: tuple[float, ...]) -> Tuner:
    """Return a widget with a slider for each numeric setting; each move draws a replay.

    Args:
        session: a recorded session, the path of a log, or a list of messages; of a replay, its
            recorded session is used. A live session, or its name in `%%agent`: the settings are
            tried again after each turn, and the button "from here on" applies them to it.
        rules: the name of a preset, rules (with their settings), or a function that makes rules
            from numbers with defaults, such as ``def rules(trigger=30_000, keep=8_000)``; None: the
            rules of a live session.
        ranges: ends (and step) of a setting's slider, such as ``keep=(1_000, 20_000, 500)``.

    Returns:
        The widget; its `settings` can be set, its `rules` are those of the sliders.

    Raises:
        BadArguments: not a session; rules without a numeric setting; a range for a setting that
            does not exist.

    Example:
        >>> import ctxkit as ck
        >>> widget = ck.tune(ck.samples.path("billing"), "pi")
        >>> type(widget).__name__
        'Tuner'
    """
    from ctxkit.errors import BadArguments
    from ctxkit.widgets.data_source import get_live_session
    from ctxkit.widgets.trial_replays_and_tables import TrialRunner
    from ctxkit.widgets.tuner import Tuner
    from ctxkit.widgets.tuner_controls import make_setting_controls

    live = get_live_session(session)
    if rules is None:
        if live is None:
            raise BadArguments("tune() takes the rules to be tried, such as the preset 'pi'.")
        rules = live.agent.rules
    resolved = as_session(session if live is None else live)
    recorded = resolved.origin or resolved
    return Tuner(TrialRunner(recorded), make_setting_controls(rules, recorded, ranges), live)


def watch(session: Any = None, *, every: float = 1.0) -> Watcher:
    """Return a widget that shows how full a context is, how it grew, and its last calls.

    Args:
        session: a live session or its name in `%%agent`: it is followed while it runs. The path of
            a log: it is followed while another program writes it, with the growth of the last call
            and the next compaction. A session or a list of messages: shown without following. None:
            the active session of the magics.
        every: seconds between two looks at a file; `Watcher.stop` ends them.

    Returns:
        The widget; its `state` is the newest reading.

    Raises:
        BadArguments: there is no such session, or `every` is not above 0.
        ReadError: the file cannot be read.

    Example:
        >>> import ctxkit as ck
        >>> widget = ck.watch(ck.read(ck.samples.path("billing")))
        >>> type(widget).__name__
        'Watcher'
    """
    from os import PathLike, fspath
    from pathlib import Path

    from ctxkit.errors import BadArguments
    from ctxkit.widgets.data_source import GrowingLogSession, find_session_source
    from ctxkit.widgets.watcher import Watcher

    if not every > 0:
        raise BadArguments(f"every= takes seconds, more than 0, not {every!r}.")
    if isinstance(session, (str, PathLike)) and Path(fspath(session)).expanduser().is_file():
        tail = GrowingLogSession(Path(fspath(session)).expanduser(), every)
        name = get_title(tail.session)
        return Watcher(name, lambda: tail.session, lambda: None, tail)
    return Watcher(*find_session_source(session))


def budget(
    of: Any = None, *, warn: int | None = None, cutover: int | None = None, again: bool = False
) -> BudgetWidget:
    """Return a chart of each agent's input tokens, summed by turn, with lines for two thresholds.

    Drag a line, move it with the arrow keys, or type a number: the chart says which turns would
    have warned and compacted, also while a cell runs and in an exported page.

    Args:
        of: a session or several, a path or a folder, a turn frame, snapshots (their frame, file or
            folder), a live session or its name (it is followed); None: the active session of the
            magics.
        warn: threshold of the warning in tokens; None: as recorded, else off. If neither threshold
            is given and the log has none, they start at 60 and 80 % of the highest sum.
        cutover: threshold of the compaction in tokens; None: as for `warn`.
        again: start the sums again after each compaction by these thresholds, instead of taking the
            recorded sums.

    Returns:
        The widget; `warn` and `cutover` follow the lines, `verdict` has the turns that reach them,
        by agent.

    Raises:
        BadArguments: `of` is none of these, or a threshold is below 0.
        ReadError: a file cannot be read.

    Example:
        >>> import ctxkit as ck
        >>> chart = ck.budget(ck.samples.path("billing"), warn=400_000)
        >>> type(chart).__name__
        'BudgetWidget'
    """
    from ctxkit.widgets.budget_threshold_hits_widget import BudgetWidget
    from ctxkit.widgets.data_source import resolve_source

    return BudgetWidget(resolve_source(of), warn=warn, cutover=cutover, again=again)


def savings(of: Any = None) -> SavingsWidget:
    """Return a chart of what each compaction kept and saved; a click shows its details.

    These are its diff, its cost and when that is paid back, and the removed items that were needed
    later.

    Args:
        of: what `budget` takes, or a frame of compactions. For snapshots sizes are unknown, and
            there is no diff.

    Returns:
        The widget; its `compactions` are the rows drawn, its `detail` the details of the last
        click.

    Raises:
        BadArguments: `of` is none of these.
        ReadError: a file cannot be read.

    Example:
        >>> import ctxkit as ck
        >>> chart = ck.savings(ck.samples.path("billing"))
        >>> type(chart).__name__
        'SavingsWidget'
    """
    from ctxkit.widgets.data_source import resolve_source
    from ctxkit.widgets.session_compactions_widget import SavingsWidget

    return SavingsWidget(resolve_source(of))


def thrash(
    of: Any = None,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> ThrashWidget:
    """Return a chart of the share that each compaction saved, with an adjustable anti-thrash guard.

    The chart says where the guard closes and, for a replay, what that costs or saves in US dollars.

    Args:
        of: what `savings` takes.
        min_savings: share from 0 to 1 that a compaction must save; 0 turns the guard off.
        window: number of compactions in a row below that share that close the guard; 0 turns it
            off.
        by: count the share in "tokens", as the bill does, or in "messages", as fuseraft does.

    Returns:
        The widget; its `min_savings`, `window` and `by` can be set, its `closes` says where the
        guard closes.

    Raises:
        BadArguments: `of` is none of these, or a setting is out of its range.
        ReadError: a file cannot be read.

    Example:
        >>> import ctxkit as ck
        >>> chart = ck.thrash(ck.replay(ck.samples.path("billing"), "pi"), window=5)
        >>> type(chart).__name__
        'ThrashWidget'
    """
    from ctxkit.widgets.anti_thrash_guard_widget import ThrashWidget
    from ctxkit.widgets.data_source import resolve_source

    return ThrashWidget(resolve_source(of), min_savings=min_savings, window=window, by=by)
