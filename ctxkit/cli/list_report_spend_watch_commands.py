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
import msgspec

from ctxkit._internal.formatting_and_sanitizing import (
    format_percent,
    pluralize,
    sanitize_line,
)
from ctxkit.cli import arguments_and_output
from ctxkit.cli.arguments_and_output import (
    CALLS_COLUMN,
    COST_COLUMN,
    PEAK_COLUMN,
    PROMPTS_COLUMN,
    SESSIONS_COLUMN,
    CommandOutput,
    TableColumn,
    cut_and_pad_text,
    find_indexed_session,
    format_value,
    get_screen_width,
    is_path,
    locate_session,
    open_session,
    print_json,
    print_to_stderr,
    print_wrapped_lines,
    session_argument,
)
from ctxkit.errors import ReadError
from ctxkit.formats.reading import LOG_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit.cli.session_index import (
        DailyModelSpend,
        IndexedLogFile,
        IndexedSession,
        SessionIndex,
    )
    from ctxkit.session.session import Session


LIST_COLUMNS = (
    TableColumn("modified", "last", "when"),
    TableColumn("tool", "tool", most=11),
    TableColumn("title", "title", wide=True),
    CALLS_COLUMN,
    TableColumn("compactions_n", "compactions", "count"),
    PEAK_COLUMN,
    COST_COLUMN,
)
DEFAULT_ROWS = 20


