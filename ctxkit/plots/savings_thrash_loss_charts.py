"""`plots.savings`, `plots.thrash` and `plots.loss`: charts with one mark per compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit._internal.chart_style import STOP_COLOUR
from ctxkit._internal.formatting_and_sanitizing import format_percent, pluralize
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.frames import per_compaction
from ctxkit.metrics.losable_items import ITEM_FAMILIES
from ctxkit.metrics.loss_tables import analyse_loss, list_counts_by_compaction_and_family
from ctxkit.plots.chart import (
    Chart,
    add_session_notes,
    format_exact_token_count,
    map_sessions_by_name,
)
from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing
from ctxkit.session.compactions_and_prunings import hides_compactions
from ctxkit.session.messages import ATTEMPT_OUTCOMES
from ctxkit.session.titles import get_title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.metrics.loss_analysis import LossAnalysis
    from ctxkit.session.session import Session


class CompactionSizes(NamedTuple):
    """Sizes of one compaction, in tokens."""

    number: int
    call: int | None
    """The first call after it; None: no call follows."""
    before: int | None
    after: int | None
    put_in: int | None
    """Tokens of the summaries and shortened messages that it inserted; part of `after`."""
    description: str
    """Kind, method and trigger."""
    source: str | None
    session: str = ""


UNKNOWN_COMPACTIONS = "The log cannot tell of compactions."
"""Caption instead of a count, if the format does not mark compactions."""
_SIZE_COLUMNS = ("compaction", "call", "tokens_before", "tokens_after", "summary_tokens")
_WORD_COLUMNS = ("kind", "method", "trigger")


def savings_data(of: SessionsLike | pd.DataFrame) -> tuple[CompactionSizes, ...]:
    """Return the sizes of each compaction; None where they are unknown.

    Raises:
        BadArguments: the argument is neither sessions nor a frame of compactions.
    """
    return _savings_rows(_savings_table(of))


def _savings_table(of: SessionsLike | pd.DataFrame) -> CompactionTable:
    return get_compaction_table(of, (*_SIZE_COLUMNS, *_WORD_COLUMNS, "tokens_source"), "savings")


def _savings_rows(table: CompactionTable) -> tuple[CompactionSizes, ...]:
    columns = table.columns
    words = zip(*(columns[n] for n in _WORD_COLUMNS), strict=True)
    descriptions = [" · ".join(w for w in row if w) for row in words]
    values = [
        *(columns[n] for n in _SIZE_COLUMNS),
        descriptions,
        columns["tokens_source"],
        columns["session"],
    ]
    return tuple(CompactionSizes(*row) for row in zip(*values, strict=True))


@add_session_notes
def savings(of: SessionsLike | pd.DataFrame) -> Chart:
    """Chart the tokens that each compaction retained, inserted and saved of the window before it.

    Args:
        of: a session, several sessions (their compactions follow one another), or a frame with one
            row per compaction.

    Returns:
        The chart; its table has one row per compaction.

    Raises:
        BadArguments: the argument is neither sessions nor a frame of compactions.

    Example:
        >>> import ctxkit as ck
        >>> [row[:5] for row in ck.plots.savings(ck.samples.path()).rows][:1]
        [('0', '175', '40,471', '11,651', '71 %')]
    """
    table = _savings_table(of)
    return draw_savings_chart(
        table.title,
        _savings_rows(table),
        several=len(table.names) > 1,
        is_unknown=hides_all_compactions(table.sessions),
    )


def draw_savings_chart(
    name: str, data: Sequence[CompactionSizes], *, several: bool, is_unknown: bool = False
) -> Chart:
    """Return the chart of compactions.

    Args:
        name: the session or sessions, for the title.
        data: the compactions.
        several: they belong to several sessions, one after another.
        is_unknown: there are none, because the log cannot record compactions.

    Returns:
        A chart with a bar a compaction: retained, inserted and saved tokens.
    """

    def hover(k: int) -> str:
        saving = data[k]
        before, after = (
            format_exact_token_count(saving.before),
            format_exact_token_count(saving.after),
        )
        sizes = f"{before} → {after} tokens ({saving.source})"
        which = f"{saving.session}\n" if several else ""
        return (
            f"{which}compaction {saving.number}, {_call_label(saving)}\n{sizes}\ninserted"
            f" {format_exact_token_count(saving.put_in)}\n{saving.description}"
        )

    # Numbers repeat between sessions, so the bars are numbered consecutively.
    places = [k if several else s.number for k, s in enumerate(data)]
    columns = (
        ("inserted", [_inserted_tokens(s) for s in data], 3),
        (
            "kept",
            [None if s.after is None else s.after - (_inserted_tokens(s) or 0) for s in data],
            0,
        ),
        ("saved", [_saved_tokens(s) for s in data], 1),
    )
    traces = [
        Trace(name=n, x=places, y=y, kind="bar", look=look, hover=hover) for n, y, look in columns
    ]
    axes = XyDrawing(
        x="compaction",
        y="tokens in the window before",
        traces=tuple(traces) if data else (),
        whole=True,
        stacked=True,
    )
    shares = [1 - s.after / s.before for s in data if s.before and s.after is not None]
    mean = f" On average {format_percent(sum(shares) / len(shares))} was saved." if shares else ""
    if data and not shares:
        mean = " No size is known."
    return Chart(
        title=f"Savings of the compactions of {name}",
        caption=(
            UNKNOWN_COMPACTIONS
            if is_unknown
            else f"{pluralize(len(data), 'compaction')}: of the prompt that was due before, what"
            f" was kept and saved; what was inserted is part of what is there after.{mean}"
        ),
        drawing=axes,
        head=("session",) * several
        + ("compaction", "call", "before", "after", "saved", "inserted", "what", "source"),
        rows=tuple((s.session,) * several + _savings_row(s) for s in data),
    )


def hides_all_compactions(sessions: Sequence[Session]) -> bool:
    """Return True if there are sessions and none of their logs can record a compaction."""
    return bool(sessions) and all(map(hides_compactions, sessions))


def _inserted_tokens(saving: CompactionSizes) -> int | None:
    """Return the inserted tokens, at most the size afterwards."""
    if saving.put_in is None or saving.after is None:
        return None
    return min(saving.put_in, saving.after)


def _saved_tokens(saving: CompactionSizes) -> int | None:
    """Return the saved tokens, 0 if the window grew; None: unknown."""
    if saving.before is None or saving.after is None:
        return None
    return max(saving.before - saving.after, 0)


def _savings_row(saving: CompactionSizes) -> tuple[str, ...]:
    saved = "unknown"
    if saving.before and saving.after is not None:
        saved = format_percent(1 - saving.after / saving.before)
    call = "" if saving.call is None else str(saving.call)
    ends = (saving.description, saving.source or "unknown")
    return (
        str(saving.number),
        call,
        *map(format_exact_token_count, saving[2:4]),
        saved,
        format_exact_token_count(saving.put_in),
        *ends,
    )


def _call_label(saving: CompactionSizes) -> str:
    return "after the last call" if saving.call is None else f"before call {saving.call}"


_MARKS = 40


class CompactionAttempt(NamedTuple):
    """A compaction that happened, or one that a guard suppressed."""

    call: int
    saved: float | None
    """Share that it saved; negative where the window grew; None for a suppressed one."""
    why: str
    """For a suppressed one: the guard and its reason."""


class ThrashData(NamedTuple):
    """Compactions of a session and the state of a guard against thrash."""

    session: str
    tries: tuple[CompactionAttempt, ...]
    min_savings: float
    window: int
    by: str
    closes: int | None
    """The compaction after which such a guard allows no more; None: it never closes."""
    is_unknown: bool = False
    """True where there are none, because the log cannot record compactions."""


def thrash_data(
    of: SessionsLike | pd.DataFrame,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> ThrashData:
    """Return what each compaction saved, what guards suppressed, and where a guard would close.

    Args:
        of: a session or replay, or a frame of its compactions.
        min_savings: share of the prompt that a compaction must save, from 0 to 1.
        window: compactions in a row below it after which the guard closes; 0: it never does.
        by: count "tokens" or "messages".

    Raises:
        BadArguments: `by` is neither tokens nor messages; or `of` is neither one session nor a
            frame of its compactions.
    """
    if by not in ("tokens", "messages"):
        raise BadArguments(f"plots.thrash counts by 'tokens' or 'messages', not by {by!r}.")
    column = "token_savings" if by == "tokens" else "message_savings"
    table = get_compaction_table(of, ("call", column), "thrash")
    if len(table.names) > 1:
        raise BadArguments(
            "plots.thrash draws one session, for a guard counts within one;"
            f" {len(table.names)} were given: draw them one by one."
        )
    calls, shares = table.columns["call"], table.columns[column]
    # A compaction after the last call is drawn at `n`.
    n = (
        len(table.sessions[0].calls)
        if table.sessions
        else max((c for c in calls if c is not None), default=-1) + 1
    )
    tries = [(n if c is None else c, s) for c, s in zip(calls, shares, strict=True)]
    suppressed = [
        (each.call, each.why)
        for session in table.sessions
        for each in list_suppressed_compactions(session)
    ]
    data = build_thrash_data(table.title, tries, suppressed, min_savings, window, by)
    return data._replace(is_unknown=hides_all_compactions(table.sessions))


def build_thrash_data(  # noqa: PLR0917  what is tried, then the guard
    name: str,
    tries: Sequence[tuple[int, float | None]],
    suppressed: Sequence[tuple[int, str]],
    min_savings: float,
    window: int,
    by: str,
) -> ThrashData:
    """Return the data of the chart.

    `tries` has call and share saved of each compaction, `suppressed` call and reason.

    Args:
        name: the session, for the title.
        tries: call and share saved (None: unknown) of each compaction, in order.
        suppressed: call and reason of each compaction that a guard suppressed.
        min_savings: share that a compaction must save, 0..1.
        window: compactions in a row below it after which the guard closes.
        by: `tokens` or `messages`, of which the shares are.

    Returns:
        What `draw_thrash_chart` draws, with the call after which the guard closes.
    """
    attempts = [CompactionAttempt(call, share, "") for call, share in tries]
    suppressed_attempts = [CompactionAttempt(call, None, why) for call, why in suppressed]
    end = find_guard_closing([share for _, share in tries], min_savings, window)
    return ThrashData(name, (*attempts, *suppressed_attempts), min_savings, window, by, end)


@add_session_notes
def thrash(
    of: SessionsLike | pd.DataFrame,
    *,
    min_savings: float = 0.10,
    window: int = 10,
    by: Literal["tokens", "messages"] = "tokens",
) -> Chart:
    """Chart the share that each compaction saved, against a guard's threshold.

    Args:
        of: a recorded session; a replay, which also has the compactions that its guards suppressed;
            or a frame of one session's compactions.
        min_savings: share below which a compaction counts as fruitless (fuseraft's default is
            0.10).
        window: number of fruitless compactions in a row that close the guard (fuseraft's default
            is 10).
        by: count the share of tokens, like the bill, or of messages, like fuseraft.

    Returns:
        The chart; its table has each compaction, the share that it saved and a verdict.

    Raises:
        BadArguments: `by` is neither tokens nor messages, or `of` is neither one session nor a
            frame of its compactions.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.thrash(ck.samples.path()).head
        ('call', 'saved', 'verdict')
    """
    return draw_thrash_chart(thrash_data(of, min_savings=min_savings, window=window, by=by))


def list_suppressed_compactions(session: Session) -> list[CompactionAttempt]:
    """Return the compactions that a replay's own guards suppressed.

    Args:
        session: a replay; other sessions have none.

    Returns:
        In order of calls, each with the reason that the guard gave.
    """
    replay: Any = session.details.get("replay")
    suppressed = replay.get("held") if isinstance(replay, dict) else None
    rows = [h for h in suppressed if isinstance(h, dict)] if isinstance(suppressed, list) else []
    return [
        CompactionAttempt(int(h["call"]), None, f"{h.get('guard')}: {h.get('why')}")
        for h in rows
        if isinstance(h.get("call"), int)
    ]


def is_saving_too_small(share: float | None, min_savings: float) -> bool:
    """Return True if a compaction saved less than a guard requires; False if it is unknown.

    Args:
        share: tokens saved as a share of the prompt before, 0 to 1; None: unknown.
        min_savings: the share that the guard requires, 0 to 1.
    """
    return share is not None and share < min_savings


def is_guard_off(min_savings: float, window: int) -> bool:
    """Return True if a guard never closes: 0 turns it off.

    Args:
        min_savings: the share of tokens that the guard requires a compaction to save, 0 to 1.
        window: number of compactions in a row that must have saved less.
    """
    return not min_savings > 0 or not window > 0


def find_guard_closing(
    shares: Sequence[float | None], min_savings: float, window: int
) -> int | None:
    """Return the compaction after which a guard against thrash closes; None: it stays open.

    It closes after `window` fruitless compactions in a row. The browser runs the same rule.

    Args:
        shares: share saved by each compaction; None: unknown, which counts as enough.
        min_savings: the share that it must save.
        window: how many in a row must be below it.

    Returns:
        Index of the compaction, or None.
    """
    in_a_row = 0
    for i, share in enumerate(shares):
        in_a_row = in_a_row + 1 if is_saving_too_small(share, min_savings) else 0
        if not is_guard_off(min_savings, window) and in_a_row >= window:
            return i
    return None


def draw_thrash_chart(data: ThrashData) -> Chart:
    """Return the chart of compactions and suppressed ones, with the guard's threshold."""
    completed = [t for t in data.tries if t.saved is not None]
    suppressed = [t for t in data.tries if t.saved is None and t.why]
    low = [t for t in completed if is_saving_too_small(t.saved, data.min_savings)]

    def trace(
        name: str, rows: list[CompactionAttempt], look: int, kind: Literal["line", "points"]
    ) -> Trace:
        def hover(k: int) -> str:
            attempt = rows[k]
            outcome = attempt.why or f"saved {format_percent(attempt.saved, 1)} of {data.by}"
            return f"before call {attempt.call}\n{outcome}"

        places, heights = [t.call for t in rows], [t.saved or 0 for t in rows]
        return Trace(name=name, x=places, y=heights, kind=kind, look=look, hover=hover)

    traces = [trace("saved", completed, 0, "line")]
    traces += [trace(f"below {format_percent(data.min_savings)}", low, 1, "points")] if low else []
    traces += [trace("suppressed", suppressed, 5, "points")] if suppressed else []
    closing = (
        ()
        if data.closes is None
        else (VerticalMark(x=data.tries[data.closes].call, label="guard stops"),)
    )
    axes = XyDrawing(
        x="call",
        y=f"share of {data.by} saved",
        traces=tuple(traces) if data.tries else (),
        limits=(
            LimitLine(
                y=data.min_savings,
                label=f"least {format_percent(data.min_savings)}",
                colour=STOP_COLOUR,
            ),
        ),
        marks=closing,
        y_share=True,
    )
    return Chart(
        title=f"Do the compactions of {data.session} pay?",
        caption=_thrash_caption(data, len(low), len(suppressed)),
        drawing=axes,
        head=("call", "saved", "verdict"),
        rows=tuple(
            _thrash_row(t, data.min_savings) for t in sorted(data.tries, key=lambda t: t.call)
        ),
    )


