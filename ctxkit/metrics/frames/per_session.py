"""The session frame: one row a session with its totals and what its log cannot say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.metrics.cost.call_prices import get_output_source, pick_weakest_source, price_calls
from ctxkit.metrics.frames import per_compaction
from ctxkit.metrics.frames.columns import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.metrics.frames.per_call import count_tool_calls
from ctxkit.metrics.frames.per_turn import sum_or_none
from ctxkit.session.messages import EVENT_KINDS, MISSING_START_KIND, Image
from ctxkit.session.titles import get_project_name
from ctxkit.tokens.sizes import find_prompt_drops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session.messages import Usage
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
    FrameColumn("failed_calls_n", INT, "", "calls that failed"),
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
        "prompts of all calls together: what was billed; else the log's own total",
    ),
    FrameColumn(
        "cache_read_tokens", INT, "tokens", "the part of them that was read from the cache"
    ),
    FrameColumn(
        "output_tokens", INT, "tokens", "output of all calls together; else the log's own total"
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
        "cost_usd",
        FLOAT,
        "US dollars",
        "cost of all calls with usage, without summaries; missing where one has none; else the"
        " log's own total",
    ),
    FrameColumn(
        "cost_source",
        TEXT,
        "",
        "the weakest of the sources of the costs: recorded, derived, estimated",
    ),
    FrameColumn(
        "list_price_usd",
        FLOAT,
        "US dollars",
        "the same usage by the table of prices, beside what the log itself says",
    ),
    FrameColumn(
        "summaries_usd",
        FLOAT,
        "US dollars",
        "what the calls that wrote its summaries cost; missing as above",
    ),
    FrameColumn("summaries_source", TEXT, "", "where `summaries_usd` comes from, the weakest"),
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
        row = _describe_session(session) | _count_contents(session) | _sum_usage(session)
        for name, values in data.items():
            values.append(row[name])
    return data


def _describe_session(session: Session) -> dict[str, Any]:
    models = dict.fromkeys(m.model for m in session.messages if m.model)
    times = [m.time for m in session.messages if m.time is not None]
    skipped = sorted(session.skipped.items())
    return {
        "session": session.id,
        "title": session.title,
        "project": get_project_name(session),
        "format": session.format,
        "program": session.product,
        "version": session.version,
        "model": ", ".join(models) or session.model,
        "agents": ", ".join(session.agents),
        "parent": session.parent,
        "ts": session.started if session.started is not None else min(times, default=None),
        "seconds": max(times) - min(times) if times else None,
        "has_text": session.has_text,
        "has_usage": session.has_usage,
        "has_cache": session.has_cache,
        "has_time": session.has_time,
        "skipped_n": sum(n for _, n in skipped),
        "skipped": ", ".join(f"{name}: {n}" for name, n in skipped) or None,
        "read_faults_n": len(session.faults),
        "notes": " ".join(session.notes) or None,
        "file": session.path_,
    }


def _count_contents(session: Session) -> dict[str, Any]:
    calls, unreported = session.calls, session.details.get("cannot_tell", ())
    events = [m for m in session.messages if m.kind in EVENT_KINDS]
    messages = [
        m for m in session.messages if m.kind not in EVENT_KINDS and m.kind != MISSING_START_KIND
    ]
    results = [m for m in messages if m.role == "tool" or m.kind == "observation"]
    errors_n = sum(bool(m.is_error) for m in results)
    return {
        "messages_n": len(messages),
        "calls_n": len(calls),
        "turns_n": len({(c.turn, c.agent) for c in calls}),
        "tool_calls_n": sum(count_tool_calls(c.message) for c in calls),
        "tool_errors_n": None if "tool errors" in unreported and not errors_n else errors_n,
        "failed_calls_n": sum(bool(c.message.is_error) for c in calls),
        "events_n": len(events),
        "images_n": sum(
            isinstance(p, Image) and p.kind == "image" for m in messages for p in m.parts
        ),
        "compactions_n": per_compaction.count_compactions(session),
        "unmarked_drops_n": len(find_prompt_drops(session)) if session.has_usage else None,
        "children_n": len(session.children),
    }


def _sum_usage(session: Session) -> dict[str, Any]:
    billed = [c.message for c in session.calls if c.message.usage is not None]
    if not billed:
        return _get_logged_totals(session)
    usages: list[Usage] = [m.usage for m in billed if m.usage is not None]
    prompts = [u.prompt_tokens for m, u in zip(billed, usages, strict=True) if m.kind != "turn"]
    models = [m.model or session.model for m in billed]
    priced, table = price_calls(billed, models)
    is_priced = bool(priced) and all(cost is not None for cost, _ in priced)
    total_prompts = sum_or_none([u.prompt_tokens for u in usages])
    return {
        "prompt_tokens": total_prompts,
        "cache_read_tokens": sum_or_none([u.cache_read_tokens for u in usages]),
        "output_tokens": sum_or_none([u.output_tokens for u in usages]),
        "output_source": pick_weakest_source(
            [w for m in billed if (w := get_output_source(m)) is not None]
        ),
        "peak_tokens": max((p for p in prompts if p is not None), default=None),
        "cost_usd": sum(cost or 0.0 for cost, _ in priced) if is_priced else None,
        "cost_source": pick_weakest_source([where for _, where in priced]) if is_priced else None,
        "list_price_usd": sum(t or 0.0 for t in table) if None not in table else None,
        **_sum_summary_costs(session),
        "source": None if total_prompts is None else "derived",
    }


def _get_logged_totals(session: Session) -> dict[str, Any]:
    """Return the totals that a log states for the whole run, where it has none of single calls."""
    details = session.details
    tokens = {
        "prompt_tokens": details.get("input_tokens"),
        "output_tokens": details.get("output_tokens"),
    }
    logged_tokens = {k: v for k, v in tokens.items() if isinstance(v, int)}
    row: dict[str, Any] = dict.fromkeys(
        (
            "cache_read_tokens",
            "peak_tokens",
            "output_source",
            "cost_usd",
            "cost_source",
            "list_price_usd",
        )
    )
    row |= {
        **dict.fromkeys(tokens),
        **logged_tokens,
        **_sum_summary_costs(session),
        "source": "recorded" if logged_tokens else None,
    }
    if "output_tokens" in logged_tokens:
        row["output_source"] = "recorded"
    if isinstance(details.get("cost_usd"), float) and details["cost_usd"]:
        row |= {"cost_usd": details["cost_usd"], "cost_source": "recorded"}
    return row


def _sum_summary_costs(session: Session) -> dict[str, Any]:
    """Return the cost of summaries: 0 without any, None if one has no price or none is logged."""
    bills = per_compaction.bill_summaries(session)
    usd, source = per_compaction.sum_summary_bills(bills)
    if not bills and per_compaction.count_compactions(session) is None:
        usd = None
    return {"summaries_usd": usd, "summaries_source": source}
