"""Search in files below a root with ripgrep or Python, without following links."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from itertools import chain, groupby
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ctxkit.agent.tools import file_search_worker
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ctxkit._internal.safe_files import SafeFolder
    from ctxkit.agent.tools.confined_root import RootFolder


MAX_HITS = 200
SEARCH_SECONDS = 20.0
"""Seconds that a search may take."""
_HIT_LINE = re.compile(rb"(?s)(?:\./)?(.+?)\0(\d+):(.*)")
_UNREADABLE_LINE = re.compile(r"(?:rg: )?(?:\./)?(.*?): .*\(os error \d+\)")
_COMPARED_BYTES = 200
"""Bytes at the start of a line that are compared between a hit and the file."""


class SearchResult(NamedTuple):
    """Result of a search: lines with hits, and notes on what was not searched."""

    hits: list[str]
    notes: list[str]


# Why ripgrep's output is not shown as it is
#
# ripgrep opens files by their full path, and another process may put a link into that path
# meanwhile. So only the places of its hits are used: each line is read again through the root,
# which follows no link, and a hit that is not there (any more) is counted and left out. The Python
# search reads every file through the root itself. Its regular expression may backtrack for ever,
# so it runs in a process that can be killed. Both stop after SEARCH_SECONDS and MAX_HITS.


def search_files(root: RootFolder, pattern: str, path: str, files: str) -> str:
    """Return the hits as lines `file:line: text`, and notes on what was not searched.

    Args:
        root: the root folder.
        pattern: a regular expression.
        path: a folder or a file inside the root.
        files: names of files to search, such as `*.py`.

    Returns:
        At most `MAX_HITS` lines; notes name files that were not read, and a search that took too
        long.

    Raises:
        BadArguments: the pattern is no regular expression.
        StoreError: the path leads out of the root, or does not exist.
    """
    if "\0" in pattern + files:
        raise BadArguments("A pattern has no NUL characters.")
    program = shutil.which("rg")
    result = (
        _search_ripgrep(program, root, pattern, path, files)
        if program
        else _search_python(root, pattern, path, files)
    )
    no_hits = "(no hits in what was looked at)" if result.notes else "(no hits)"
    lines = result.hits[:MAX_HITS] or [no_hits]
    if len(result.hits) > MAX_HITS:
        lines.append(f"[more than {MAX_HITS} hits: narrow the pattern]")
    return "\n".join([*lines, *result.notes])


@contextmanager
def kill_after(
    process: subprocess.Popen[bytes], seconds: float = SEARCH_SECONDS
) -> Iterator[threading.Event]:
    """Kill a process after `seconds` and at the end of the block; the event is set on timeout.

    Args:
        process: that was started; its pipes are closed at the end.
        seconds: time limit.

    Yields:
        An event that is set if the time ran out.
    """
    late = threading.Event()

    def end_process() -> None:
        late.set()
        process.kill()

    clock = threading.Timer(seconds, end_process)
    clock.daemon = True
    clock.start()
    try:
        with process:  # on exit it waits for the process and closes its pipes
            try:
                yield late
            finally:
                process.kill()
    finally:
        clock.cancel()


def _search_python(root: RootFolder, pattern: str, path: str, files: str) -> SearchResult:
    """Search with Python's regular expressions, in a worker process that can be killed."""
    walk = FolderWalk(root, path, files)
    scan = PythonSearchProcess(walk, pattern, MAX_HITS + 1)  # one more shows that more are there
    with kill_after(scan.process, SEARCH_SECONDS) as late:
        hits, errors = scan.results()
    if scan.process.returncode == file_search_worker.BAD_PATTERN_STATUS:
        raise BadArguments(_bad_pattern_message(errors))
    notes = [walk.describe_unreadable(), scan.describe_unreadable()]
    if late.is_set():
        notes.append(
            f"[{_timeout_note()}: it was at {scan.at}, and did not look at what comes after]"
        )
    elif scan.failed:
        notes.append(f"[the search broke off at {scan.at} ({scan.failed})]")
    return SearchResult(hits, [n for n in notes if n])