def _thrash_caption(data: ThrashData, low: int, suppressed: int) -> str:
    if data.is_unknown:
        return UNKNOWN_COMPACTIONS
    unknown = sum(t.saved is None and not t.why for t in data.tries)
    least = format_percent(data.min_savings)
    return (
        f"{pluralize(len(data.tries) - suppressed, 'compaction')}, {low} saved less than"
        f" {least} of {data.by}"
        f"{f', of {unknown} it is unknown' if unknown else ''}"
        f"{f'; {suppressed} suppressed' if suppressed else ''}. {_describe_guard(data, least)}"
    )


def _describe_guard(data: ThrashData, least: str) -> str:
    if is_guard_off(data.min_savings, data.window):
        return "The guard is off."
    if data.closes is None:
        return (
            f"A guard that stops after {data.window} in a row below {least} would never have"
            " stopped."
        )
    return (
        f"{data.window} in a row saved less than {least}: a guard would stop at call"
        f" {data.tries[data.closes].call}."
    )


def _thrash_row(attempt: CompactionAttempt, min_savings: float) -> tuple[str, ...]:
    if attempt.saved is None:
        return (str(attempt.call), "", attempt.why or "the log does not tell")
    return (
        str(attempt.call),
        format_percent(attempt.saved, 1),
        "too little" if is_saving_too_small(attempt.saved, min_savings) else "pays",
    )


