"""Sessions that were read before: what a list shows of each, kept under the user's state folder.

A file is read again when its size or its time has changed. What is kept is no more than the list
shows (names, times, counts, dollars), for the owner only; without it all works, only slower.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import ctxkit
from ctxkit.errors import CtxkitError
from ctxkit.markup import line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ctxkit.session import Session

FILE = "seen.jsonl"
VERSION = 1
"""Of what a line means; with that of the kit it stands in the first line."""
_MOST = 100_000
_SOME = 500
"""Sessions of one file that are kept; a file with more is read again."""


class DaySpent(NamedTuple):
    """What the calls of a day to a model cost."""

    day: str
    """UTC, as 2026-08-31; empty where the log has no times."""
    model: str
    usd: float | None
    calls_n: int
    prompt_tokens: int
    output_tokens: int


class Sighting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    """Of its calls and summaries and its subagents'; missing where one has no price."""
    cost_source: str | None = None
    notes: str | None = None
    spent: tuple[DaySpent, ...] = ()


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file, and what is known of the sessions in it."""

    path: str
    modified: float
    size: int
    tool: str = ""
    project: str | None = None
    sessions: tuple[Sighting, ...] | None = None
    """None: not read yet."""
    error: str | None = None
    """Why it cannot be read."""
    others: tuple[str, ...] = ()
    """Files that were read with it: those of its subagents."""


class Seen:
    """The notes of former looks; `read` takes from them what still holds."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            from ctxkit.store.trust import place

            folder = place()
        self.folder = folder
        self._known: dict[str, LogFile] = {}
        self._new = False
        with suppress(OSError, ValueError, RecursionError, msgspec.MsgspecError):
            self._load()

    def _load(self) -> None:
        first, _, rest = (self.folder / FILE).read_bytes().partition(b"\n")
        if msgspec.json.decode(first) == _head():
            self._known = {
                each.path: each for each in msgspec.json.Decoder(LogFile).decode_lines(rest)
            }

    def known(self, file: LogFile) -> LogFile:
        """Return a file with its sessions, if it was read before and has not changed since."""
        was = self._known.get(file.path)
        if was is None or (was.modified, was.size) != (file.modified, file.size):
            return file
        return msgspec.structs.replace(was, tool=file.tool, project=file.project)

    def read(self, logs: Iterable[LogFile]) -> list[LogFile]:
        """Return files with their sessions, reading those that are new or have changed.

        A file that was read with another one, as its subagent's, is left out.
        """
        out = [self._read(self.known(file)) for file in bar(list(logs))]
        others = {path for each in self._known.values() for path in each.others}
        return [each for each in out if each.path not in others]

    def _read(self, file: LogFile) -> LogFile:
        if file.sessions is not None or file.error is not None:
            return file
        file = looked_at(file)
        if len(file.sessions or ()) <= _SOME:
            self._known[file.path] = file
            self._new = True
        return file

    def logs(self) -> list[LogFile]:
        """Return all files that were ever read."""
        return list(self._known.values())

    def keep(self) -> None:
        """Write the notes for the next look; where that fails, nothing is lost but time."""
        if not self._new:
            return
        from ctxkit.tools.folders import Folder

        told = [*self._known.values()][-_MOST:]
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with Folder(self.folder.resolve()) as folder:
                folder.write(FILE, (msgspec.json.encode(e) + b"\n" for e in (_head(), *told)))
        self._new = False


def bar(work: list[LogFile]) -> Iterable[LogFile]:
    """Return the work with a progress bar around it, where somebody sees it and it takes long."""
    import sys

    if not sys.stderr.isatty():
        return work
    from tqdm import tqdm

    return tqdm(work, "reading", unit="file", leave=False, delay=1)


def _head() -> dict[str, Any]:
    return {"seen": VERSION, "ctxkit": ctxkit.__version__}


def looked_at(file: LogFile) -> LogFile:
    """Return a file with its sessions, or with why it cannot be read."""
    from ctxkit.readers.catalogue import places, read_all

    try:
        found = read_all(file.path, progress=False)
        sessions = tuple(sighting(s) for s in found)
    except CtxkitError as error:
        return msgspec.structs.replace(file, error=str(error))
    if not sessions:
        why = found.failures[0][2] if found.failures else "it is no session that a reader knows."
        return msgspec.structs.replace(file, error=why)
    others = tuple(sorted({path for s in found for path in places(s)}))
    return msgspec.structs.replace(file, sessions=sessions, others=others)


