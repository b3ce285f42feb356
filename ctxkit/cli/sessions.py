"""`ctxkit list`, `report`, `spend` and `watch`."""

from __future__ import annotations

import sys
import time
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from ctxkit._internal.formatting import sanitize_line
from ctxkit.cli import arguments
from ctxkit.cli.arguments import locate_session, open_session, session_argument
from ctxkit.cli.output import (
    CALLS_COLUMN,
    COST_COLUMN,
    PEAK_COLUMN,
    PROMPTS_COLUMN,
    SESSIONS_COLUMN,
    CommandOutput,
    TableColumn,
    fit_text,
    format_value,
    get_screen_width,
    print_json,
    print_lines,
    print_message,
)
from ctxkit.errors import ReadError
from ctxkit.formats.reading import LOG_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.cli.session_index import DaySpent, IndexedSession, LogFile
    from ctxkit.session.session import Session


LIST_COLUMNS = (
    TableColumn("modified", "last", "when"),
    TableColumn("tool", "tool", most=11),
    TableColumn("title", "title or id", wide=True),
    CALLS_COLUMN,
    TableColumn("compactions_n", "cuts", "count"),
    PEAK_COLUMN,
    COST_COLUMN,
)
DEFAULT_ROWS = 20


@click.command()
@click.argument("place", required=False, type=click.Path())
@arguments.since_option
@arguments.project_option
@arguments.tool_option
@click.option("--most", "-n", default=DEFAULT_ROWS, show_default=True, type=click.IntRange(min=0))
@click.option("--all", "every", is_flag=True, help="All of them, however many.")
@arguments.add_output_options
def list_(
    out: CommandOutput,
    *,
    place: str | None,
    since: float | None,
    project: str | None,
    tool: str | None,
    most: int,
    every: bool,
) -> None:
    """List sessions, the newest first: of the known tools, or those at PLACE.

    Cost is of all calls, summaries and subagents, in US dollars; what no price is known for is
    left empty. What was read before is not read again, as long as its file stays as it is.
    """
    from ctxkit.cli.session_index import SessionIndex

    seen, found = SessionIndex(), select_files(place, since, project, tool)
    whole = every or out.json or out.html is not None
    told = all(file.tool for file in found) or tool is None  # else only reading says whose it is
    logs = filter_by_tool(seen.read(found if whole or not told else found[:most]), tool)
    found = found if told else logs
    rows = [make_list_row(log, s) for log in logs for s in log.sessions or ()]
    taken = rows if whole else rows[:most]
    left = len(found) - len(logs) + len(rows) - len(taken)
    chosen = (since, project, tool) != (None, None, None)
    out.table(
        "Sessions",
        LIST_COLUMNS,
        taken,
        [] if out.json else describe_omissions(logs, left, chosen=chosen),
    )
    seen.keep()


def select_files(
    place: str | None, since: float | None, project: str | None, tool: str | None
) -> list[LogFile]:
    """Return the files that are asked for, the newest first.

    A place tells no tools and no projects: there a project is a part of a path, and all tools are
    here (`of_tool`).
    """
    from ctxkit.cli.session_index import list_log_files

    return [
        f
        for f in list_log_files(place)
        if (since is None or f.modified >= since)
        and (project is None or project.casefold() in _project(f).casefold())
        and (tool is None or f.tool in (tool, ""))
    ]


def _project(file: LogFile) -> str:
    return file.project or ("" if file.tool else str(Path(file.path).parent))


def filter_by_tool(logs: list[LogFile], tool: str | None) -> list[LogFile]:
    """Return the logs of a tool: as their place tells, else as they were read."""
    if tool is None:
        return logs
    return [
        log
        for log in logs
        if log.tool == tool or (not log.tool and any(s.format == tool for s in log.sessions or ()))
    ]


def make_list_row(log: LogFile, sighting: IndexedSession) -> dict[str, Any]:
    """Return a line of the list."""
    told = asdict(sighting)
    del told["spent"]
    name, title = told.pop("id"), told.pop("title")
    return {
        "modified": log.modified,
        "tool": log.tool or sighting.format,
        "project": log.project,
        "title": title or name,
        "session": name,
        **told,
        "path": log.path,
    }


