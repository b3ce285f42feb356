"""The display of a session, a replay and a list of sessions: figures, turns, compactions."""

from __future__ import annotations

import textwrap
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    MISSING,
    NO_MATHJAX,
    escape_html,
    format_change,
    format_count,
    format_percent,
    format_share,
    format_tokens,
    format_usd,
    has_value,
    pluralize,
    render_notes_html,
    sanitize_line,
    shorten_litellm_error,
    text_or_empty,
)
from ctxkit._internal.tables import (
    MUTED_COLOR_CSS,
    TERMINAL_COLUMNS,
    TEXT_COLOR_CSS,
    Cell,
    Column,
    Table,
    cut_and_pad_to_width,
)
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames import frame
from ctxkit.session.messages import ATTEMPT_OUTCOMES, Edit
from ctxkit.session.titles import (
    get_first_prompts_by_turn,
    get_project_name,
    get_start_day,
    get_title,
    make_unique_titles,
)
from ctxkit.tokens.context_windows import get_context_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.formats.reading import Sessions
    from ctxkit.session.session import Session


_TURN_HEADS = (
    Column("turn", "number of the turn, from 0"),
    Column("request", "what the user asked", number=False),
    Column("calls", "requests to a model, failed ones included"),
    Column("largest prompt", "the largest prompt of the turn, in tokens", spare=True),
    Column("input", "prompts of all its calls together, in tokens", spare=True),
    Column("output", "tokens of all its replies", spare=True),
    Column("cost", "dollars of its calls, without summaries"),
    Column("compactions", "compactions in the turn, or after it and before the next"),
)
_COMPACTION_HEADS = (
    Column("compaction", "number of the compaction, from 0"),
    Column("before call", "the first call that was shown its outcome"),
    Column("why", "what made it due; failed, refused or skipped with the reason", number=False),
    Column("tokens before", "size of the prompt before, in tokens"),
    Column("tokens after", "size of the prompt after, in tokens"),
    Column("saved", "share of the tokens that it took out"),
    Column("messages", "messages shown before and after", spare=True),
    Column("cost", "dollars of the call that wrote the summary"),
    Column("sizes", "recorded in the log, derived from it, or estimated", number=False, spare=True),
)
_SESSION_HEADS = (
    Column("session", "its title, else what was asked first; the id when pointed at", number=False),
    Column("date", "when it began, UTC", number=False),
    Column("program", "the program that wrote the log", number=False, spare=True),
    Column("model", "models that answered", number=False, spare=True),
    Column("turns", "turns with at least one call"),
    Column("calls", "requests to a model", spare=True),
    Column("peak", "the largest prompt, in tokens"),
    Column("compactions", "compactions"),
    Column("cost", "dollars, compactions included"),
)


class SessionAndSummaryCost(NamedTuple):
    """The cost of a session: its total, and the part of compactions."""

    total: float | None
    summaries: float | None
    source: str | None

    @property
    def words(self) -> str:
        """`$3.29, of which compactions $0.04`."""
        if self.total is None:
            return MISSING
        total_text = "" if self.summaries else format_usd(self.total)
        return (
            total_text
            or f"{format_usd(self.total)}, of which compactions {format_usd(self.summaries)}"
        )


def get_session_spend(row: Any) -> SessionAndSummaryCost:
    """Return the cost of a session, from its row of the session frame."""
    return SessionAndSummaryCost(
        _float_or_none(row.cost_usd),
        _float_or_none(row.summaries_usd),
        text_or_empty(row.cost_source) or None,
    )


def describe_session_origin(session: Session) -> list[str]:
    """Return where a session comes from, in a few words each."""
    program = " ".join(filter(None, (session.product or session.format, session.version)))
    model = session.model or next((m.model for m in session.messages if m.model), None)
    replay = session.details.get("replay")
    rules = replay.get("rules") if isinstance(replay, dict) else None
    facts = [f"a replay under {rules}" if rules else None, program, model]
    facts += [get_project_name(session), get_start_day(session)]
    return [sanitize_line(t, 80) for t in facts if t]


