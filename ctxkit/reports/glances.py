"""What is said first of a session: figures, turns, compactions; of many, one row each."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.display.amounts import (
    MISSING,
    change,
    counted,
    dollars,
    known,
    number,
    percent,
    share,
    text,
    tokens,
)
from ctxkit.display.markup import line
from ctxkit.display.sheets import Box, Heading, Tabular
from ctxkit.frames import frame
from ctxkit.messages import Edit
from ctxkit.metrics.accounts import accounts
from ctxkit.sizes.windows import window_of
from ctxkit.titles import day_of, project_of, questions, title_of, titles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session import Session

_TURNS = (
    Heading("turn", "number of the turn, from 0"),
    Heading("asked", "what the user asked", number=False),
    Heading("calls", "requests to a model, failed ones included"),
    Heading("largest prompt", "the largest prompt of the turn, in tokens", spare=True),
    Heading("input", "prompts of all its calls together, in tokens", spare=True),
    Heading("output", "tokens of all its replies", spare=True),
    Heading("cost", "dollars of its calls, without summaries"),
    Heading("compactions", "compactions in the turn, or after it and before the next"),
)
_CUTS = (
    Heading("compaction", "number of the compaction, from 0"),
    Heading("before call", "the first call that was shown its outcome"),
    Heading("why", "what made it due; failed, where its summary did", number=False),
    Heading("tokens before", "size of the prompt before, in tokens"),
    Heading("tokens after", "size of the prompt after, in tokens"),
    Heading("saved", "share of the tokens that it took out"),
    Heading("messages", "messages shown before and after", spare=True),
    Heading("cost", "dollars of the call that wrote the summary"),
    Heading(
        "sizes", "recorded in the log, derived from it, or estimated", number=False, spare=True
    ),
)
_SESSIONS = (
    Heading(
        "session", "its title, else what was asked first; the id when pointed at", number=False
    ),
    Heading("date", "when it began, UTC", number=False),
    Heading("program", "the program that wrote the log", number=False, spare=True),
    Heading("model", "models that answered", number=False, spare=True),
    Heading("turns", "turns with at least one call"),
    Heading("calls", "requests to a model", spare=True),
    Heading("peak", "the largest prompt, in tokens"),
    Heading("cuts", "compactions"),
    Heading("cost", "dollars, compactions included"),
)


class SessionSpend(NamedTuple):
    """What a session cost: one total, and what of it went to compactions."""

    total: float | None
    summaries: float | None
    source: str | None

    @property
    def words(self) -> str:
        """`$3.29, of which compactions $0.04`."""
        if self.total is None:
            return MISSING
        told = "" if self.summaries else dollars(self.total)
        return told or f"{dollars(self.total)}, of which compactions {dollars(self.summaries)}"


def spent(session: Session, row: Any) -> SessionSpend:
    """Return what a session cost; of a record by its row of the session frame."""
    if session.origin is not None:
        told = accounts(session)
        whole = None if told.unpriced_n or told.unpriced_summaries_n else told.total_usd
        return SessionSpend(whole, told.summaries_usd, told.source)
    calls, summaries = (float(v) if known(v) else None for v in (row.cost_usd, row.summaries_usd))
    if calls is None:
        return SessionSpend(None, summaries, None)
    return SessionSpend(calls + (summaries or 0.0), summaries, text(row.cost_source) or None)


def origin(session: Session) -> list[str]:
    """Return where a session comes from, in a few words each."""
    program = " ".join(filter(None, (session.product or session.format, session.version)))
    model = session.model or next((m.model for m in session.messages if m.model), None)
    replay = session.details.get("replay")
    rules = replay.get("rules") if isinstance(replay, dict) else None
    told = [f"a replay under {rules}" if rules else None, program, model]
    told += [project_of(session), day_of(session)]
    return [line(t, 80) for t in told if t]


def facts_of(session: Session, row: Any = None) -> list[tuple[str, str]]:
    """Return the chief figures of a session with their names.

    Args:
        session: any session.
        row: its row of the session frame, where it is known already.
    """
    if row is None:
        row = frame(session, per="session").iloc[0]
    bill = spent(session, row)
    cost = f"cost ({bill.source})" if bill.source else "cost"
    pairs = [
        ("calls", number(row.calls_n)),
        ("turns", number(row.turns_n)),
        ("compactions", number(row.compactions_n)),
        ("largest prompt", _peak(session, row)),
        ("all prompts", tokens(row.prompt_tokens)),
        ("read from cache", share(row.cached_tokens, row.prompt_tokens)),
        ("output", tokens(row.output_tokens)),
        (cost, bill.words),
        ("failed tools", f"{number(row.tool_errors_n)} of {number(row.tool_calls_n)}"),
    ]
    if session.origin is not None:
        was = spent(session.origin, frame(session.origin, per="session").iloc[0]).total
        if was and bill.total is not None:
            pairs.insert(8, ("against the record", change(bill.total / was - 1)))
    return pairs


def _peak(session: Session, row: Any) -> str:
    if not known(row.peak_tokens):
        return MISSING
    last = session.calls[-1].message if session.calls else None
    if last is None:
        return tokens(row.peak_tokens)
    window = window_of(session, last.model or session.model, last).tokens
    full = f", {percent(row.peak_tokens / window)} of {tokens(window)}" if window else ""
    return tokens(row.peak_tokens) + full


def turns_of(session: Session, rows: int | None = None) -> Tabular:
    """Return a table of turns; of more than `rows` the dearest, in the order in which they came."""
    table = frame(session, per="turn")
    if session.origin is not None:  # what it sent is known, its cache follows the record's
        table["cost_usd"] = _by_turn(session, table)
    whole, caption = len(table), ""
    if rows is not None and whole > rows:
        by = "cost_usd" if table["cost_usd"].notna().any() else "turn_input_tokens"
        table = table.loc[table[by].fillna(0).nlargest(rows).sort_index().index]
        what = "dearest" if by == "cost_usd" else "largest"
        caption = f"The {rows} {what} of {whole:,} turns."
    asked, cuts = questions(session), _cuts(session)
    made = tuple(_turn(r, asked, cuts[r.turn, r.agent]) for r in table.itertuples())
    return Tabular(_TURNS, made, caption)


def _cuts(session: Session) -> Counter[tuple[Any, Any]]:
    """Count compactions by the turn and the agent of the call before them."""
    positions, calls = [c.position for c in session.calls], session.calls
    at = (i for i, entry in enumerate(session.path) if isinstance(entry, Edit))
    before = (calls[max(bisect_left(positions, i) - 1, 0)] for i in at) if calls else ()
    return Counter((call.turn, call.agent) for call in before)


def _by_turn(session: Session, table: Any) -> list[float | None]:
    usd = {c.call: c.usd for c in accounts(session).charges}
    sums: dict[tuple[int, str], list[float | None]] = {}
    for call in session.calls:
        if call.index in usd:
            sums.setdefault((call.turn, call.agent), []).append(usd[call.index])
    each = (sums.get(key, [None]) for key in zip(table["turn"], table["agent"], strict=True))
    return [None if None in costs else sum(c for c in costs if c is not None) for costs in each]


def _turn(r: Any, asked: dict[int, str], cuts: int) -> tuple[Box, ...]:
    return (
        Box(number(r.turn), float(r.turn)),
        Box(line(asked.get(r.turn, ""), 140), None, asked.get(r.turn, "")),
        *(
            _figure(v)
            for v in (r.calls_n, r.context_tokens, r.turn_input_tokens, r.turn_output_tokens)
        ),
        Box(dollars(r.cost_usd), _value(r.cost_usd), text(r.cost_source)),
        Box(number(cuts) if cuts else "", float(cuts)),
    )


def cuts_of(session: Session, rows: int | None = None) -> Tabular:
    """Return a table of compactions and of falls without a mark, the first `rows` of them."""
    table = frame(session, per="compaction")
    falls = int(table["kind"].eq("unmarked").sum())
    told = counted(len(table) - falls, "compaction")
    if falls:
        told += f", {counted(falls, 'fall')} of the prompt without a mark"
    cut = rows is not None and len(table) > rows
    caption = f"The first {rows} of {told}." if cut else f"{told}." if falls else ""
    shown = table if rows is None else table.head(rows)
    return Tabular(_CUTS, tuple(_cut(r) for r in shown.itertuples()), caption)


def _cut(r: Any) -> tuple[Box, ...]:
    why = line(text(r.reason) or text(r.trigger) or "not said", 160)
    more = text(r.method)
    if failed := text(r.error):
        why, more = f"failed: {line(failed, 160)}", f"{more}: {why}; the summary failed: {failed}"
    return (
        _figure(r.compaction),
        _figure(r.call),
        Box(why, None, more),
        _size(r.tokens_before),
        _size(r.tokens_after),
        Box(percent(r.token_savings), _value(r.token_savings)),
        Box(f"{number(r.messages_before)} → {number(r.messages_after)}", _value(r.messages_before)),
        Box(dollars(r.cost_usd), _value(r.cost_usd), text(r.cost_source)),
        Box(text(r.tokens_source)),
    )


def sessions_of(sessions: Sequence[Session], rows: int = 10, names: Sequence[str] = ()) -> Tabular:
    """Return a table with one row a session, the first `rows` of them.

    Args:
        sessions: any sessions.
        rows: how many are shown.
        names: what they are called, where that is known; else their titles.
    """
    shown = list(sessions[:rows])
    called = list(names[:rows]) or titles(shown)
    rows_ = frame(shown, per="session").itertuples()
    made = tuple(_session(name, s, row) for name, s, row in zip(called, shown, rows_, strict=True))
    more = len(sessions) - len(shown)
    return Tabular(_SESSIONS, made, legend=f"and {counted(more, 'more session')}" if more else "")


def _session(name: str, session: Session, r: Any) -> tuple[Box, ...]:
    bill, at = spent(session, r), session.path_ or ""
    project = f" in {project_of(session)}" if session.cwd else ""
    return (
        Box(name, None, line(f"{title_of(session, 200)}{project} · id {session.id} · {at}", 400)),
        Box(day_of(session) or MISSING, session.started),
        Box(line(session.product or session.format, 40)),
        Box(line(text(r.model).split(", ")[0], 40), None, text(r.model)),
        *(_figure(v) for v in (r.turns_n, r.calls_n)),
        _size(r.peak_tokens),
        _figure(r.compactions_n),
        Box(dollars(bill.total), bill.total, bill.words),
    )


def _figure(value: Any) -> Box:
    return Box(number(value), _value(value))


def _size(value: Any) -> Box:
    return Box(tokens(value), _value(value), f"{number(value)} tokens")


def _value(value: Any) -> float | None:
    return float(value) if known(value) else None