def _search_ripgrep(
    program: str, root: RootFolder, pattern: str, path: str, files: str
) -> SearchResult:
    """Search with ripgrep, then read its hits again part by part below the root."""
    command = [program, "--no-config", "--no-heading", "--line-number", "--with-filename", "--null",
               "--color=never", "--sort=path", "--max-columns=400", "--max-columns-preview",
               "--line-buffered", "--no-ignore", "--hidden", "--encoding=none", f"--glob={files}",
               *(f"--glob=!{name}" for name in SKIPPED_FOLDERS),
               "-e", pattern, "--", "/".join(root.parts(path, there=True)) or "."]  # fmt: skip
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603  no shell, a fixed program, pattern after -e
            command, cwd=root.folder, stdout=subprocess.PIPE, stderr=errors
        )
        with kill_after(process, SEARCH_SECONDS) as late:
            places = _parse_hits(process.stdout)
        errors.seek(0)
        error_lines = errors.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
    missed = [match[1] for line in error_lines if (match := _UNREADABLE_LINE.fullmatch(line))]
    if process.returncode == 2 and not places and len(missed) < len(error_lines):
        raise BadArguments(_bad_pattern_message("\n".join(error_lines)))
    hits, changed_hits = _confirm_hits(root, places)
    notes = []
    if missed:
        existing = [name for name in missed if root.exists(tuple(name.split("/")))]
        changed_count = len(missed) - len(existing)
        changed = [f"{changed_count:,} that changed or lie too deep"] if changed_count else []
        named = filter(None, [abbreviate_names(existing)])
        notes.append(f"[not looked at: {', '.join([*named, *changed])}]")
    if changed_hits:
        notes.append(f"[{changed_hits} hits are left out: their files changed during the search]")
    if late.is_set():
        after = f" after {places[-1][0]}" if places else ""
        notes.append(f"[{_timeout_note()}: not all files{after} were looked at]")
    return SearchResult(hits, notes)


def _parse_hits(lines: IO[bytes] | None) -> list[tuple[str, int, bytes]]:
    """Return file, line number and text of the hits, up to one more than `MAX_HITS`."""
    places: list[tuple[str, int, bytes]] = []
    for line in lines or ():
        hit = _HIT_LINE.fullmatch(line.rstrip(b"\n"))
        if hit:
            places.append((hit[1].decode("utf-8", "surrogateescape"), int(hit[2]), hit[3]))
        if len(places) > MAX_HITS:
            break
    return places


def _confirm_hits(root: RootFolder, places: list[tuple[str, int, bytes]]) -> tuple[list[str], int]:
    """Return the hits that are in the files below the root, and how many are not."""
    hits: list[str] = []
    for name, group in groupby(places, key=lambda place: place[0]):
        texts_by_line = {number: text for _, number, text in group}
        with suppress(StoreError, OSError), root.open_at(tuple(name.split("/"))) as file:
            for number, line in enumerate(file, 1):
                hit_text = texts_by_line.get(number)
                if (
                    hit_text is not None
                    and line.rstrip(b"\n")[:_COMPARED_BYTES] == hit_text[:_COMPARED_BYTES]
                ):
                    line_text = line.rstrip(b"\r\n").decode("utf-8", "replace")[
                        : file_search_worker.MAX_OUTPUT_CHARS
                    ]
                    hits.append(f"{_printable_name(name)}:{number}: {line_text}")
                if number >= max(texts_by_line):
                    break
    return hits, len(places) - len(hits)


