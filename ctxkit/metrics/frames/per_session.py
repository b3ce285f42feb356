"""The session frame: one row per session with its totals and what its log leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.metrics.cost.call_and_summary_charges import get_output_source, pick_weakest_source
from ctxkit.metrics.cost.session_bill import bill_session, get_billed_usages
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.metrics.frames.per_call import count_tool_calls
from ctxkit.metrics.means_and_prediction_intervals import sum_counts_if_complete
from ctxkit.session.compactions_and_prunings import count_compactions
from ctxkit.session.messages import EVENT_KINDS, MISSING_START_KIND, Attachment
from ctxkit.session.titles import get_project_name
from ctxkit.tokens.message_sizes_from_recorded_prompts import find_prompt_drops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.cost.call_and_summary_charges import SessionBill
    from ctxkit.session.messages import Message, Usage
    from ctxkit.session.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("title", TEXT, "", "its title, where it has one"),
    FrameColumn(
        "project",
        TEXT,
        "",
        "the last part of the folder that the agent worked in, where the log names it",
    ),
    FrameColumn("format", TEXT, "", "the reader that made it, or live, or replay"),
    FrameColumn("program", TEXT, "", "the program that wrote the log"),
    FrameColumn("version", TEXT, "", "the version of that program"),
    FrameColumn("model", TEXT, "", "models that answered, joined by commas"),
    FrameColumn("agents", TEXT, "", "agents that speak in it, joined by commas"),
    FrameColumn("parent", TEXT, "", "the session that this one is a subagent or a continuation of"),
    FrameColumn("ts", TIME, "UTC", "when it began"),
    FrameColumn("seconds", FLOAT, "seconds", "from the first to the last message that has a time"),
    FrameColumn(
        "messages_n",
        INT,
        "",
        "messages that stand, each tool result one of its own; no events, no lost head",
    ),
    FrameColumn("calls_n", INT, "", "requests to a model, failed ones included"),
    FrameColumn("turns_n", INT, "", "turns with at least one call"),
    FrameColumn(
        "tool_calls_n", INT, "", "tool calls in the replies, those of aborted replies included"
    ),
    FrameColumn(
        "tool_errors_n",
        INT,
        "",
        "results that report failure, by the log's own mark or a command's exit code; missing where"
        " neither is there",
    ),
    FrameColumn(
        "failed_calls_n", INT, "", "calls that failed; an API error written as a reply is an event"
    ),
    FrameColumn(
        "errors_n",
        INT,
        "",
        "`tool_errors_n` and `failed_calls_n` together; missing where the former is",
    ),
    FrameColumn(
        "events_n", INT, "", "retries, and replies that the program made up: no calls of a model"
    ),
    FrameColumn("images_n", INT, "", "images in the messages"),
    FrameColumn(
        "compactions_n",
        INT,
        "",
        "compactions that stand; missing where a log would not tell of one",
    ),
    FrameColumn(
        "unmarked_drops_n",
        INT,
        "",
        "falls of the prompt that no mark explains; missing without usage",
    ),
    FrameColumn("children_n", INT, "", "sessions of subagents"),
    FrameColumn(
        "prompt_tokens",
        INT,
        "tokens",
        "prompts of all calls together: what was billed; missing where no call has usage",
    ),
    FrameColumn(
        "cache_read_tokens", INT, "tokens", "the part of them that was read from the cache"
    ),
    FrameColumn(
        "output_tokens",
        INT,
        "tokens",
        "output of all calls together; missing where no call has usage",
    ),
    FrameColumn(
        "output_source",
        TEXT,
        "",
        "recorded; estimated, and so at least, where the log holds the first pieces of streams"
        " alone",
    ),
    FrameColumn(
        "peak_tokens",
        INT,
        "tokens",
        "the largest prompt; missing where the log has only whole turns",
    ),
    FrameColumn(
        "logged_prompt_tokens",
        INT,
        "tokens",
        "the log's own total of the prompts, where no call has usage",
    ),
    FrameColumn(
        "logged_output_tokens",
        INT,
        "tokens",
        "the log's own total of the output, where no call has usage",
    ),
    FrameColumn(
        "cost_usd",
        FLOAT,
        "US dollars",
        "cost of its calls and of its summaries, without subagents; missing where one has no price;"
        " without usage the log's own total",
    ),
    FrameColumn(
        "cost_source",
        TEXT,
        "",
        "the weakest of the sources of the costs: recorded, derived, estimated",
    ),
    FrameColumn(
        "calls_usd",
        FLOAT,
        "US dollars",
        "the part of `cost_usd` for the calls: the sum of `cost_usd` of the call frame",
    ),
    FrameColumn(
        "summaries_usd",
        FLOAT,
        "US dollars",
        "the part for the calls that wrote summaries: the sum of `cost_usd` of the compaction"
        " frame; missing where one has no price or the log cannot tell of compactions",
    ),
    FrameColumn("summaries_source", TEXT, "", "where `summaries_usd` comes from, the weakest"),
    FrameColumn(
        "list_price_usd",
        FLOAT,
        "US dollars",
        "`cost_usd` with all calls by the table of prices, beside what the log itself says",
    ),
    FrameColumn("has_text", BOOL, "", "at least one message carries text"),
    FrameColumn("has_usage", BOOL, "", "at least one call has the provider's prompt size"),
    FrameColumn("has_cache", BOOL, "", "at least one call tells cached from uncached input"),
    FrameColumn("has_time", BOOL, "", "calls carry times"),
    FrameColumn("skipped_n", INT, "", "records that the reader passed over"),
    FrameColumn("skipped", TEXT, "", "their names with counts"),
    FrameColumn("read_faults_n", INT, "", "places that could not be read"),
    FrameColumn("notes", TEXT, "", "what its log cannot say or says wrongly, in sentences"),
    FrameColumn("file", TEXT, "", "the file or folder it was read from"),
    FrameColumn(
        "source",
        TEXT,
        "",
        "where the token totals come from: derived (sums of calls), recorded (the log's own); else"
        " missing",
    ),
)


def rows(sessions: Sequence[Session]) -> dict[str, list[Any]]:
    """Return the columns of the session frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        row = make_row(session, bill_session(session))
        for name, values in data.items():
            values.append(row[name])
    return data