@click.command()
@click.argument("place", required=False, type=click.Path())
@arguments_and_output.since_option
@arguments_and_output.project_option
@arguments_and_output.tool_option
@click.option("--most", "-n", default=DEFAULT_ROWS, show_default=True, type=click.IntRange(min=0))
@click.option("--all", "every", is_flag=True, help="All of them, however many.")
@arguments_and_output.add_json_and_html_options
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

    Cost is of calls and summaries, in US dollars; the last line has it with subagents too. What no
    price is known for is left empty. What was read before is not read again, as long as its file
    stays as it is.
    """
    from ctxkit.cli.session_index import SessionIndex

    index, files = SessionIndex(), select_log_files(place, since, project, tool)
    is_whole = every or out.json or out.html is not None
    # where the place does not tell a file's tool, only reading does
    tools_are_known = tool is None or all(file.tool for file in files)
    # files are sorted: the newest are enough, unless all rows or a filter ask for the others
    is_read_whole = is_whole or not tools_are_known
    read_logs = index.read_files(files) if is_read_whole else _read_newest(index, files, most)
    logs = filter_log_files_by_tool(read_logs, tool)
    files = files if tools_are_known else logs
    rows = [make_list_row(log, s) for log in logs for s in log.sessions or ()]
    shown_rows = rows if is_whole else rows[:most]
    omitted = len(files) - len(logs) + len(rows) - len(shown_rows)
    is_filtered = (since, project, tool) != (None, None, None)
    out.table(
        "Sessions",
        LIST_COLUMNS,
        shown_rows,
        []
        if out.json
        else [
            *_describe_list_total(shown_rows),
            *describe_omissions(logs, omitted, place=place, is_filtered=is_filtered),
        ],
    )
    index.save()


def _read_newest(
    index: SessionIndex, files: list[IndexedLogFile], most: int
) -> list[IndexedLogFile]:
    """Read files, the first ones first, until they hold so many sessions."""
    files_n = most
    while True:
        # some files hold no session: those of subagents, and those that cannot be read
        logs = index.read_files(files[:files_n])
        if files_n >= len(files) or sum(len(log.sessions or ()) for log in logs) >= most:
            return logs
        files_n *= 2


def _describe_list_total(rows: list[dict[str, Any]]) -> list[str]:
    """Return the sum of the listed costs, without and with subagents, and what it leaves out."""
    costs = [row["cost_usd"] for row in rows]
    if len(rows) < 2 or not any(costs):
        return []
    whole = sum(row["with_subagents_usd"] or row["cost_usd"] or 0.0 for row in rows)
    own = sum(cost or 0.0 for cost in costs)
    # compared as shown: sums of floats in another order differ in their last digits
    own_text, whole_text = f"${own:,.2f}", f"${whole:,.2f}"
    subagents = f", {whole_text} with their subagents" if whole_text != own_text else ""
    unpriced = costs.count(None)
    left_out = f"; {pluralize(unpriced, 'session')} without a cost" if unpriced else ""
    return [f"In all {own_text}{subagents}{left_out}."]


def select_log_files(
    place: str | None, since: float | None, project: str | None, tool: str | None
) -> list[IndexedLogFile]:
    """Return the log files that match the filters, newest first.

    Files of a given place have no known tool or project: there a project is part of a path, and
    `filter_log_files_by_tool` filters by the tool once the sessions are read.

    Args:
        place: a folder or file; None: the folders of all known tools.
        since: POSIX time; older files are left out. None: any time.
        project: part of a project's name or path, in any case of letters; None: any.
        tool: name of the tool; None: any.
    """
    from ctxkit.cli.session_index import list_log_files

    return [
        f
        for f in list_log_files(place)
        if (since is None or f.modified >= since)
        and (project is None or project.casefold() in _get_project(f).casefold())
        and (tool is None or f.tool in (tool, ""))
    ]


def _get_project(file: IndexedLogFile) -> str:
    return file.project or ("" if file.tool else str(Path(file.path).parent))


def filter_log_files_by_tool(logs: list[IndexedLogFile], tool: str | None) -> list[IndexedLogFile]:
    """Return the logs of a tool: as their place tells, else as they were read.

    Args:
        logs: log files that were read.
        tool: name of the tool, else of a log format; None: all logs.
    """
    if tool is None:
        return logs
    return [
        log
        for log in logs
        if log.tool == tool or (not log.tool and any(s.format == tool for s in log.sessions or ()))
    ]


def make_list_row(log: IndexedLogFile, indexed: IndexedSession) -> dict[str, Any]:
    """Return a row of the list of sessions.

    Args:
        log: the log file.
        indexed: one of its sessions.

    Returns:
        Values by column.
    """
    figures = msgspec.structs.asdict(indexed)
    del figures["spent"]
    name, title = figures.pop("id"), figures.pop("title")
    return {
        "modified": log.modified,
        "tool": log.tool or indexed.format,
        "project": log.project,
        "title": title or name,
        "session": name,
        **figures,
        "path": log.path,
    }


def describe_omissions(
    logs: list[IndexedLogFile], omitted: int = 0, *, place: str | None, is_filtered: bool = False
) -> list[str]:
    """Describe the sessions that a list leaves out: older ones, and logs that could not be read.

    Args:
        logs: the log files that were read.
        omitted: number of older files that were not read.
        place: the folder or file that was named; None: none was.
        is_filtered: whether a filter was set.

    Returns:
        Sentences, possibly none.
    """
    unreadable = [log for log in logs if log.error]
    has_sessions = len(unreadable) < len(logs)
    if has_sessions:  # beside sessions, only files that look like logs were expected to be some
        unreadable = [log for log in unreadable if Path(log.path).suffix.lower() in LOG_SUFFIXES]
    sentences = (
        [f"{omitted:,} older: --all shows them, --since and --tool choose."] if omitted > 0 else []
    )
    if unreadable and not has_sessions:
        sentences.append("No session that a reader knows is here.")
    if unreadable:
        reason = sanitize_line(unreadable[0].error or "", 120)
        sentences.append(
            f"{len(unreadable):,} could not be read, the first: {unreadable[0].path}: {reason}"
        )
    has_files = bool(logs) or omitted > 0
    if not has_files and is_filtered:
        sentences.append("Nothing fits --since, --project and --tool together.")
    elif not has_files:
        sentences.append(
            arguments_and_output.NO_SESSION
            if place is None
            else f"No file that may be a log is at {sanitize_line(place, 200)!r}."
        )
    return sentences


@click.command()
@arguments_and_output.newest_session_argument
@click.option("--call", default=-1, show_default=True, help="Number of the call; -1 is the last.")
@arguments_and_output.add_json_and_html_options
def report_(out: CommandOutput, *, session: str, call: int) -> None:
    """Say what fills the window of SESSION at a call: parts, largest messages, and their sources.

    Without SESSION: of the newest one. With --html the page has the whole report: charts,
    compactions, what was lost.
    """
    from ctxkit.cli.arguments_and_output import locate_session, open_session

    path, indexed = locate_session(session)
    if indexed is not None and not (out.json or out.html):
        print_indexed_figures(indexed)  # at once, as a long log takes time to read
    opened = open_session(path, indexed)
    if out.html is not None:
        from ctxkit.widgets.reports import export

        print_to_stderr(f"written: {export(opened, out.html)}")
        return
    from ctxkit.metrics.context_window_report import report

    context_report = report(opened, call)
    if out.json:
        import msgspec

        print_json(msgspec.to_builtins(context_report))
    else:
        print_wrapped_lines(context_report.to_text())


def print_indexed_figures(indexed: IndexedSession) -> None:
    """Print the figures of a session from the index, before its log is read."""
    parts = [sanitize_line(indexed.title or indexed.id, 60), pluralize(indexed.calls_n, "call")]
    if indexed.cost_usd:
        parts.append(f"{format_value(indexed.cost_usd, 'usd')} ({indexed.cost_source})")
    print_wrapped_lines(", ".join(filter(None, parts)) + "\n")
    sys.stdout.flush()


def _get_week(day: str) -> str:
    if not day:
        return ""
    date_of_day = date.fromisoformat(day)
    # a week is named by its Monday
    return (date_of_day - timedelta(days=date_of_day.weekday())).isoformat()


SPEND_GROUPINGS: dict[str, Callable[[IndexedLogFile, IndexedSession, DailyModelSpend], str]] = {
    "day": lambda log, session, spent: spent.day,  # noqa: ARG005
    "week": lambda log, session, spent: _get_week(spent.day),  # noqa: ARG005
    "month": lambda log, session, spent: spent.day[:7],  # noqa: ARG005
    "model": lambda log, session, spent: spent.model,  # noqa: ARG005
    "project": lambda log, session, spent: log.project or "",  # noqa: ARG005
    "tool": lambda log, session, spent: log.tool or session.format,  # noqa: ARG005
    "session": lambda log, session, spent: session.title or session.id,  # noqa: ARG005
}
"""Functions that return the group of a day's spending, by the word of `--by`."""
_UNKNOWN_GROUP = "unknown"