def get_session_facts(session: Session, row: Any = None) -> list[tuple[str, str]]:
    """Return the chief figures of a session with their names.

    Args:
        session: any session.
        row: its row of the session frame, where it is known already.
    """
    if row is None:
        row = frame(session, per="session").iloc[0]
    bill = get_session_spend(row)
    cost = f"cost ({bill.source})" if bill.source else "cost"
    pairs = [
        ("calls", format_count(row.calls_n)),
        ("turns", format_count(row.turns_n)),
        ("compactions", format_count(row.compactions_n)),
        ("largest prompt", _peak_text(session, row)),
        _sum_or_logged("all prompts", row.prompt_tokens, row.logged_prompt_tokens),
        ("read from cache", format_share(row.cache_read_tokens, row.prompt_tokens)),
        _sum_or_logged("output", row.output_tokens, row.logged_output_tokens),
        (cost, bill.words),
        ("failed tools", f"{format_count(row.tool_errors_n)} of {format_count(row.tool_calls_n)}"),
    ]
    if session.origin is not None:
        was = get_session_spend(frame(session.origin, per="session").iloc[0]).total
        if was and bill.total is not None:
            pairs.insert(8, ("against the record", format_change(bill.total / was - 1)))
    return pairs


def _sum_or_logged(name: str, tokens: Any, logged: Any) -> tuple[str, str]:
    """Return a sum over the calls, or where none has usage the log's own total, named as such."""
    if has_value(logged):
        return f"{name}, by the log's total", format_tokens(logged)
    return name, format_tokens(tokens)


def _peak_text(session: Session, row: Any) -> str:
    if not has_value(row.peak_tokens):
        return MISSING
    last = session.calls[-1].message
    window = get_context_window(session, last.model or session.model, last).tokens
    full = (
        f", {format_percent(row.peak_tokens / window)} of {format_tokens(window)}" if window else ""
    )
    return format_tokens(row.peak_tokens) + full


def tabulate_turns(session: Session, rows: int | None = None) -> Table:
    """Return a table of turns; of more than `rows`, the most expensive ones in order of time.

    Args:
        session: recorded, live or a replay.
        rows: number of rows; the most expensive turns are taken, else those with most input
            tokens; None: all.

    Returns:
        The table; its caption says which turns were left out.
    """
    table = frame(session, per="turn")
    whole, caption = len(table), ""
    if rows is not None and whole > rows:
        by = "cost_usd" if table["cost_usd"].notna().any() else "turn_input_tokens"
        # Select the dearest turns, then restore their order in time.
        table = table.loc[table[by].fillna(0).nlargest(rows).sort_index().index]
        what = "dearest" if by == "cost_usd" else "largest"
        caption = f"The {rows} {what} of {whole:,} turns."
    get_first_prompts, compactions = get_first_prompts_by_turn(session), _count_compactions(session)
    row_cells = tuple(
        _turn_cells(r, get_first_prompts, compactions[r.turn, r.agent]) for r in table.itertuples()
    )
    return Table(_TURN_HEADS, row_cells, caption)


def _count_compactions(session: Session) -> Counter[tuple[Any, Any]]:
    """Count compactions by the turn and the agent of the call before them."""
    positions, calls = [c.position for c in session.calls], session.calls
    at = (i for i, entry in enumerate(session.path) if isinstance(entry, Edit))
    # The call before the edit; an edit before all calls counts with the first one.
    before = (calls[max(bisect_left(positions, i) - 1, 0)] for i in at) if calls else ()
    return Counter((call.turn, call.agent) for call in before)


def _turn_cells(r: Any, first_prompts: dict[int, str], compactions: int) -> tuple[Cell, ...]:
    return (
        Cell(format_count(r.turn), float(r.turn)),
        Cell(
            sanitize_line(first_prompts.get(r.turn, ""), 140),
            None,
            first_prompts.get(r.turn, ""),
        ),
        *(
            _count_box(v)
            for v in (r.calls_n, r.context_tokens, r.turn_input_tokens, r.turn_output_tokens)
        ),
        Cell(format_usd(r.cost_usd), _float_or_none(r.cost_usd), text_or_empty(r.cost_source)),
        Cell(format_count(compactions) if compactions else "", float(compactions)),
    )


