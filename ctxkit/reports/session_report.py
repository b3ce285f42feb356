"""The report of one session: first what its log cannot say, then what filled the context and what
was done about it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ctxkit.display.amounts import known
from ctxkit.display.markup import escape, line
from ctxkit.frames import frame
from ctxkit.frames.recorded_cuts import cuts
from ctxkit.plots import composition, growth
from ctxkit.reports.assumptions import of_session
from ctxkit.reports.contributors import contributors
from ctxkit.reports.glances import cuts_of, facts_of, origin, turns_of
from ctxkit.reports.page import PageSection, chart, facts, items, page, table
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from ctxkit.display.sheets import Tabular
    from ctxkit.session import Session

_SAYS = (
    (
        "Sizes of prompts are as the provider billed them.",
        "The log has no usage: sizes of prompts are estimated from the text.",
    ),
    (
        "Cached and uncached input are told apart.",
        (
            "The log does not tell cached from uncached input, so what the cache saved cannot be"
            " shown."
        ),
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
    title = title_of(session, 160)
    sections = [
        PageSection("What this report rests on", items(sources(session, row))),
        PageSection(
            "How the context grew", chart(growth(session), "growth") if session.calls else ""
        ),
        PageSection(
            "What filled it", chart(composition(session), "composition") if session.calls else ""
        ),
        PageSection("Largest contributors at the last call", contributors(session)),
        PageSection("Compactions", _compactions(session)),
        PageSection("Turns", _table(turns_of(session, _ROWS))),
    ]
    return page(title, _head(session, row), sections, plotly=bool(session.calls))


def _head(session: Session, row: Any) -> str:
    told = [*origin(session), f"session {session.id}", f"format {session.format}"]
    if session.path_:
        told.append(f"read from {session.path_.replace(chr(92), '/').rsplit('/', 1)[-1]}")
    made = " · ".join(escape(word, 80) for word in (*told, made_by()))
    return f'<p class="soft">{made}</p>{facts(facts_of(session, row))}'


def made_by() -> str:
    """Return who made a report."""
    return f"ctxkit {version('ctxkit')}"


def sources(session: Session, row: Any) -> list[str]:
    """Return in sentences what the log can and cannot say, and how well its cache was foretold."""
    able = [bool(row[name]) for name in ("has_usage", "has_cache", "has_time", "has_text")]
    lines = [*of_session(session)] if session.calls else []
    lines += [no for can, (_, no) in zip(able, _SAYS, strict=True) if not can]
    lines += [yes for can, (yes, _) in zip(able, _SAYS, strict=True) if can]
    if not known(row.cost_usd):
        lines.append(
            "A cost is missing: at least one call has no usage, or its model no known price."
        )
    elif row.cost_source == "recorded":
        lines.append("Costs are as the log recorded them.")
    else:
        lines.append("Costs are derived from usage and a table of prices.")
    lines.append(
        "System prompts and tool schemas that a log leaves out are a remainder: what was billed"
        " less what is seen."
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
    made = cuts_of(session, _ROWS)
    if not made.rows:
        return "<p>None: the log holds no compaction.</p>"
    summaries = "".join(
        f"<details><summary>What compaction {i} wrote ({len(m.text):,} characters)</summary>"
        f'<pre tabindex="0">{escape(m.text, _SUMMARY_CHARS)}</pre></details>'
        for i, _, edits in cuts(session)[:_ROWS]
        for edit in edits
        for m in edit.inserted
        if edit.kind == "summarised" and m.text
    )
    return _table(made) + summaries


def _table(made: Tabular) -> str:
    numbers = frozenset(i for i, h in enumerate(made.heads) if h.number)
    return table([h.name for h in made.heads], made.plain(), numbers=numbers, caption=made.caption)