@click.command()
@click.argument("place", required=False, type=click.Path())
@click.option("--by", type=click.Choice(list(SPEND_GROUPINGS)), help="What a row is; default: day.")
@arguments_and_output.since_option
@arguments_and_output.project_option
@arguments_and_output.tool_option
@arguments_and_output.add_json_and_html_options
def spend_(
    out: CommandOutput,
    *,
    place: str | None,
    by: str | None,
    since: float | None,
    project: str | None,
    tool: str | None,
) -> None:
    """Say what sessions cost, with their summaries and subagents: of all tools, or at PLACE.

    PLACE is a folder or a file, or a SESSION, as `last`; one session is answered by what its money
    continued, unless --by asks for rows.

    Days are UTC. `total_usd` is the sum of what has a price. Dollars are
    the log's own, else usage times the table of prices; calls of models
    without a price are counted and add nothing to it: the last column says how many.
    """
    from ctxkit.cli.arguments_and_output import print_text_or_write_html
    from ctxkit.cli.session_index import SessionIndex
    from ctxkit.metrics.cost.spend_by_turn_tool_file import spend

    index = SessionIndex()
    logs = _find_spend_logs(index, place, since, project, tool)
    index.save()
    sessions = [(log.path, s) for log in logs for s in log.sessions or ()]
    if place is not None and by is None and len(sessions) == 1 and not out.json:
        print_text_or_write_html(out, "What it cost", spend(open_session(*sessions[0])))
        return
    by = by or "day"
    rows = sum_spend_by_group(logs, by, since)
    is_filtered = (since, project, tool) != (None, None, None)
    notes = [
        *_describe_total(rows),
        *describe_omissions(logs, place=place, is_filtered=is_filtered),
    ]
    out.table(f"Spent by {by}", _spend_columns(by), rows, [] if out.json else notes)


def _find_spend_logs(
    index: SessionIndex,
    place: str | None,
    since: float | None,
    project: str | None,
    tool: str | None,
) -> list[IndexedLogFile]:
    """Return the logs at a place; a word that is no path names one session."""
    if place is None or is_path(place):
        return filter_log_files_by_tool(
            index.read_files(select_log_files(place, since, project, tool)), tool
        )
    log, session = find_indexed_session(place, index)
    return [msgspec.structs.replace(log, sessions=(session,))]


