"""The HTML report of one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import escape_html, has_value, sanitize_line
from ctxkit._internal.installed_distribution import get_version
from ctxkit.metrics.context_report import report
from ctxkit.metrics.frames import frame
from ctxkit.metrics.prompt_contents import get_prompt_contents
from ctxkit.plots import composition, growth
from ctxkit.session.compaction_groups import group_edits
from ctxkit.session.messages import Message, Text, Thinking, ToolCall
from ctxkit.session.titles import get_title
from ctxkit.widgets.reports.assumptions import describe_session_basis
from ctxkit.widgets.reports.html_page import (
    PageSection,
    render_chart,
    render_facts,
    render_list,
    render_page,
    render_table,
)
from ctxkit.widgets.reports.session_summary import (
    describe_origin,
    get_session_facts,
    tabulate_compactions,
    tabulate_turns,
)

if TYPE_CHECKING:
    from ctxkit._internal.tables import Table
    from ctxkit.metrics.context_report import ContextReport, Contributor
    from ctxkit.session.session import Session


_ABILITIES = (
    (
        "Sizes of prompts are as the provider billed them.",
        "The log has no usage: sizes of prompts are estimated from the text.",
    ),
    (
        "Cached and uncached input are recorded apart.",
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
"""Sentences on what a log with usage, cache, times and text allows, and one without them."""
_ROWS = 200
_SUMMARY_CHARS = 20_000


def render_session_report(session: Session) -> str:
    """Return the report as one HTML file.

    Args:
        session: recorded or a replay, also without calls.

    Returns:
        A document that needs no network.
    """
    row = frame(session, per="session").iloc[0]
    title = get_title(session, 160)
    sections = [
        PageSection("What this report rests on", render_list(describe_sources(session, row))),
        PageSection(
            "How the context grew", render_chart(growth(session), "growth") if session.calls else ""
        ),
        PageSection(
            "What filled it",
            render_chart(composition(session), "composition") if session.calls else "",
        ),
        PageSection("Largest contributors at the last call", render_contributors(session)),
        PageSection("Compactions", _compactions_html(session)),
        PageSection("Turns", _tabular_html(tabulate_turns(session, _ROWS))),
    ]
    return render_page(title, _report_head(session, row), sections, plotly=bool(session.calls))


def _report_head(session: Session, row: Any) -> str:
    facts = [*describe_origin(session), f"session {session.id}", f"format {session.format}"]
    if session.path_:
        facts.append(f"read from {session.path_.replace(chr(92), '/').rsplit('/', 1)[-1]}")
    facts_html = " · ".join(escape_html(word, 80) for word in (*facts, get_generator_name()))
    return f'<p class="soft">{facts_html}</p>{render_facts(get_session_facts(session, row))}'


def get_generator_name() -> str:
    """Return the name and version of the program that made a report."""
    return f"ctxkit {get_version()}"


def describe_sources(session: Session, row: Any) -> list[str]:
    """Return in sentences what the log can and cannot say, and how well its cache was predicted.

    Args:
        session: recorded or a replay.
        row: its row of `ck.frame(per="session")`.

    Returns:
        Sentences on the accuracy, then on each kind of fact that the log lacks.
    """
    able = [bool(row[name]) for name in ("has_usage", "has_cache", "has_time", "has_text")]
    lines = [*describe_session_basis(session)] if session.calls else []
    lines += [no for can, (_, no) in zip(able, _ABILITIES, strict=True) if not can]
    lines += [yes for can, (yes, _) in zip(able, _ABILITIES, strict=True) if can]
    if not has_value(row.cost_usd):
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
        names = ", ".join(
            f"{sanitize_line(k, 60)} ({n:,})" for k, n in sorted(session.skipped.items())[:30]
        )
        lines.append(f"The reader passed over records that hold no message: {names}.")
    if session.faults:
        faults = "; ".join(f"line {f.line}: {sanitize_line(f.why, 80)}" for f in session.faults[:5])
        n = len(session.faults)
        lines.append(f"{n:,} {'place' if n == 1 else 'places'} could not be read ({faults}).")
    return lines


def _compactions_html(session: Session) -> str:
    table = tabulate_compactions(session, _ROWS)
    if not table.rows:
        return "<p>None: the log holds no compaction.</p>"
    summaries = "".join(
        f"<details><summary>What compaction {i} wrote ({len(m.text):,} characters)</summary>"
        f'<pre tabindex="0">{escape_html(m.text, _SUMMARY_CHARS)}</pre></details>'
        for i, _, edits in group_edits(session)[:_ROWS]
        for edit in edits
        for m in edit.inserted
        if edit.kind == "summarised" and m.text
    )
    return _tabular_html(table) + summaries


def _tabular_html(table: Table) -> str:
    numbers = frozenset(i for i, h in enumerate(table.heads) if h.number)
    return render_table(
        [h.name for h in table.heads], table.plain(), numbers=numbers, caption=table.caption
    )


_CHARS = 6_000


def render_contributors(session: Session) -> str:
    """Return the ten largest messages as HTML: size, origin, beginning; folded away, their text up
    to a bound.
    """
    context = report(session)
    if not context.contributors:
        return ""
    messages = {
        s.message.id: s.message for s in get_prompt_contents(session, context.call).messages
    }
    head = f"<p>{escape_html(_prompt_sentence(context))}</p>"
    return head + "".join(
        _contributor_html(c, messages[c.id], context.prompt_tokens) for c in context.contributors
    )


def _contributor_html(contributor: Contributor, message: Message, whole: int) -> str:
    share = f" ({contributor.tokens / whole:.1%})" if whole else ""
    failed = ", failed" if message.is_error else ""
    was = contributor.raw_tokens
    changed = f" (of {was:,}, {contributor.changed_by})" if was > contributor.tokens else ""
    title = (
        f"{contributor.tokens:,} tokens{changed}{share} · "
        f"{sanitize_line(contributor.name, 100)}{failed}"
    )
    text = _message_text(message)
    more = f"\n… the first {_CHARS:,} of {len(text):,} characters" if len(text) > _CHARS else ""
    body = f'<pre tabindex="0">{escape_html(text[:_CHARS] + more)}</pre>'
    return f"<details><summary>{escape_html(title, 130)}</summary>{body}</details>"


def _message_text(message: Message) -> str:
    blocks = [p.text for p in message.parts if isinstance(p, (Text, Thinking))]
    blocks += [
        f"{p.name} {p.arguments if p.raw is None else p.raw}"
        for p in message.parts
        if isinstance(p, ToolCall)
    ]
    return "\n\n".join(blocks)


def _prompt_sentence(context: ContextReport) -> str:
    window = "of an unknown window"
    if context.full is not None:
        window = f"{context.full:.0%} of a window of {context.limit:,} ({context.limit_source})"
    return f"The prompt had {context.prompt_tokens:,} tokens ({context.prompt_source}), {window}."