_MAX_NAMED_COMPACTIONS = 4
"""Maximum number of compactions for which each point is named."""


class FamilyLossAtCompaction(NamedTuple):
    """One family of items after one compaction."""

    compaction: int
    call: int
    family: str
    items: int
    """Items removed since the start."""
    retained: int
    recoverable: int
    lost: int
    needed: int
    """Removed items that the record used again before the next compaction."""
    unseen: int
    """The needed items that were out of sight."""
    missed: int
    """Items that this compaction removed and the record used later, each counted once."""


@accepts_session
def loss_data(session: Session) -> tuple[FamilyLossAtCompaction, ...]:
    """Return one row for each compaction and each family with removed items."""
    return _family_rows(analyse_loss(session))


def _family_rows(analysis: LossAnalysis | None) -> tuple[FamilyLossAtCompaction, ...]:
    rows = list_counts_by_compaction_and_family(analysis) if analysis is not None else []
    # The first three counts are disjoint and add up to the items: shown, recoverable, lost.
    return tuple(
        FamilyLossAtCompaction._make(
            (number, call, family, sum(counts[:3]), *counts[:5], counts[6])
        )
        for number, call, family, counts in rows
        if any(counts[:3])
    )


@accepts_session
@add_session_notes
def loss(session: Session) -> Chart:
    """Chart the share of removed facts that the model still sees, by family and compaction.

    Families are paths, names, ids, numbers, commands, errors and constraints.

    Args:
        session: a recorded session or a replay, with text.

    Returns:
        The chart; its table has the counts for each compaction and family: what was removed is
            shown, recoverable or lost.

    Raises:
        BadArguments: the argument is no session.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.loss(ck.samples.path()).head[:4]
        ('compaction', 'call', 'family', 'removed')
    """
    empty = "Nothing was compacted."
    if hides_compactions(session):
        empty = UNKNOWN_COMPACTIONS
    if not session.has_text:
        empty = "The session holds no text, so nothing can be said."
    return _loss_chart(get_title(session), analyse_loss(session), empty)