def sum_spend_by_group(
    logs: list[IndexedLogFile], by: str, since: float | None = None
) -> list[dict[str, Any]]:
    """Sum up the spending of sessions by day, model or another group.

    Args:
        logs: log files that were read.
        by: the group, a key of `SPEND_GROUPINGS`.
        since: POSIX time; earlier days (UTC) do not count. None: all do.

    Returns:
        One row per group: in order of time for days, weeks and months, else the most dollars first.
    """
    # days in ISO form sort as text as they do in time
    first_day = "" if since is None else strftime("%Y-%m-%d", gmtime(since))
    rows: dict[str, dict[str, Any]] = {}
    for log in logs:
        for session in log.sessions or ():
            for spent in session.spent:
                if spent.day and spent.day < first_day:
                    continue
                name = SPEND_GROUPINGS[by](log, session, spent) or _UNKNOWN_GROUP
                _add_spend(rows.setdefault(name, _make_spend_row(by, name)), session, spent)
    totals = list(rows.values())
    for row in totals:
        row["sessions_n"] = len(row.pop("ids"))
    is_by_time = by in ("day", "week", "month")
    return sorted(totals, key=lambda r: r[by] if is_by_time else -(r["total_usd"] or 0.0))


def _make_spend_row(by: str, name: str) -> dict[str, Any]:
    counts = dict.fromkeys(("calls_n", "prompt_tokens", "output_tokens", "unpriced_n"), 0)
    return {by: name, "total_usd": None, **counts, "ids": set()}


def _add_spend(row: dict[str, Any], session: IndexedSession, spent: DailyModelSpend) -> None:
    row["ids"].add(session.id)
    if spent.usd is not None:
        row["total_usd"] = spent.usd + (row["total_usd"] or 0.0)
    # a row without calls is a summary without a price, which counts as one
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
        TableColumn("total_usd", "cost", "usd"),
        unpriced,
    )


def _describe_total(rows: list[dict[str, Any]]) -> list[str]:
    if len(rows) < 2:
        return []
    calls = pluralize(sum(r["calls_n"] for r in rows), "call")
    return [f"In all ${sum(r['total_usd'] or 0.0 for r in rows):,.2f} for {calls}."]


_GAUGE_CELLS = 16
_FIRST_LOOK_LINES = 10


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
    path, indexed = locate_session(session)
    lines_shown = last_stamp = None
    for look in count(1):
        # the log is read again only where its time or its size has changed
        stamp = _get_stamp(path)
        if stamp != last_stamp:
            last_stamp = stamp
            try:
                log = open_session(path, indexed)
            except ReadError:
                if look == 1:
                    raise
                last_stamp = None  # it is being written: the next look finds it whole
            else:
                lines = list(format_calls_and_compactions(log))
                # The first look shows the last lines alone; later looks show what is new. A log
                # that was rewritten may be shorter: then nothing is shown twice.
                first_line = (
                    max(len(lines) - _FIRST_LOOK_LINES, 0) if lines_shown is None else lines_shown
                )
                for line in lines[first_line:]:
                    sys.stdout.write(cut_and_pad_text(line, get_screen_width()) + "\n")
                lines_shown = len(lines)
                sys.stdout.flush()
        if look == times:
            return
        time.sleep(every)


def _get_stamp(path: str) -> tuple[float, int]:
    from ctxkit.cli.session_index import stat_log_file

    file = stat_log_file(path)
    return file.modified, file.size


def format_calls_and_compactions(session: Session) -> Iterator[str]:
    """Yield a line for each call and each compaction, in their order."""
    from ctxkit.metrics.frames.per_call import rows
    from ctxkit.session.messages import Edit

    columns: dict[str, list[Any]] = rows([session])
    # the row of each call by its position, so that edits fall between the right calls
    calls = dict(zip(columns["position"], range(len(columns["call"])), strict=True))
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            yield f"       compaction: {sanitize_line(entry.reason or 'no reason given', 60)}"
        elif position in calls:
            yield _format_call({name: values[calls[position]] for name, values in columns.items()})


def _format_call(row: dict[str, Any]) -> str:
    tokens, limit = row["prompt_tokens"], row["context_limit"]
    share = (
        f"{_draw_gauge(tokens / limit)} {format_percent(tokens / limit):>5} "
        if tokens and limit
        else ""
    )
    size = f"{tokens:>9,}" if tokens is not None else f"{'':9}"
    cost = format_value(row["cost_usd"], "usd")
    model = sanitize_line(row["model"] or "", 24)
    return f"#{row['call']:<5} {share}{size} {cost:>8} {model}".rstrip()


def _draw_gauge(share: float) -> str:
    n = round(min(max(share, 0.0), 1.0) * _GAUGE_CELLS)
    return "█" * n + "░" * (_GAUGE_CELLS - n)