def tabulate_compactions(session: Session, rows: int | None = None) -> Table:
    """Return a table of compactions, attempts without an effect and drops without a mark.

    Args:
        session: recorded, live or a replay.
        rows: number of rows, the first ones; None: all.

    Returns:
        The table; its caption counts each kind and quotes the last error.
    """
    table = frame(session, per="compaction")
    falls = int(table["kind"].eq("unmarked").sum())
    attempts = int(table["kind"].isin(ATTEMPT_OUTCOMES).sum())
    sentence = pluralize(len(table) - falls - attempts, "compaction")
    if attempts:
        sentence += f", {pluralize(attempts, 'attempt')} without an effect"
    if falls:
        sentence += f", {pluralize(falls, 'fall')} of the prompt without a mark"
    errors = table["error"].dropna()
    is_shortened = rows is not None and len(table) > rows
    caption = f"The first {rows} of {sentence}." if is_shortened else f"{sentence}."
    if errors.size:
        caption += f" {_describe_last_error(table.loc[errors.index[-1]])}"
    elif not (is_shortened or falls or attempts):
        caption = ""
    first_rows = table if rows is None else table.head(rows)
    return Table(
        _COMPACTION_HEADS, tuple(_compaction_cells(r) for r in first_rows.itertuples()), caption
    )


def _describe_last_error(row: Any) -> str:
    """Return a sentence on why the last compaction failed or was refused, and what followed."""
    why = sanitize_line(shorten_litellm_error(row.error), 240).rstrip(".")
    if row.kind in ATTEMPT_OUTCOMES:
        verb = "failed" if row.kind == "failed" else f"was {row.kind}"
        return f"The last {verb} ({why}): the history is as it was."
    return f"The last summary failed ({why}): a note stands in the place of what it took."


def _compaction_cells(r: Any) -> tuple[Cell, ...]:
    why = sanitize_line(text_or_empty(r.reason) or text_or_empty(r.trigger) or "not said", 160)
    more = text_or_empty(r.method)
    failed = shorten_litellm_error(text_or_empty(r.error))
    if r.kind in ATTEMPT_OUTCOMES:
        why, more = f"{r.kind}: {sanitize_line(failed, 160)}", f"{why}; the history is as it was"
    elif failed:
        why, more = (
            f"failed: {sanitize_line(failed, 160)}",
            f"{more}: {why}; the summary failed: {failed}",
        )
    return (
        _count_box(r.compaction),
        _count_box(r.call),
        Cell(why, None, more),
        _tokens_box(r.tokens_before),
        _tokens_box(r.tokens_after),
        Cell(format_percent(r.token_savings), _float_or_none(r.token_savings)),
        Cell(
            f"{format_count(r.messages_before)} → {format_count(r.messages_after)}",
            _float_or_none(r.messages_before),
        ),
        Cell(format_usd(r.cost_usd), _float_or_none(r.cost_usd), text_or_empty(r.cost_source)),
        Cell(text_or_empty(r.tokens_source)),
    )


def tabulate_sessions(sessions: Sequence[Session], rows: int, names: Sequence[str] = ()) -> Table:
    """Return a table with one row a session, the first `rows` of them.

    Args:
        sessions: any sessions.
        rows: number of rows to show.
        names: their names, where they are known; else their titles.
    """
    listed = list(sessions[:rows])
    called = list(names[:rows]) or make_unique_titles(listed)
    rows_ = frame(listed, per="session").itertuples()
    row_cells = tuple(
        _session_cells(name, s, row) for name, s, row in zip(called, listed, rows_, strict=True)
    )
    more = len(sessions) - len(listed)
    return Table(
        _SESSION_HEADS, row_cells, legend=f"and {pluralize(more, 'more session')}" if more else ""
    )


def _session_cells(name: str, session: Session, r: Any) -> tuple[Cell, ...]:
    bill = get_session_spend(r)
    at = f" · {session.path_}" if session.path_ else ""
    project = f" in {get_project_name(session)}" if session.cwd else ""
    return (
        Cell(
            name,
            None,
            sanitize_line(f"{get_title(session, 200)}{project} · id {session.id}{at}", 400),
        ),
        Cell(get_start_day(session) or MISSING, session.started),
        Cell(sanitize_line(session.product or session.format, 40)),
        Cell(
            sanitize_line(text_or_empty(r.model).split(", ")[0], 40), None, text_or_empty(r.model)
        ),
        *(_count_box(v) for v in (r.turns_n, r.calls_n)),
        _tokens_box(r.peak_tokens),
        _count_box(r.compactions_n),
        Cell(format_usd(bill.total), bill.total, bill.words),
    )


def _count_box(value: Any) -> Cell:
    return Cell(format_count(value), _float_or_none(value))


def _tokens_box(value: Any) -> Cell:
    return Cell(format_tokens(value), _float_or_none(value), f"{format_count(value)} tokens")


