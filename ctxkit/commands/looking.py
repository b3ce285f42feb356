"""`ctxkit list` and `ctxkit report`: which sessions there are, and what fills the window."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from ctxkit.commands import options
from ctxkit.commands.printing import CALLS, COST, PEAK, Out, TableHead, dump, lines, say, written
from ctxkit.display.markup import line
from ctxkit.readers.log_folders import LOGS

if TYPE_CHECKING:
    from ctxkit.commands.seen import LogFile, Sighting

HEADS = (
    TableHead("modified", "last", "when"),
    TableHead("tool", "tool", most=11),
    TableHead("title", "title or id", wide=True),
    CALLS,
    TableHead("compactions_n", "cuts", "count"),
    PEAK,
    COST,
)
MOST = 20


@click.command()
@click.argument("place", required=False, type=click.Path())
@options.since
@options.project
@options.tool
@click.option("--most", "-n", default=MOST, show_default=True, type=click.IntRange(min=0))
@click.option("--all", "every", is_flag=True, help="All of them, however many.")
@options.answer
def list_(
    out: Out,
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
    from ctxkit.commands.seen import Seen

    seen, found = Seen(), wanted(place, since, project, tool)
    whole = every or out.json or out.html is not None
    told = all(file.tool for file in found) or tool is None  # else only reading says whose it is
    logs = of_tool(seen.read(found if whole or not told else found[:most]), tool)
    found = found if told else logs
    rows = [row(log, s) for log in logs for s in log.sessions or ()]
    taken = rows if whole else rows[:most]
    left = len(found) - len(logs) + len(rows) - len(taken)
    chosen = (since, project, tool) != (None, None, None)
    out.table("Sessions", HEADS, taken, [] if out.json else notes(logs, left, chosen=chosen))
    seen.keep()


def wanted(
    place: str | None, since: float | None, project: str | None, tool: str | None
) -> list[LogFile]:
    """Return the files that are asked for, the newest first.

    A place tells no tools and no projects: there a project is a part of a path, and all tools are
    here (`of_tool`).
    """
    from ctxkit.commands.seen import files

    return [
        f
        for f in files(place)
        if (since is None or f.modified >= since)
        and (project is None or project.casefold() in _project(f).casefold())
        and (tool is None or f.tool in (tool, ""))
    ]


def _project(file: LogFile) -> str:
    return file.project or ("" if file.tool else str(Path(file.path).parent))


def of_tool(logs: list[LogFile], tool: str | None) -> list[LogFile]:
    """Return the logs of a tool: as their place tells, else as they were read."""
    if tool is None:
        return logs
    return [
        log
        for log in logs
        if log.tool == tool or (not log.tool and any(s.format == tool for s in log.sessions or ()))
    ]


def row(log: LogFile, sighting: Sighting) -> dict[str, Any]:
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


def notes(logs: list[LogFile], left: int = 0, *, chosen: bool = False) -> list[str]:
    """Say what is not in the list: older sessions, and logs that could not be read."""
    bad = [log for log in logs if log.error and Path(log.path).suffix.lower() in LOGS]
    out = [f"{left:,} older: --all shows them, --since and --tool choose."] if left > 0 else []
    if bad:
        why = line(bad[0].error or "", 120)
        out.append(f"{len(bad):,} could not be read, the first: {bad[0].path}: {why}")
    if not logs and chosen:
        out.append("Nothing fits --since, --project and --tool together.")
    elif not logs:
        out.append("No sessions of known tools are here: give a file or a folder.")
    return out


@click.command()
@options.one_session
@click.option("--call", default=-1, show_default=True, help="Number of the call; -1 is the last.")
@options.answer
def report_(out: Out, *, session: str, call: int) -> None:
    """Say what fills the window of SESSION at a call: parts, largest messages, and their sources.

    With --html the page has the whole report: charts, compactions, what was lost.
    """
    from ctxkit.commands.finding import meant, opened

    path, sighting = meant(session)
    if sighting is not None and not (out.json or out.html):
        first(sighting)
    found = opened(path, sighting)
    if out.html is not None:
        from ctxkit.reports import export

        say(f"written: {export(found, out.html)}")
        return
    from ctxkit.composition import report

    made = report(found, call)
    if out.json:
        import msgspec

        dump(msgspec.to_builtins(made))
    else:
        lines(made.to_text())


def first(sighting: Sighting) -> None:
    """Print what is known of a session at once, before its log is read."""
    told = [line(sighting.title or sighting.id, 60), f"{sighting.calls_n:,} calls"]
    if sighting.cost_usd:
        told.append(f"{written(sighting.cost_usd, 'usd')} ({sighting.cost_source})")
    lines(", ".join(filter(None, told)) + "\n")
    sys.stdout.flush()