def make_row(session: Session, bill: SessionBill) -> dict[str, Any]:
    """Return the values of one session by column, the dollars from its bill.

    Args:
        session: any session.
        bill: its bill, for the dollars.
    """
    return (
        make_session_list_row(session, bill)
        | _describe_session(session)
        | _count_contents(session)
        | _sum_usage(session, bill)
    )


def make_session_list_row(session: Session, bill: SessionBill) -> dict[str, Any]:
    """Return the columns that a list of many sessions shows, without passes for the others.

    Args:
        session: any session.
        bill: its bill, for `cost_usd` and `cost_source`.
    """
    began, billed = session.started, _list_billed(session)
    if began is None:
        began = min((m.time for m in session.messages if m.time is not None), default=None)
    models = dict.fromkeys([m.model for m in session.messages if m.model])
    return {
        "model": ", ".join(models) or session.model,
        "ts": began,
        "calls_n": len(session.calls),
        "turns_n": len({(c.turn, c.agent) for c in session.calls}),
        "compactions_n": count_compactions(session),
        "peak_tokens": _find_peak(session, billed),
        **(dict.fromkeys(_LOGGED_SUMS) if billed else _get_logged_totals(session)),
        "cost_usd": bill.cost_usd,
        "cost_source": bill.source,
        "notes": " ".join(session.notes) or None,
    }


def _list_billed(session: Session) -> list[tuple[Message, Usage]]:
    """Return the replies that are billed, each with the usage by which it is."""
    if session.origin is None:
        return [(c.message, usage) for c in session.calls if (usage := c.message.usage) is not None]
    pairs = zip(session.calls, get_billed_usages(session), strict=True)
    return [(c.message, usage) for c, usage in pairs if usage is not None]


def _find_peak(session: Session, billed: list[tuple[Message, Usage]]) -> int | None:
    """Return the largest prompt; None without usage, or where a log has whole turns only."""
    if not billed:
        return None
    if session.origin is None:  # an agent may report the size of its context without usage
        prompts = [c.message.prompt_tokens for c in session.calls]
    else:
        prompts = [m.prompt_tokens if u is m.usage else u.prompt_tokens for m, u in billed]
    return max((p for p in prompts if p is not None), default=None)


