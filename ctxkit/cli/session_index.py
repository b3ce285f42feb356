"""Index of log files and their sessions, cached in the state folder."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from stat import S_ISDIR
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import ctxkit
from ctxkit._internal.disk_cache_by_file import FileCache, FileStamp
from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.gc_pause import pause_gc
from ctxkit.errors import CtxkitError
from ctxkit.metrics.figures_registered_by_view import register_view_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.metrics.cost.call_and_summary_charges import SessionBill
    from ctxkit.session.session import Session

INDEX_FILE = "seen.jsonl"
INDEX_VERSION = 3
"""Of what a line means; with that of the kit it is in the first line."""
_MAX_TITLE_CHARS = 2000
"""Characters of a title that are looked at."""
_MAX_STORED_SESSIONS = 500
"""Sessions of one file that are kept; a file with more is read again."""


class DailyModelSpend(NamedTuple):
    """Cost of the calls of one day to one model; summaries without a price are separate."""

    day: str
    """UTC, as 2026-08-31; empty where the log has no times."""
    model: str
    usd: float | None
    calls_n: int
    prompt_tokens: int
    output_tokens: int


class IndexedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session as a list shows it."""

    id: str
    title: str | None = None
    format: str = ""
    model: str | None = None
    began: float | None = None
    """Seconds since 1970, UTC."""
    calls_n: int = 0
    turns_n: int = 0
    compactions_n: int | None = None
    peak_tokens: int | None = None
    cost_usd: float | None = None
    """Of its calls and summaries, as the session frame has it."""
    with_subagents_usd: float | None = None
    """The same with its subagents'; missing where a part has no price."""
    cost_source: str | None = None
    notes: str | None = None
    spent: tuple[DailyModelSpend, ...] = ()


class IndexedLogFile(FileStamp, frozen=True, kw_only=True):
    """One log file, with the figures of its sessions."""

    tool: str = ""
    project: str | None = None
    sessions: tuple[IndexedSession, ...] | None = None
    """None: not read yet."""
    error: str | None = None
    """Why it cannot be read."""
    others: tuple[str, ...] = ()
    """Files that were read with it: those of its subagents."""


_FRAME_COLUMNS = (
    *("model", "calls_n", "turns_n", "compactions_n", "peak_tokens", "cost_usd", "cost_source"),
    "notes",
)
"""Fields that are taken unchanged from the session frame."""