def _loss_chart(name: str, analysis: LossAnalysis | None, caption: str) -> Chart:
    data = _family_rows(analysis)
    traces = []
    for i, family in enumerate(ITEM_FAMILIES):
        rows = [r for r in data if r.family == family]
        if rows:
            x, y = [r.compaction for r in rows], [r.retained / r.items for r in rows]
            names = (family,) * len(rows) if data[-1].compaction < _MAX_NAMED_COMPACTIONS else ()
            traces.append(
                Trace(
                    name=family,
                    x=x,
                    y=y,
                    kind="points",
                    hover=_loss_hover(rows),
                    look=i,
                    names=names,
                )
            )
    if data and analysis is not None:
        caption = (
            "Share of the removed items that the prompt after each compaction still showed: word"
            " for word, and the user's rules in any words."
            f" {len(analysis.needed_lost_items.item):,} of"
            f" {len(analysis.memory.reused_items):,} items that"
            " the record used again, at any time, were out of its prompt by then."
        )
        if (recall := analysis.recall) is not None:
            caption += (
                f" The summaries still stated {format_percent(recall)} of the"
                f" {len(analysis.items_only_in_inserted_text[0]):,} items that nothing else"
                " showed (by weight)."
            )
    return Chart(
        title=f"What prompts still showed after each compaction: {name}",
        caption=caption,
        drawing=XyDrawing(
            x="compaction", y="share still shown", traces=tuple(traces), whole=True, y_share=True
        ),
        head=("compaction", "call", "family", "removed", "shown", "recoverable", "lost"),
        rows=tuple(tuple(x if isinstance(x, str) else f"{x:,}" for x in row[:7]) for row in data),
        shown=40,
    )


