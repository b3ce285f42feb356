"""`ctxkit spend`: what sessions cost, by day, week, month, project, model, tool or session."""

from __future__ import annotations

from datetime import date, timedelta
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

import click

from ctxkit.commands import options
from ctxkit.commands.looking import notes, of_tool, wanted
from ctxkit.commands.printing import CALLS, COST, PROMPTS, SESSIONS, Out, TableHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.commands.seen import DaySpent, LogFile, Sighting


def _week(day: str) -> str:
    if not day:
        return ""
    then = date.fromisoformat(day)
    return (then - timedelta(days=then.weekday())).isoformat()


WAYS: dict[str, Callable[[LogFile, Sighting, DaySpent], str]] = {
    "day": lambda log, session, spent: spent.day,  # noqa: ARG005
    "week": lambda log, session, spent: _week(spent.day),  # noqa: ARG005
    "month": lambda log, session, spent: spent.day[:7],  # noqa: ARG005
    "model": lambda log, session, spent: spent.model,  # noqa: ARG005
    "project": lambda log, session, spent: log.project or "",  # noqa: ARG005
    "tool": lambda log, session, spent: log.tool or session.format,  # noqa: ARG005
    "session": lambda log, session, spent: session.title or session.id,  # noqa: ARG005
}
"""What a row of the answer is, by its name."""
_UNKNOWN = "unknown"


@click.command()
@click.argument("place", required=False, type=click.Path())
@click.option("--by", type=click.Choice(list(WAYS)), default="day", show_default=True)
@options.since
@options.project
@options.tool
@options.answer
def spend_(
    out: Out,
    *,
    place: str | None,
    by: str,
    since: float | None,
    project: str | None,
    tool: str | None,
) -> None:
    """Say what sessions cost, with their summaries and subagents: of all tools, or at PLACE.

    Days are UTC. Dollars are the log's own, else usage times the table of prices; calls of models
    without a price are counted and add nothing to it: the last column says how many.
    """
    from ctxkit.commands.seen import Seen

    seen = Seen()
    logs = of_tool(seen.read(wanted(place, since, project, tool)), tool)
    seen.keep()
    rows = summed(logs, by, since)
    chosen = (since, project, tool) != (None, None, None)
    more = [] if out.json else [*_total(rows), *notes(logs, chosen=chosen)]
    out.table(f"Spent by {by}", _heads(by), rows, more)


def summed(logs: list[LogFile], by: str, since: float | None = None) -> list[dict[str, Any]]:
    """Return one row for each day (model, ...), in order of time or of money."""
    first = "" if since is None else strftime("%Y-%m-%d", gmtime(since))
    rows: dict[str, dict[str, Any]] = {}
    for log in logs:
        for session in log.sessions or ():
            for spent in session.spent:
                if spent.day and spent.day < first:
                    continue
                name = WAYS[by](log, session, spent) or _UNKNOWN
                _add(rows.setdefault(name, _empty(by, name)), session, spent)
    out = list(rows.values())
    for row in out:
        row["sessions_n"] = len(row.pop("ids"))
    timed = by in ("day", "week", "month")
    return sorted(out, key=lambda r: r[by] if timed else -(r["cost_usd"] or 0.0))


def _empty(by: str, name: str) -> dict[str, Any]:
    counts = dict.fromkeys(("calls_n", "prompt_tokens", "output_tokens", "unpriced_n"), 0)
    return {by: name, "cost_usd": None, **counts, "ids": set()}


def _add(row: dict[str, Any], session: Sighting, spent: DaySpent) -> None:
    row["ids"].add(session.id)
    if spent.usd is not None:
        row["cost_usd"] = spent.usd + (row["cost_usd"] or 0.0)
    row["unpriced_n"] += (spent.calls_n or 1) if spent.usd is None else 0
    row["calls_n"] += spent.calls_n
    row["prompt_tokens"] += spent.prompt_tokens
    row["output_tokens"] += spent.output_tokens


def _heads(by: str) -> tuple[TableHead, ...]:
    output = TableHead("output_tokens", "output", "count")
    unpriced = TableHead("unpriced_n", "no price", "count")
    return (TableHead(by, by, wide=True), SESSIONS, CALLS, PROMPTS, output, COST, unpriced)


def _total(rows: list[dict[str, Any]]) -> list[str]:
    if len(rows) < 2:
        return []
    calls = sum(r["calls_n"] for r in rows)
    return [f"In all ${sum(r['cost_usd'] or 0.0 for r in rows):,.2f} for {calls:,} calls."]