def describe_omissions(logs: list[LogFile], left: int = 0, *, chosen: bool = False) -> list[str]:
    """Say what is not in the list: older sessions, and logs that could not be read."""
    bad = [log for log in logs if log.error and Path(log.path).suffix.lower() in LOG_SUFFIXES]
    out = [f"{left:,} older: --all shows them, --since and --tool choose."] if left > 0 else []
    if bad:
        why = sanitize_line(bad[0].error or "", 120)
        out.append(f"{len(bad):,} could not be read, the first: {bad[0].path}: {why}")
    if not logs and chosen:
        out.append("Nothing fits --since, --project and --tool together.")
    elif not logs:
        out.append("No sessions of known tools are here: give a file or a folder.")
    return out


@click.command()
@arguments.session_argument
@click.option("--call", default=-1, show_default=True, help="Number of the call; -1 is the last.")
@arguments.add_output_options
def report_(out: CommandOutput, *, session: str, call: int) -> None:
    """Say what fills the window of SESSION at a call: parts, largest messages, and their sources.

    With --html the page has the whole report: charts, compactions, what was lost.
    """
    from ctxkit.cli.arguments import locate_session, open_session

    path, sighting = locate_session(session)
    if sighting is not None and not (out.json or out.html):
        print_indexed(sighting)
    found = open_session(path, sighting)
    if out.html is not None:
        from ctxkit.widgets.reports import export

        print_message(f"written: {export(found, out.html)}")
        return
    from ctxkit.metrics.context_report import report

    made = report(found, call)
    if out.json:
        import msgspec

        print_json(msgspec.to_builtins(made))
    else:
        print_lines(made.to_text())


def print_indexed(sighting: IndexedSession) -> None:
    """Print what is known of a session at once, before its log is read."""
    told = [sanitize_line(sighting.title or sighting.id, 60), f"{sighting.calls_n:,} calls"]
    if sighting.cost_usd:
        told.append(f"{format_value(sighting.cost_usd, 'usd')} ({sighting.cost_source})")
    print_lines(", ".join(filter(None, told)) + "\n")
    sys.stdout.flush()


def _week(day: str) -> str:
    if not day:
        return ""
    then = date.fromisoformat(day)
    return (then - timedelta(days=then.weekday())).isoformat()