def _loss_hover(rows: Sequence[FamilyLossAtCompaction]) -> Callable[[int], str]:
    def hover(k: int) -> str:
        r = rows[k]
        return (
            f"{r.family}, compaction {r.compaction}\n{r.retained:,} of {r.items:,}"
            f" shown\n{r.recoverable:,} recoverable, {r.lost:,} lost\n{r.missed:,} taken here and"
            " needed later"
        )

    return hover


class CompactionTable(NamedTuple):
    """Compactions of some sessions."""

    names: tuple[str, ...]
    """Names of the sessions."""
    sessions: tuple[Session, ...]
    """The sessions; empty if the argument was a frame."""
    columns: dict[str, list[Any]]
    """Columns of the compaction frame, including "session"; missing values are None."""

    @property
    def title(self) -> str:
        """The names of the sessions for a title."""
        n = len(self.names)
        return f"{n} sessions" if n > 1 else self.names[0] if n else "this log"


def get_compaction_table(of: Any, names: Sequence[str], chart: str) -> CompactionTable:
    """Return the compactions of sessions or of a frame.

    Args:
        of: a session, several, or a frame with one row per compaction.
        names: the required columns.
        chart: name of the chart, for the error sentence.

    Raises:
        BadArguments: the argument is none of these.
    """
    import pandas as pd

    needed = ("session", *names)
    if not isinstance(of, pd.DataFrame):
        sessions = tuple(map_sessions_by_name(of).values())
        return CompactionTable(
            tuple(map(get_title, sessions)), sessions, per_compaction.rows(sessions)
        )
    missing = [n for n in needed if n not in of.columns]
    if missing:
        raise BadArguments(
            f"plots.{chart} takes sessions or a frame of compactions (ck.frame(...,"
            f" per='compaction')); this frame lacks {', '.join(missing)}."
        )
    table = drop_unmarked_compactions(of)[list(needed)]
    # As objects, missing values become None instead of NaN.
    plain = table.astype(object).where(table.notna(), None)
    columns: dict[str, list[Any]] = {n: plain[n].tolist() for n in needed}
    return CompactionTable(tuple(dict.fromkeys(map(str, columns["session"]))), (), columns)


def drop_unmarked_compactions(table: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of compactions without unmarked drops, and attempts that changed nothing.

    Args:
        table: a frame of `per='compaction'`.

    Returns:
        The rows that the log marks as compactions.
    """
    if "kind" not in table:
        return table
    return table[~table["kind"].isin(("unmarked", *ATTEMPT_OUTCOMES))]
