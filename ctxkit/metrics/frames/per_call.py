"""The call frame: one row per request, with usage, cost, window and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.metrics.cost.call_and_summary_charges import get_output_source
from ctxkit.metrics.cost.session_bill import charge_calls, get_billed_usages
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.metrics.means_and_prediction_intervals import sum_counts_if_complete, sum_if_complete
from ctxkit.session.messages import ToolCall, Usage
from ctxkit.tokens.context_windows import get_context_window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("agent", TEXT, "", "the agent that asked"),
    FrameColumn("turn", INT, "", "zero-based turn"),
    FrameColumn("call", INT, "", "number of the call in its session, from 0, failed ones included"),
    FrameColumn(
        "position", INT, "entries", "place of the reply among the session's messages and edits"
    ),
    FrameColumn("id", TEXT, "", "id of the reply"),
    FrameColumn("ts", TIME, "UTC", "when the reply was written"),
    FrameColumn("model", TEXT, "", "the model that answered"),
    FrameColumn(
        "prompt_tokens", INT, "tokens", "the whole prompt: input + cache read + cache write"
    ),
    FrameColumn("input_tokens", INT, "tokens", "the uncached part of the prompt only"),
    FrameColumn("cache_read_tokens", INT, "tokens", "prompt read from the cache"),
    FrameColumn(
        "cache_write_tokens", INT, "tokens", "prompt written to the cache, whatever its life"
    ),
    FrameColumn(
        "cache_write_1h_tokens",
        INT,
        "tokens",
        "the part of `cache_write_tokens` that lives an hour",
    ),
    FrameColumn("output_tokens", INT, "tokens", "the reply, reasoning included"),
    FrameColumn(
        "output_source",
        TEXT,
        "",
        "recorded; estimated, and so at least, where the log holds the first piece of the stream"
        " alone",
    ),
    FrameColumn("reasoning_tokens", INT, "tokens", "the part of `output_tokens` that is reasoning"),
    FrameColumn(
        "context_limit",
        INT,
        "tokens",
        "the window: as the log says, else by the table of prices, as far as the log does not"
        " refute it",
    ),
    FrameColumn("limit_source", TEXT, "", "where `context_limit` comes from: recorded or derived"),
    FrameColumn(
        "cost_usd",
        FLOAT,
        "US dollars",
        "of the call alone: as recorded, else usage times the table of prices; summaries stand in"
        " the compaction frame",
    ),
    FrameColumn(
        "cost_source",
        TEXT,
        "",
        "where `cost_usd` comes from: recorded, derived, or estimated as its output is",
    ),
    FrameColumn(
        "list_price_usd",
        FLOAT,
        "US dollars",
        "the same usage by the table of prices, beside what the log itself says",
    ),
    FrameColumn(
        "cache_miss",
        TEXT,
        "",
        "the cause of a cache miss, as `ctxkit.misses` finds it; missing for a hit, and where the"
        " log does not tell cached from uncached input",
    ),
    FrameColumn("stop_reason", TEXT, "", "why the reply ended"),
    FrameColumn("is_error", BOOL, "", "True where the call failed"),
    FrameColumn("seconds", FLOAT, "seconds", "how long the call took"),
    FrameColumn(
        "tool_calls_n",
        INT,
        "",
        "tool calls in the reply; of an aborted one those that were not run, too",
    ),
    FrameColumn(
        "source",
        TEXT,
        "",
        "where the token columns come from: recorded, or derived by a replay; missing without"
        " usage",
    ),
)
_NO_USAGE = Usage()


def rows(sessions: Sequence[Session]) -> dict[str, list[Any]]:
    """Return the columns of the call frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        _append_session(session, data)
    return data