SPEND_GROUPINGS: dict[str, Callable[[LogFile, IndexedSession, DaySpent], str]] = {
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
@click.option("--by", type=click.Choice(list(SPEND_GROUPINGS)), default="day", show_default=True)
@arguments.since_option
@arguments.project_option
@arguments.tool_option
@arguments.add_output_options
def spend_(
    out: CommandOutput,
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
    from ctxkit.cli.session_index import SessionIndex

    seen = SessionIndex()
    logs = filter_by_tool(seen.read(select_files(place, since, project, tool)), tool)
    seen.keep()
    rows = sum_spend(logs, by, since)
    chosen = (since, project, tool) != (None, None, None)
    more = [] if out.json else [*_total(rows), *describe_omissions(logs, chosen=chosen)]
    out.table(f"Spent by {by}", _spend_columns(by), rows, more)


def sum_spend(logs: list[LogFile], by: str, since: float | None = None) -> list[dict[str, Any]]:
    """Return one row for each day (model, ...), in order of time or of money."""
    first = "" if since is None else strftime("%Y-%m-%d", gmtime(since))
    rows: dict[str, dict[str, Any]] = {}
    for log in logs:
        for session in log.sessions or ():
            for spent in session.spent:
                if spent.day and spent.day < first:
                    continue
                name = SPEND_GROUPINGS[by](log, session, spent) or _UNKNOWN
                _add(rows.setdefault(name, _empty(by, name)), session, spent)
    out = list(rows.values())
    for row in out:
        row["sessions_n"] = len(row.pop("ids"))
    timed = by in ("day", "week", "month")
    return sorted(out, key=lambda r: r[by] if timed else -(r["cost_usd"] or 0.0))


def _empty(by: str, name: str) -> dict[str, Any]:
    counts = dict.fromkeys(("calls_n", "prompt_tokens", "output_tokens", "unpriced_n"), 0)
    return {by: name, "cost_usd": None, **counts, "ids": set()}


def _add(row: dict[str, Any], session: IndexedSession, spent: DaySpent) -> None:
    row["ids"].add(session.id)
    if spent.usd is not None:
        row["cost_usd"] = spent.usd + (row["cost_usd"] or 0.0)
    row["unpriced_n"] += (spent.calls_n or 1) if spent.usd is None else 0
    row["calls_n"] += spent.calls_n
    row["prompt_tokens"] += spent.prompt_tokens
    row["output_tokens"] += spent.output_tokens


def _spend_columns(by: str) -> tuple[TableColumn, ...]:
    output = TableColumn("output_tokens", "output", "count")
    unpriced = TableColumn("unpriced_n", "no price", "count")
    return (
        TableColumn(by, by, wide=True),
        SESSIONS_COLUMN,
        CALLS_COLUMN,
        PROMPTS_COLUMN,
        output,
        COST_COLUMN,
        unpriced,
    )


def _total(rows: list[dict[str, Any]]) -> list[str]:
    if len(rows) < 2:
        return []
    calls = sum(r["calls_n"] for r in rows)
    return [f"In all ${sum(r['cost_usd'] or 0.0 for r in rows):,.2f} for {calls:,} calls."]


_BAR = 16
_LAST_LINES = 10


@click.command()
@session_argument
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Seconds between two looks.",
)
@click.option("--times", type=click.IntRange(min=1), help="Stop after so many looks.")
def watch_(session: str, every: float, times: int | None) -> None:
    """Follow SESSION while it grows: a line for each call and each compaction. Ctrl-C ends it."""
    path, sighting = locate_session(session)
    shown, state = -1, None
    for look in count(1):
        now = _stamp(path)
        if now != state:
            state = now
            try:
                found = open_session(path, sighting)
            except ReadError:
                if look == 1:
                    raise
                state = None  # it is being written: the next look finds it whole
            else:
                rows = list(describe_calls(found))
                shown = max(len(rows) - _LAST_LINES, 0) if shown < 0 else min(shown, len(rows))
                for each in rows[shown:]:
                    sys.stdout.write(fit_text(each, get_screen_width()) + "\n")
                shown = len(rows)
                sys.stdout.flush()
        if look == times:
            return
        time.sleep(every)


def _stamp(path: str) -> tuple[float, int]:
    from ctxkit.cli.session_index import stat_log_file

    found = stat_log_file(path)
    return found.modified, found.size


def describe_calls(session: Session) -> Iterator[str]:
    """Yield a line for each call and each compaction, in their order."""
    from ctxkit.metrics.frames.per_call import rows
    from ctxkit.session.messages import Edit

    of: dict[str, list[Any]] = rows([session])
    calls = dict(zip(of["position"], range(len(of["call"])), strict=True))
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            yield f"       compaction: {sanitize_line(entry.reason or 'no reason is told', 60)}"
        elif position in calls:
            yield _call({name: values[calls[position]] for name, values in of.items()})


def _call(row: dict[str, Any]) -> str:
    tokens, limit = row["prompt_tokens"], row["context_limit"]
    full = f"{_gauge(tokens / limit)} {tokens / limit:4.0%} " if tokens and limit else ""
    size = f"{tokens:>9,}" if tokens is not None else f"{'':9}"
    cost = format_value(row["cost_usd"], "usd")
    return (
        f"#{row['call']:<5} {full}{size} {cost:>8} {sanitize_line(row['model'] or '', 24)}".rstrip()
    )


def _gauge(full: float) -> str:
    n = round(min(max(full, 0.0), 1.0) * _BAR)
    return "█" * n + "░" * (_BAR - n)
