"""One row a session: what it is, what its log can say, its totals, what the reader passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.frames.columns import BOOL, FLOAT, INT, TEXT, TIME, Column
from ctxkit.frames.costs import Costs
from ctxkit.frames.cuts import cuts
from ctxkit.frames.turns import total
from ctxkit.messages import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Usage
    from ctxkit.session import Session

COLUMNS = (
    Column("session", TEXT, "", "id of the session"),
    Column("title", TEXT, "", "its title, where it has one"),
    Column("format", TEXT, "", "the reader that made it, or live, or replay"),
    Column("program", TEXT, "", "the program that wrote the log"),
    Column("version", TEXT, "", "the version of that program"),
    Column("model", TEXT, "", "models that answered, joined by commas"),
    Column("agents", TEXT, "", "agents that speak in it, joined by commas"),
    Column("parent", TEXT, "", "the session that this one is a subagent or a continuation of"),
    Column("ts", TIME, "UTC", "when it began"),
    Column("seconds", FLOAT, "seconds", "from the first to the last message that has a time"),
    Column("messages_n", INT, "", "messages that stand, each tool result one of its own"),
    Column("calls_n", INT, "", "requests to a model, failed ones included"),
    Column("turns_n", INT, "", "turns with at least one call"),
    Column("tool_calls_n", INT, "", "tool calls in the replies"),
    Column("tool_errors_n", INT, "", "tool results that report failure"),
    Column("failed_calls_n", INT, "", "calls that failed"),
    Column("images_n", INT, "", "images in the messages"),
    Column("compactions_n", INT, "", "compactions that stand"),
    Column("children_n", INT, "", "sessions of subagents"),
    Column("prompt_tokens", INT, "tokens", "prompts of all calls together: what was billed"),
    Column("cached_tokens", INT, "tokens", "the part of them that was read from the cache"),
    Column("output_tokens", INT, "tokens", "output of all calls together"),
    Column("peak_tokens", INT, "tokens", "the largest prompt; missing where the log has only whole turns"),
    Column("cost_usd", FLOAT, "US dollars", "cost of all calls with usage; missing where one of them has none"),
    Column("cost_source", TEXT, "", "recorded where every cost is, else derived"),
    Column("has_text", BOOL, "", "at least one message carries text"),
    Column("has_usage", BOOL, "", "at least one call has the provider's prompt size"),
    Column("has_cache", BOOL, "", "at least one call tells cached from uncached input"),
    Column("has_time", BOOL, "", "calls carry times"),
    Column("skipped_n", INT, "", "records that the reader passed over"),
    Column("skipped", TEXT, "", "their names with counts"),
    Column("faults_n", INT, "", "places that could not be read"),
    Column("file", TEXT, "", "the file or folder it was read from"),
    Column(
        "source", TEXT, "", "where the token totals come from: derived (sums of recorded calls); missing without usage"
    ),
)


def rows(sessions: Sequence[Session]) -> dict[str, list[Any]]:
    """Return the columns of the session frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    costs = Costs()
    for session in sessions:
        row = _about(session) | _counts(session) | _totals(session, costs)
        for name, values in data.items():
            values.append(row[name])
    return data


def _about(session: Session) -> dict[str, Any]:
    models = dict.fromkeys(m.model for m in session.messages if m.model)
    times = [m.time for m in session.messages if m.time is not None]
    skipped = sorted(session.skipped.items())
    return {
        "session": session.id,
        "title": session.title,
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
        "faults_n": len(session.faults),
        "file": session.path_,
    }


def _counts(session: Session) -> dict[str, Any]:
    messages, calls = session.messages, session.calls
    return {
        "messages_n": len(messages),
        "calls_n": len(calls),
        "turns_n": len({(c.turn, c.agent) for c in calls}),
        "tool_calls_n": sum(len(c.message.tool_calls) for c in calls),
        "tool_errors_n": sum(m.role == "tool" and m.is_error for m in messages),
        "failed_calls_n": sum(c.message.is_error for c in calls),
        "images_n": sum(isinstance(p, Image) and p.kind == "image" for m in messages for p in m.parts),
        "compactions_n": len(cuts(session)),
        "children_n": len(session.children),
    }


def _totals(session: Session, costs: Costs) -> dict[str, Any]:
    billed = [c.message for c in session.calls if c.message.usage is not None]
    usages: list[Usage] = [m.usage for m in billed if m.usage is not None]
    prompts = [u.prompt_tokens for m, u in zip(billed, usages, strict=True) if m.kind != "turn"]
    spent = [costs.cost(m, m.model or session.model) for m in billed]
    known = bool(spent) and all(cost is not None for cost, _ in spent)
    total_prompts = total([u.prompt_tokens for u in usages])
    return {
        "prompt_tokens": total_prompts,
        "cached_tokens": total([u.cache_read_tokens for u in usages]),
        "output_tokens": total([u.output_tokens for u in usages]),
        "peak_tokens": max((p for p in prompts if p is not None), default=None),
        "cost_usd": sum(cost or 0.0 for cost, _ in spent) if known else None,
        "cost_source": ("recorded" if all(w == "recorded" for _, w in spent) else "derived") if known else None,
        "source": None if total_prompts is None else "derived",
    }