def sighting(session: Session) -> Sighting:
    """Return what a list shows of a session."""
    from ctxkit.frames.sessions import rows

    row = {name: values[0] for name, values in rows([session]).items()}
    spent = tuple(_spent(session, row))
    prices = [each.usd for each in spent]
    known = bool(prices) and None not in prices
    return Sighting(
        id=session.id,
        title=line(session.title, 200) if session.title else None,
        format=session.format,
        model=row["model"],
        began=row["ts"],
        calls_n=row["calls_n"],
        turns_n=row["turns_n"],
        compactions_n=row["compactions_n"],
        peak_tokens=row["peak_tokens"],
        cost_usd=sum(p or 0.0 for p in prices) if known else None,
        cost_source=row["cost_source"] if known else None,
        notes=row["notes"],
        spent=spent,
    )


def _spent(session: Session, row: dict[str, Any]) -> Iterator[DaySpent]:
    """Yield what a session and its subagents spent, by day and model."""
    from ctxkit.frames import calls, sessions

    of = calls.rows([session])
    billed = [i for i, n in enumerate(of["prompt_tokens"]) if n is not None]
    whole = row["cost_usd"] is not None
    extra = row["summaries_usd"] or 0.0
    sums: dict[tuple[str, str], list[Any]] = {}
    for i in billed:
        day, model = _day(of["ts"][i] or row["ts"]), of["model"][i] or session.model or ""
        found = sums.setdefault((day, model), [0.0, 0, 0, 0])
        cost = of["cost_usd"][i]
        found[0] = None if cost is None or found[0] is None else found[0] + cost
        for at, n in enumerate((1, of["prompt_tokens"][i], of["output_tokens"][i] or 0), 1):
            found[at] += n
    if not billed and (whole or row["prompt_tokens"]):
        told = [
            row["cost_usd"],
            row["calls_n"],
            row["prompt_tokens"] or 0,
            row["output_tokens"] or 0,
        ]
        sums[(_day(row["ts"]), row["model"] or "")] = told
    if extra and sums:
        last = [*sums.values()][-1]
        last[0] = None if last[0] is None else last[0] + extra
    yield from (DaySpent(day, model, *found) for (day, model), found in sums.items())
    for child in session.children:
        about = {name: values[0] for name, values in sessions.rows([child]).items()}
        yield from _spent(child, about)


def _day(seconds: float | None) -> str:
    return "" if seconds is None else strftime("%Y-%m-%d", gmtime(seconds))


def files(place: str | os.PathLike[str] | None = None) -> list[LogFile]:
    """Return the files of known tools, or of a folder, the newest first; none is opened."""
    from ctxkit.discoveries import found, project_of

    if place is not None:
        return _newest(_below(Path(place).expanduser()))
    out = []
    for where, entry, folders in found():
        whole = entry.name == "base_state.json"  # its folder is the session
        path = os.path.dirname(entry.path) if whole else entry.path  # noqa: PTH120
        with suppress(OSError):
            out.append(_log(path, entry.stat(), where.tool, project_of(where, folders)))
    return _newest(out)


def file(path: str) -> LogFile:
    """Return one file as it lies there now; one that is not there is empty."""
    with suppress(OSError):
        return _log(os.path.abspath(path), os.stat(path), "", None)  # noqa: PTH100, PTH116
    return LogFile(path=path, modified=0.0, size=-1)


def _below(place: Path) -> Iterator[LogFile]:
    from ctxkit.readers.catalogue import logs_at

    for each in logs_at(place):
        with suppress(OSError):
            yield _log(os.path.abspath(each.path), each.path.stat(), "", None)  # noqa: PTH100


def _log(path: str, stat: os.stat_result, tool: str, project: str | None) -> LogFile:
    if not S_ISDIR(stat.st_mode):
        return LogFile(
            path=path, modified=stat.st_mtime, size=stat.st_size, tool=tool, project=project
        )
    inner = [entry.stat() for entry in os.scandir(path)]
    last = max((s.st_mtime for s in inner), default=stat.st_mtime)
    size = sum(s.st_size for s in inner)
    return LogFile(path=path, modified=last, size=size, tool=tool, project=project)


def _newest(found: Iterable[LogFile]) -> list[LogFile]:
    return sorted(found, key=lambda f: -f.modified)