def _float_or_none(value: Any) -> float | None:
    return float(value) if has_value(value) else None


_FEW, _MANY, _LISTED = 10, 200, 100
"""Rows of turns and sessions in a terminal; turns and sessions in a page."""
_HIGH = 420
_BOX = "display:flex;flex-wrap:wrap;gap:6px 26px;margin:8px 0"
MimeBundle = dict[str, str]


def render_session_summary(session: Session) -> MimeBundle:
    """Return the display of a session: its head, its turns, its compactions."""
    row = frame(session, per="session").iloc[0]
    facts = get_session_facts(session, row)
    return {"text/plain": _session_text(session, facts), "text/html": _session_html(session, facts)}


def render_session_list_summary(sessions: Sessions) -> MimeBundle:
    """Return the display of a list of sessions: a row each, and what could not be read."""
    head, n = pluralize(len(sessions), "session"), len(sessions.failures)
    if n:
        head += f", {pluralize(n, 'file')} could not be read: .failed says which and why"
    few, many = tabulate_sessions(sessions, _FEW), tabulate_sessions(sessions, _LISTED)
    lines = [head, *filter(None, (few.to_text(), few.legend))] if sessions else [head]
    html = (
        f'<div class="{NO_MATHJAX}"'
        f' style="{TEXT_COLOR_CSS}"><strong>{escape_html(head)}</strong>'
        f"{many.to_html(max_height_px=_HIGH, is_sortable=False)}</div>"
    )
    return {"text/plain": "\n".join(lines), "text/html": html}


def _session_text(session: Session, facts: list[tuple[str, str]]) -> str:
    out = [cut_and_pad_to_width(get_title(session, TERMINAL_COLUMNS), TERMINAL_COLUMNS).rstrip()]
    out += _wrap_html(" · ".join(describe_session_origin(session)))
    out += _wrap_html(" · ".join(f"{name} {value}" for name, value in dict(facts).items()))
    out += [
        row for note in session.notes for row in _wrap_html(f"Note: {sanitize_line(note, 400)}")
    ]
    compactions, turns = tabulate_compactions(session, _FEW), tabulate_turns(session, _FEW)
    for table in (turns, compactions):
        if table.rows:
            out += ["", *([table.caption] if table.caption else []), table.to_text()]
    return "\n".join(out)


def _wrap_html(text: str) -> list[str]:
    return textwrap.wrap(text, TERMINAL_COLUMNS, break_long_words=True, break_on_hyphens=False)


def _session_html(session: Session, facts: list[tuple[str, str]]) -> str:
    soft = " · ".join(escape_html(word, 80) for word in describe_session_origin(session))
    figures = "".join(
        f'<div><div style="{MUTED_COLOR_CSS};font-size:85%">{escape_html(name)}</div>'
        f'<div style="font-size:115%">{escape_html(value)}</div></div>'
        for name, value in facts
    )
    turns, compactions = tabulate_turns(session, _MANY), tabulate_compactions(session, _MANY)
    folded = compactions.to_html(max_height_px=_HIGH, is_sortable=False)
    folded = folded and f"<details><summary>compactions</summary>{folded}</details>"
    hover = f"id {sanitize_line(session.id, 120)}" + (
        f" · {sanitize_line(session.path_, 200)}" if session.path_ else ""
    )
    return (
        f'<div class="ctxkit-session {NO_MATHJAX}" style="{TEXT_COLOR_CSS}">'
        '<strong style="font-size:125%"'
        f' title="{escape_html(hover, 400)}">{escape_html(get_title(session, 160))}</strong>'
        f'<div style="{MUTED_COLOR_CSS}">{soft}</div><div '
        f'style="{_BOX}">{figures}</div>{render_notes_html(session.notes)}'
        f"{turns.to_html(max_height_px=_HIGH, is_sortable=False)}{folded}</div>"
    )


@register_view_values("export and the display of a session")
def _read_figures(session: Session) -> dict[str, Any]:
    row = frame(session, per="session").iloc[0]
    spent = get_session_spend(row)
    return {
        "cost_usd": spent.total,
        "summaries_usd": spent.summaries,
        "cost_source": spent.source,
        "peak_tokens": row.peak_tokens,
        **{name: row[name] for name in ("calls_n", "turns_n", "compactions_n", "tool_errors_n")},
    }