def _describe_session(session: Session) -> dict[str, Any]:
    times = [m.time for m in session.messages if m.time is not None]
    skipped = sorted(session.skipped.items())
    return {
        "session": session.id,
        "title": session.title,
        "project": get_project_name(session),
        "format": session.format,
        "program": session.product,
        "version": session.version,
        "agents": ", ".join(session.agents),
        "parent": session.parent,
        "seconds": max(times) - min(times) if times else None,
        "has_text": session.has_text,
        "has_usage": session.has_usage,
        "has_cache": session.has_cache,
        "has_time": session.has_time,
        "skipped_n": sum(n for _, n in skipped),
        "skipped": ", ".join(f"{name}: {n}" for name, n in skipped) or None,
        "read_faults_n": len(session.faults),
        "file": session.path_,
    }


def _count_contents(session: Session) -> dict[str, Any]:
    calls, unreported = session.calls, session.details.get("cannot_tell", ())
    events = [m for m in session.messages if m.kind in EVENT_KINDS]
    messages = [
        m for m in session.messages if m.kind not in EVENT_KINDS and m.kind != MISSING_START_KIND
    ]
    results = [m for m in messages if m.role == "tool" or m.kind == "observation"]
    marked_n = sum(bool(m.is_error) for m in results)
    tool_errors_n = None if "tool errors" in unreported and not marked_n else marked_n
    failed_n = sum(bool(c.message.is_error) for c in calls)
    return {
        "messages_n": len(messages),
        "tool_calls_n": sum(count_tool_calls(c.message) for c in calls),
        "tool_errors_n": tool_errors_n,
        "failed_calls_n": failed_n,
        "errors_n": None if tool_errors_n is None else tool_errors_n + failed_n,
        "events_n": len(events),
        "images_n": sum(
            isinstance(p, Attachment) and p.kind == "image" for m in messages for p in m.parts
        ),
        "unmarked_drops_n": len(find_prompt_drops(session)) if session.has_usage else None,
        "children_n": len(session.children),
    }


def _sum_usage(session: Session, bill: SessionBill) -> dict[str, Any]:
    costs = {
        "calls_usd": bill.calls_usd,
        "summaries_usd": bill.summaries_usd,
        "summaries_source": bill.summaries_source,
        "list_price_usd": bill.list_price_usd,
    }
    billed = _list_billed(session)
    if not billed:
        return {
            **dict.fromkeys(_SUMS),
            "source": None if _get_logged_totals(session) == _NO_TOTALS else "recorded",
            **costs,
        }
    total_prompts = sum_counts_if_complete([u.prompt_tokens for _, u in billed])
    return {
        "prompt_tokens": total_prompts,
        "cache_read_tokens": sum_counts_if_complete([u.cache_read_tokens for _, u in billed]),
        "output_tokens": sum_counts_if_complete([u.output_tokens for _, u in billed]),
        "output_source": pick_weakest_source(
            [w for m, _ in billed if (w := get_output_source(m)) is not None]
        ),
        "source": None if total_prompts is None else "derived",
        **costs,
    }


def _get_logged_totals(session: Session) -> dict[str, Any]:
    """Return the totals that a log states for the whole run, where it has none of single calls.

    They are no sums of prompts that any view knows, so they have names of their own.
    """
    return {
        name: n if isinstance(n := session.details.get(key), int) else None
        for name, key in zip(_LOGGED_SUMS, ("input_tokens", "output_tokens"), strict=True)
    }


_SUMS = ("prompt_tokens", "cache_read_tokens", "output_tokens", "output_source")
_LOGGED_SUMS = ("logged_prompt_tokens", "logged_output_tokens")
_NO_TOTALS = dict.fromkeys(_LOGGED_SUMS)
_FIGURES = (
    *("prompt_tokens", "cache_read_tokens", "output_tokens", "peak_tokens"),
    *("calls_n", "turns_n", "compactions_n"),
    *("tool_errors_n", "failed_calls_n", "errors_n"),
    *("cost_usd", "cost_source", "calls_usd", "summaries_usd", "list_price_usd"),
)


@register_view_values('frame(per="session")')
def _read_figures(session: Session) -> dict[str, Any]:
    row = {name: values[0] for name, values in rows([session]).items()}
    return {name: row[name] for name in _FIGURES}