def _printable_name(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _timeout_note() -> str:
    return f"stopped after {SEARCH_SECONDS:g} seconds; use a simpler pattern, or fewer files"


def _bad_pattern_message(error: str) -> str:
    return f"The pattern is no regular expression: {error[:300].strip().rstrip('.')}."


_PIECE_BYTES = 1 << 20
"""Bytes of a file that are fed at once."""


def start_search_worker(
    pattern: str, hits: int, texts: Iterable[Mapping[str, Any]]
) -> subprocess.Popen[bytes]:
    """Start the worker process of a search; a thread feeds it texts until it ends.

    Args:
        pattern: the regular expression.
        hits: number of hits after which it stops.
        texts: dictionaries with `name`, the number of the `first` line, and `text`.

    Returns:
        The process; it writes each file's name as JSON after a NUL, and hits as lines
        `file:line: text`.
    """
    process = subprocess.Popen(  # noqa: S603  our own script, which gets its data as data
        [sys.executable, "-I", "-S", str(file_search_worker.__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pipe, process.stdin = process.stdin, None  # it is the thread's from now on
    request = {"pattern": pattern, "hits": hits}
    threading.Thread(target=_feed_lines, args=(pipe, chain([request], texts)), daemon=True).start()
    return process


def _feed_lines(pipe: Any, lines: Iterable[Mapping[str, Any]]) -> None:
    with suppress(BrokenPipeError, ValueError), pipe:  # the worker has its hits, or was killed
        for line in lines:
            pipe.write(json.dumps(line).encode("ascii") + b"\n")


class PythonSearchProcess:
    """A running Python search: its process, and how far the files were fed to it.

    Args:
        walk: the files.
        pattern: the regular expression.
        hits: number of hits after which it stops.
    """

    def __init__(self, walk: FolderWalk, pattern: str, hits: int) -> None:
        self.at, self.failed = "the first file", ""
        """The file that is being searched; and the error that ended the walk, empty if none did."""
        self._unread: list[str] = []
        self.process = start_search_worker(pattern, hits, self._iter_texts(walk))

    def results(self) -> tuple[list[str], str]:
        """Return the lines with hits, and the process's error output, after it has ended."""
        pipe: Any = self.process.stdout
        hits = []
        for line in pipe:
            if line.startswith(b"\0"):
                self.at = json.loads(line[1:])
            else:
                hits.append(line.decode("utf-8", "replace").rstrip("\n"))
        errors: Any = self.process.stderr
        return hits, errors.read().decode("utf-8", "replace")

    def describe_unreadable(self) -> str:
        """Return a line on the files that could not be read; empty if all were."""
        return f"[not read: {abbreviate_names(self._unread)}]" if self._unread else ""

    def _iter_texts(self, walk: FolderWalk) -> Iterator[dict[str, Any]]:
        try:
            for entry in walk:
                yield from self._iter_file(entry)
        except Exception as e:  # noqa: BLE001  nobody else sees an error of this thread
            self.failed = type(e).__name__

    def _iter_file(self, entry: FileInOpenFolder) -> Iterator[dict[str, Any]]:
        """Yield a text file in pieces of whole lines; of a very long line its beginning."""
        first, carried = 1, b""
        try:
            file = os.fdopen(entry.folder.open(entry.name, os.O_RDONLY), "rb")
        except OSError:
            self._unread.append(entry.path)
            return
        with file:
            while piece := file.read(_PIECE_BYTES):
                if first == 1 and not carried and b"\0" in piece[:4096]:
                    return  # a binary file; ripgrep skips those, too
                whole, newline, rest = (carried + piece).rpartition(b"\n")
                carried = rest if newline else rest[: file_search_worker.MAX_LINE_CHARS]
                if newline:
                    yield {"name": entry.path, "first": first, "text": _decode_text(whole)}
                    first += whole.count(b"\n") + 1
            if carried:
                yield {"name": entry.path, "first": first, "text": _decode_text(carried)}


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


SKIPPED_FOLDERS = (".git", ".ctxkit")
"""Folders that are not entered, as their files are not the user's text."""


class FileInOpenFolder(NamedTuple):
    """A file in its folder, which is held open until the next entry is requested."""

    folder: SafeFolder
    name: str
    path: str
    """Relative to the root, with forward slashes."""


class FolderWalk:
    """The files below a folder whose names match a pattern, in the order of their paths.

    Depth is not limited; one folder is held open at a time.

    Args:
        root: the root folder.
        path: a folder below it, or a file.
        pattern: names of files, such as `*.py`.

    Raises:
        StoreError: the path leads out of the root, or does not exist.
    """

    def __init__(self, root: RootFolder, path: str, pattern: str) -> None:
        self._root, self._start, self._pattern = root, root.parts(path, there=True), pattern
        self.missed: list[str] = []
        """Folders that could not be entered, relative to the root."""

    def __iter__(self) -> Iterator[FileInOpenFolder]:
        if self._start and self._root.is_file(self._start):
            with self._root.open_parent(self._start) as folder:
                yield FileInOpenFolder(folder, self._start[-1], "/".join(self._start))
            return
        waiting, at = [self._start], self._start
        here: SafeFolder | None = None
        try:
            while waiting:
                parts = waiting.pop()
                try:
                    inside = here if parts and at == parts[:-1] else None
                    there, entries = self._enter_folder(parts, inside)
                except OSError:
                    self.missed.append("/".join(parts) or ".")
                    continue
                if here is not None:
                    here.close()
                here, at = there, parts
                for name, is_file in entries:
                    if is_file and fnmatch.fnmatch(name, self._pattern):
                        yield FileInOpenFolder(here, name, "/".join((*parts, name)))
                folders = [n for n, is_file in entries if not is_file and n not in SKIPPED_FOLDERS]
                waiting += [(*parts, n) for n in reversed(folders)]
        finally:
            if here is not None:
                here.close()

    def _enter_folder(
        self, parts: tuple[str, ...], inside: SafeFolder | None
    ) -> tuple[SafeFolder, list[tuple[str, bool]]]:
        """Return an open folder and its entries; entered from `inside`, else from the root."""
        folder = inside.open_folder(parts[-1]) if inside else self._root.open_subfolder(parts)
        try:
            return folder, folder.entries()
        except OSError:
            folder.close()
            raise

    def describe_unreadable(self) -> str:
        """Return a line on the folders that could not be entered; empty if all were."""
        return f"[not looked into: {abbreviate_names(self.missed)}]" if self.missed else ""


def abbreviate_names(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are.

    Args:
        names: names of files; each is cut to 200 characters.

    Returns:
        A phrase; empty without names.

    Example:
        >>> from ctxkit.agent.tools.file_search import abbreviate_names
        >>> abbreviate_names(["a", "b", "c", "d"])
        'a, b, c and 1 more'
    """
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(name[:200] for name in names[:3]) + more