def _append_session(session: Session, data: dict[str, list[Any]]) -> None:
    calls = session.calls
    replies = [c.message for c in calls]
    usages = [u or _NO_USAGE for u in get_billed_usages(session)]
    charges = {c.call: c for c in charge_calls(session)}
    of_calls = [charges.get(c.index) for c in calls]
    models = [m.model or session.model for m in replies]
    data["session"] += [session.id] * len(calls)
    data["agent"] += [c.agent for c in calls]
    data["turn"] += [c.turn for c in calls]
    data["call"] += [c.index for c in calls]
    data["position"] += [c.position for c in calls]
    data["id"] += [m.id for m in replies]
    data["ts"] += [m.time for m in replies]
    data["model"] += models
    data["prompt_tokens"] += [None if u is _NO_USAGE else u.prompt_tokens for u in usages]
    data["input_tokens"] += [u.input_tokens for u in usages]
    data["cache_read_tokens"] += [u.cache_read_tokens for u in usages]
    data["cache_write_tokens"] += [count_cache_writes(u) for u in usages]
    data["cache_write_1h_tokens"] += [u.cache_write_1h_tokens for u in usages]
    data["output_tokens"] += [u.output_tokens for u in usages]
    data["output_source"] += [get_output_source(m) for m in replies]
    data["reasoning_tokens"] += [u.reasoning_tokens for u in usages]
    window_keys = [(model, m.context_window) for m, model in zip(replies, models, strict=True)]
    reply_of_key = dict(zip(window_keys, replies, strict=True))
    windows = {of: get_context_window(session, of[0], m) for of, m in reply_of_key.items()}
    data["context_limit"] += [windows[of].tokens for of in window_keys]
    data["limit_source"] += [windows[of].source for of in window_keys]
    data["cost_usd"] += [None if c is None else c.usd for c in of_calls]
    data["cost_source"] += [None if c is None else c.source for c in of_calls]
    data["list_price_usd"] += [None if c is None else c.list_price_usd for c in of_calls]
    data["cache_miss"] += get_miss_causes(session)
    data["stop_reason"] += [m.stop for m in replies]
    data["is_error"] += [m.is_error for m in replies]
    data["seconds"] += [m.latency for m in replies]
    data["tool_calls_n"] += [count_tool_calls(m) for m in replies]
    data["source"] += [
        None if u is _NO_USAGE else usage_source(m) for u, m in zip(usages, replies, strict=True)
    ]


def get_miss_causes(session: Session) -> list[str | None]:
    """Return the cause of each call's cache miss; None for a hit, and without a cache split."""
    if not session.has_cache:
        return [None] * len(session.calls)
    from ctxkit.metrics.cache_misses import find_cache_misses

    return [None if m is None else m.kind for m in find_cache_misses(session)]


def count_tool_calls(reply: Message) -> int:
    """Return the number of tool calls in a reply, with those of an aborted one that did not run."""
    not_run = reply.details.get("calls_not_run") if reply.details else None
    return len([1 for p in reply.parts if type(p) is ToolCall]) + (len(not_run) if not_run else 0)


def usage_source(message: Message) -> str:
    """Return the source of a reply's usage: `derived` if a replay modelled it, else `recorded`."""
    return "derived" if message.details.get("usage_source") == "derived" else "recorded"


def count_cache_writes(usage: Usage) -> int | None:
    """Return all tokens written to the cache, those for five minutes and those for an hour."""
    short, long = usage.cache_write_tokens, usage.cache_write_1h_tokens
    return short if long is None else long + (short or 0)


@register_view_values('frame(per="call")')
def _read_figures(session: Session) -> dict[str, Any]:
    data = rows([session])
    failed = {"failed_calls_n": sum(map(bool, data["is_error"]))}
    if not any(n is not None for n in data["prompt_tokens"]):
        return failed
    # Calls without usage are left out, as by the session frame.
    billed = [i for i, source in enumerate(data["source"]) if source is not None]
    figures: dict[str, Any] = failed | {
        name: sum_counts_if_complete([data[name][i] for i in billed])
        for name in ("prompt_tokens", "cache_read_tokens", "output_tokens")
    }
    figures["calls_usd"] = sum_if_complete(data["cost_usd"][i] for i in billed)
    if figures["cache_read_tokens"] is not None:
        figures["written_tokens"] = sum(n or 0 for n in data["cache_write_tokens"])
    if data["prompt_tokens"][-1] is not None:
        figures["last_prompt_tokens"] = data["prompt_tokens"][-1]
    return figures