class SessionIndex:
    """The notes of former looks; `read` takes from them what still holds."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            from ctxkit.agent.ctxkit_folder_and_session_trust import get_user_state_folder

            folder = get_user_state_folder()
        self._cache = FileCache(
            folder / INDEX_FILE, IndexedLogFile, INDEX_VERSION, ctxkit.__version__
        )

    def look_up(self, file: IndexedLogFile) -> IndexedLogFile:
        """Return a file with its sessions, if it was read before and has not changed since."""
        stored = self._cache.get(file)
        if stored is None:
            return file
        return msgspec.structs.replace(stored, tool=file.tool, project=file.project)

    def read_files(self, logs: Iterable[IndexedLogFile]) -> list[IndexedLogFile]:
        """Return files with their sessions, reading those that are new or have changed.

        A file that was read with another one, as its subagent's, is left out.
        """
        # a session is in no cycle: what was read of a file is freed before the next one is read
        with pause_gc():
            files = [
                self._read_file(self.look_up(file)) for file in wrap_in_progress_bar(list(logs))
            ]
        # taken from all files of the index: the main log may have been read at another time
        subagent_paths = {path for each in self.list_files() for path in each.others}
        return [each for each in files if each.path not in subagent_paths]

    def _read_file(self, file: IndexedLogFile) -> IndexedLogFile:
        if file.sessions is not None or file.error is not None:
            return file
        file = index_log_file(file)
        if len(file.sessions or ()) <= _MAX_STORED_SESSIONS:
            self._cache.put(file)
        return file

    def list_files(self) -> list[IndexedLogFile]:
        """Return all files that were ever read."""
        return self._cache.all()

    def save(self) -> None:
        """Write the notes for the next look; where that fails, nothing is lost but time."""
        self._cache.write()


def wrap_in_progress_bar(files: list[IndexedLogFile]) -> Iterable[IndexedLogFile]:
    """Return the work with a progress bar around it, where somebody sees it and it takes long."""
    import sys

    if not sys.stderr.isatty():
        return files
    from tqdm import tqdm

    return tqdm(files, "reading", unit="file", leave=False, delay=1)


def index_log_file(file: IndexedLogFile) -> IndexedLogFile:
    """Return a file with its sessions, or with why it cannot be read."""
    from ctxkit.formats.reading import get_subagent_paths, read_all

    try:
        loaded = read_all(file.path, progress=False)
        sessions = tuple(index_session(s) for s in loaded)
    except CtxkitError as error:
        return msgspec.structs.replace(file, error=str(error))
    if not sessions:
        reason = (
            loaded.failures[0][2] if loaded.failures else "it is no session that a reader knows."
        )
        return msgspec.structs.replace(file, error=reason)
    others = tuple(sorted({path for s in loaded for path in get_subagent_paths(s)}))
    return msgspec.structs.replace(file, sessions=sessions, others=others)


def index_session(session: Session) -> IndexedSession:
    """Return what a list shows of a session."""
    from ctxkit.metrics.cost.session_bill import bill_session
    from ctxkit.metrics.frames.per_session import make_session_list_row
    from ctxkit.session.titles import get_title

    bill = bill_session(session)
    row = make_session_list_row(session, bill)
    spent = tuple(_spend_by_day(session, row, bill))
    prices = [each.usd for each in spent]
    is_priced = bool(prices) and None not in prices
    return IndexedSession(
        id=session.id,
        title=sanitize_line(get_title(session, _MAX_TITLE_CHARS), 200),
        format=session.format,
        began=row["ts"],
        with_subagents_usd=sum(p or 0.0 for p in prices) if is_priced else None,
        spent=spent,
        **{name: row[name] for name in _FRAME_COLUMNS},
    )


# Charges of calls are added up by day and model. Where the log has no calls with a bill, its own
# totals count as one day. A summary is added to the day of the call that saw it first, or else to
# the last day, so that no row holds summaries alone. A summary without a price is a row of its own,
# as one unknown price would make the whole day unknown. Subagents are billed the same way. Cost:
# linear in calls and summaries.
def _spend_by_day(
    session: Session, row: dict[str, Any], bill: SessionBill
) -> Iterator[DailyModelSpend]:
    """Yield what a session and its subagents spent, by day and model.

    A summary counts on the day of the call that was shown it first, else of the last call.
    """
    from ctxkit.metrics.cost.session_bill import bill_session
    from ctxkit.metrics.frames.per_session import make_session_list_row

    sums = dict[tuple[str, str], _SpendSum]()

    def of(call: int) -> tuple[str, str]:
        reply = session.calls[call].message
        return _format_day(reply.time or row["ts"]), reply.model or session.model or ""

    for charge in bill.charges:
        key = of(charge.call)
        if key not in sums:
            sums[key] = _SpendSum()
        sums[key].add(charge.usd, 1, charge.prompt, charge.output)
    logged = row["logged_prompt_tokens"] or 0, row["logged_output_tokens"] or 0
    if not sums and (bill.logged_usd is not None or logged[0]):  # the log's own totals
        key = _format_day(row["ts"]), row["model"] or ""
        sums[key] = _SpendSum()
        sums[key].add(bill.logged_usd, row["calls_n"], *logged)
    if sums:
        last = next(reversed(sums))
        for summary in bill.summaries:
            day = last if summary.call is None else of(summary.call)
            if summary.usd is not None:
                sums[day if day in sums else last].add(summary.usd)
        for key, spent in sums.items():  # what has no price, beside what has
            yield DailyModelSpend(*key, spent.usd, spent.calls_n, spent.prompt, spent.output)
        yield from [DailyModelSpend(*last, None, 0, 0, 0)] * bill.unpriced_summaries_n
    for child in session.children:
        child_bill = bill_session(child)
        yield from _spend_by_day(child, make_session_list_row(child, child_bill), child_bill)


class _SpendSum(msgspec.Struct, gc=False):
    """A sum of calls of one day and model; without dollars once one of them has no price."""

    usd: float | None = 0.0
    calls_n: int = 0
    prompt: int = 0
    output: int = 0

    def add(self, usd: float | None, calls_n: int = 0, prompt: int = 0, output: int = 0) -> None:
        self.usd = None if usd is None or self.usd is None else self.usd + usd
        self.calls_n += calls_n
        self.prompt += prompt
        self.output += output


def _format_day(seconds: float | None) -> str:
    return "" if seconds is None else _format_day_number(int(seconds // 86_400))


@lru_cache(maxsize=4096)
def _format_day_number(days: int) -> str:
    return strftime("%Y-%m-%d", gmtime(days * 86_400))


def list_log_files(place: str | os.PathLike[str] | None = None) -> list[IndexedLogFile]:
    """Return the files of known tools, or of a folder, the newest first; none is opened.

    Args:
        place: a file or folder; None: the places of all known tools.

    Returns:
        Path, size and time of each file, without its sessions.
    """
    from ctxkit.formats.log_discovery import get_location_project, iter_session_files

    if place is not None:
        return _sort_newest_first(_find_log_files(Path(place).expanduser()))
    files = []
    for location, entry, folders in iter_session_files():
        is_folder = entry.name == "base_state.json"  # its folder is the session
        path = os.path.dirname(entry.path) if is_folder else entry.path  # noqa: PTH120
        with suppress(OSError):
            files.append(
                _make_log_file(
                    path, entry.stat(), location.tool, get_location_project(location, folders)
                )
            )
    return _sort_newest_first(files)


def stat_log_file(path: str) -> IndexedLogFile:
    """Return one file as it is there now; one that is not there is empty.

    Args:
        path: path of a log.

    Returns:
        Size and time; a size of -1 for a file that is not there.
    """
    with suppress(OSError):
        return _make_log_file(os.path.abspath(path), os.stat(path), "", None)  # noqa: PTH100, PTH116
    return IndexedLogFile(path=path, modified=0.0, size=-1)


def _find_log_files(place: Path) -> Iterator[IndexedLogFile]:
    from ctxkit.formats.reading import find_unread_logs

    for each in find_unread_logs(place):
        with suppress(OSError):
            yield _make_log_file(os.path.abspath(each.path), each.path.stat(), "", None)  # noqa: PTH100


def _make_log_file(
    path: str, stat: os.stat_result, tool: str, project: str | None
) -> IndexedLogFile:
    if not S_ISDIR(stat.st_mode):
        return IndexedLogFile(
            path=path, modified=stat.st_mtime, size=stat.st_size, tool=tool, project=project
        )
    # a folder is as new as its newest file, and as large as all of them
    inner = [entry.stat() for entry in os.scandir(path)]
    last = max((s.st_mtime for s in inner), default=stat.st_mtime)
    size = sum(s.st_size for s in inner)
    return IndexedLogFile(path=path, modified=last, size=size, tool=tool, project=project)


def _sort_newest_first(files: Iterable[IndexedLogFile]) -> list[IndexedLogFile]:
    return sorted(files, key=lambda f: -f.modified)


@register_view_values("ctxkit list and ctxkit spend")
def _read_figures(session: Session) -> dict[str, Any]:
    indexed = index_session(session)
    figures = {name: getattr(indexed, name) for name in _FRAME_COLUMNS if name.endswith("_usd")}
    figures |= {name: getattr(indexed, name) for name in ("calls_n", "turns_n", "compactions_n")}
    if indexed.with_subagents_usd is not None:
        figures["with_subagents_usd"] = indexed.with_subagents_usd
    return figures | {"peak_tokens": indexed.peak_tokens, "cost_source": indexed.cost_source}
