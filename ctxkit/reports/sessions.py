"""The report of one session: first what its log cannot say, then what filled the context and what was done about it."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ctxkit.frames import frame
from ctxkit.frames.cuts import cuts
from ctxkit.markup import escape, line
from ctxkit.messages import Message
from ctxkit.plots import composition, growth
from ctxkit.reports.assumptions import of_session
from ctxkit.reports.contributors import contributors
from ctxkit.reports.figures import dollars, known, number, percent, share, text, tokens
from ctxkit.reports.page import Section, chart, facts, items, page, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.session import Session

_SAYS = (
    (
        "Sizes of prompts are as the provider billed them.",
        "The log has no usage: sizes of prompts are estimated from the text.",
    ),
    (
        "Cached and uncached input are told apart.",
        "The log does not tell cached from uncached input, so what the cache saved cannot be shown.",
    ),
    (
        "Calls carry times.",
        "The log has no times: pauses, and what they cost in the cache, cannot be seen.",
    ),
    (
        "The messages carry their text.",
        "The log has no text: what filled the context cannot be read.",
    ),
)
"""What can be said with usage, cache, times and text, and what cannot be said without."""
_ROWS = 200
_SUMMARY_CHARS = 20_000


def session_page(session: Session) -> str:
    """Return the report as one HTML file."""
    row = frame(session, per="session").iloc[0]
    title = line(session.title or session.id, 160)
    sections = [
        Section("What this report rests on", items(sources(session, row))),
        Section("How the context grew", chart(growth(session), "growth") if session.calls else ""),
        Section("What filled it", chart(composition(session), "composition") if session.calls else ""),
        Section("Largest contributors at the last call", contributors(session)),
        Section("Compactions", _compactions(session)),
        Section("Turns", _turns(session)),
    ]
    return page(title, _head(session, row), sections, plotly=bool(session.calls))


def _head(session: Session, row: Any) -> str:
    made = " · ".join(escape(word, 80) for word in _origin(session))
    pairs = [
        ("calls", number(row.calls_n)),
        ("turns", number(row.turns_n)),
        ("compactions", number(row.compactions_n)),
        ("largest prompt", tokens(row.peak_tokens)),
        ("all prompts", tokens(row.prompt_tokens)),
        ("read from cache", share(row.cached_tokens, row.prompt_tokens)),
        ("output", tokens(row.output_tokens)),
        (f"cost ({row.cost_source})" if known(row.cost_source) else "cost", dollars(row.cost_usd)),
        ("failed tools", f"{number(row.tool_errors_n)} of {number(row.tool_calls_n)}"),
    ]
    return f'<p class="soft">{made}</p>{facts(pairs)}'


def _origin(session: Session) -> Iterator[str]:
    yield f"session {session.id}"
    yield f"format {session.format}"
    if session.product:
        yield " ".join(filter(None, (session.product, session.version)))
    if session.model:
        yield session.model
    if session.path_:
        yield f"read from {session.path_.replace(chr(92), '/').rsplit('/', 1)[-1]}"
    yield made_by()


def made_by() -> str:
    """Return who made a report."""
    return f"ctxkit {version('ctxkit')}"


def sources(session: Session, row: Any) -> list[str]:
    """Return in sentences what the log can and cannot say, and how well its cache was foretold."""
    able = [bool(row[name]) for name in ("has_usage", "has_cache", "has_time", "has_text")]
    lines = [*of_session(session)] if session.calls else []
    lines += [no for can, (_, no) in zip(able, _SAYS, strict=True) if not can]
    lines += [yes for can, (yes, _) in zip(able, _SAYS, strict=True) if can]
    if known(row.cost_usd):
        recorded = row.cost_source == "recorded"
        lines.append(
            "Costs are as the log recorded them." if recorded else "Costs are derived from usage and a table of prices."
        )
    else:
        lines.append("A cost is missing: at least one call has no usage, or its model no known price.")
    lines.append(
        "System prompts and tool schemas that a log leaves out are a remainder: what was billed less what is seen."
    )
    if session.skipped:
        names = ", ".join(f"{line(k, 60)} ({n:,})" for k, n in sorted(session.skipped.items())[:30])
        lines.append(f"The reader passed over records that hold no message: {names}.")
    if session.faults:
        shown = "; ".join(f"line {f.line}: {line(f.why, 80)}" for f in session.faults[:5])
        n = len(session.faults)
        lines.append(f"{n:,} {'place' if n == 1 else 'places'} could not be read ({shown}).")
    return lines


def _compactions(session: Session) -> str:
    rows = frame(session, per="compaction")
    if rows.empty:
        return "<p>None: the log holds no compaction.</p>"
    head = ("compaction", "before call", "why", "tokens before", "tokens after", "saved", "messages", "cost", "sizes")
    cells = [
        (
            number(r.compaction), number(r.call), line(text(r.reason) or text(r.trigger) or "not said", 160),
            number(r.tokens_before), number(r.tokens_after), percent(r.token_savings),
            f"{number(r.messages_before)} → {number(r.messages_after)}", dollars(r.cost_usd), text(r.tokens_source),
        )
        for r in rows.head(_ROWS).itertuples()
    ]  # fmt: skip
    summaries = "".join(
        f"<details><summary>What compaction {i} wrote ({len(m.text):,} characters)</summary>"
        f'<pre tabindex="0">{escape(m.text, _SUMMARY_CHARS)}</pre></details>'
        for i, _, edits in cuts(session)[:_ROWS]
        for edit in edits
        for m in edit.inserted
        if edit.kind == "summarised" and m.text
    )
    return table(head, cells, numbers=frozenset({0, 1, 3, 4, 5, 6, 7}), caption=_bounded(len(rows))) + summaries


def _turns(session: Session) -> str:
    rows = frame(session, per="turn")
    head = ("turn", "asked", "calls", "largest prompt", "input", "output", "cost", "compaction")
    asked = _inputs(session)
    cells = [_turn(r, asked) for r in rows.head(_ROWS).itertuples()]
    return table(head, cells, numbers=frozenset({0, 2, 3, 4, 5, 6}), caption=_bounded(len(rows)))


def _turn(r: Any, asked: dict[int, str]) -> tuple[str, ...]:
    sizes = (r.context_tokens, r.turn_input_tokens, r.turn_output_tokens)
    compacted = "yes" if r.compaction_occurred is True else ""
    first = (number(r.turn), asked.get(r.turn, ""), number(r.calls_n))
    return (*first, *map(number, sizes), dollars(r.cost_usd), compacted)


def _inputs(session: Session) -> dict[int, str]:
    out: dict[int, str] = {}
    for entry, turn in zip(session.path, session.turns, strict=True):
        if isinstance(entry, Message) and entry.role == "user" and turn not in out:
            out[turn] = line(entry.text, 140)
    return out


def _bounded(n: int) -> str:
    return f"The first {_ROWS} of {n:,}." if n > _ROWS else ""
