"""Searches through text files: by ripgrep where it exists, else in a Python process.

What is shown was read part by part below the root: of ripgrep only the places of hits are believed,
as it opens files by their whole path, which another process may have led elsewhere meanwhile.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import IO, TYPE_CHECKING, NamedTuple

from ctxkit.errors import BadArguments, StoreError
from ctxkit.tools import scanner
from ctxkit.tools.scans import Scan
from ctxkit.tools.walks import PASSED_OVER, Walk, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.tools.root import Root

MAX_HITS = 200
SECONDS = 20.0
"""How long a search may take."""
_HIT = re.compile(rb"(?s)(?:\./)?(.+?)\0(\d+):(.*)")
_MISSED = re.compile(r"(?:rg: )?(?:\./)?(.*?): .*\(os error \d+\)")
_SAME = 200
"""Bytes of a line in which a hit and the file must agree."""


class Result(NamedTuple):
    """What a search gave: lines of hits, and lines about what it did not look at."""

    hits: list[str]
    notes: list[str]


def search(root: Root, pattern: str, path: str, files: str) -> str:
    """Return the hits as lines `file:line: text`, and what was not looked at.

    Args:
        root: where files are read.
        pattern: the regular expression.
        path: a folder, or one file, inside the root.
        files: names that are looked at, such as `*.py`.

    Raises:
        BadArguments: the pattern is no regular expression.
        StoreError: the path leads out of the root, or is not there.
    """
    if "\0" in pattern + files:
        raise BadArguments("A pattern has no NUL characters.")
    program = shutil.which("rg")
    found = (
        _ripgrep(program, root, pattern, path, files)
        if program
        else _scan(root, pattern, path, files)
    )
    none = "(no hits in what was looked at)" if found.notes else "(no hits)"
    lines = found.hits[:MAX_HITS] or [none]
    if len(found.hits) > MAX_HITS:
        lines.append(f"[more than {MAX_HITS} hits: narrow the pattern]")
    return "\n".join([*lines, *found.notes])


@contextmanager
def timed(process: subprocess.Popen[bytes], seconds: float = SECONDS) -> Iterator[threading.Event]:
    """End a process when the time is over, and at the end; the event says that it was late."""
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    clock = threading.Timer(seconds, end)
    clock.daemon = True
    clock.start()
    try:
        with process:  # waits for it, and closes its pipes
            try:
                yield late
            finally:
                process.kill()
    finally:
        clock.cancel()


def _scan(root: Root, pattern: str, path: str, files: str) -> Result:
    """Search with Python's regular expressions, in files and folders of any size and depth."""
    walk = Walk(root, path, files)
    scan = Scan(walk, pattern, MAX_HITS + 1)
    with timed(scan.process, SECONDS) as late:
        hits, said = scan.results()
    if scan.process.returncode == scanner.WRONG:
        raise BadArguments(_wrong(said))
    notes = [walk.told(), scan.told()]
    if late.is_set():
        notes.append(f"[{_late()}: it was at {scan.at}, and did not look at what comes after]")
    elif scan.failed:
        notes.append(f"[the search broke off at {scan.at} ({scan.failed})]")
    return Result(hits, [n for n in notes if n])


def _ripgrep(program: str, root: Root, pattern: str, path: str, files: str) -> Result:
    """Search with ripgrep, and read the lines that it names again, part by part."""
    command = [program, "--no-config", "--no-heading", "--line-number", "--with-filename", "--null",
               "--color=never", "--sort=path", "--max-columns=400", "--max-columns-preview",
               "--line-buffered", "--no-ignore", "--hidden", "--encoding=none", f"--glob={files}",
               *(f"--glob=!{name}" for name in PASSED_OVER),
               "-e", pattern, "--", "/".join(root.parts(path, there=True)) or "."]  # fmt: skip
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603  no shell, a fixed program, pattern after -e
            command, cwd=root.folder, stdout=subprocess.PIPE, stderr=errors
        )
        with timed(process, SECONDS) as late:
            places = _places(process.stdout)
        errors.seek(0)
        said = errors.read(1 << 20).decode("utf-8", "replace").strip().splitlines()
    missed = [found[1] for line in said if (found := _MISSED.fullmatch(line))]
    if process.returncode == 2 and not places and len(missed) < len(said):
        raise BadArguments(_wrong("\n".join(said)))
    hits, gone = _confirmed(root, places)
    notes = []
    if missed:
        known = [name for name in missed if root.is_there(tuple(name.split("/")))]
        rest = len(missed) - len(known)
        changed = [f"{rest:,} that changed or lie too deep"] if rest else []
        notes.append(f"[not looked at: {', '.join([*filter(None, [some(known)]), *changed])}]")
    if gone:
        notes.append(f"[{gone} hits are left out: their files changed during the search]")
    if late.is_set():
        after = f" after {places[-1][0]}" if places else ""
        notes.append(f"[{_late()}: not all files{after} were looked at]")
    return Result(hits, notes)


def _places(lines: IO[bytes] | None) -> list[tuple[str, int, bytes]]:
    """Return the file, line and text of hits, until there are enough."""
    places: list[tuple[str, int, bytes]] = []
    for line in lines or ():
        hit = _HIT.fullmatch(line.rstrip(b"\n"))
        if hit:
            places.append((hit[1].decode("utf-8", "surrogateescape"), int(hit[2]), hit[3]))
        if len(places) > MAX_HITS:
            break
    return places


def _confirmed(root: Root, places: list[tuple[str, int, bytes]]) -> tuple[list[str], int]:
    """Return hits as they stand in files below the root, and how many do not stand there."""
    hits: list[str] = []
    for name, group in groupby(places, key=lambda place: place[0]):
        wanted = {number: text for _, number, text in group}
        with suppress(StoreError, OSError), root.opened_at(tuple(name.split("/"))) as file:
            for number, line in enumerate(file, 1):
                said = wanted.get(number)
                if said is not None and line.rstrip(b"\n")[:_SAME] == said[:_SAME]:
                    shown = line.rstrip(b"\r\n").decode("utf-8", "replace")[: scanner.SHOWN]
                    hits.append(f"{_plain(name)}:{number}: {shown}")
                if number >= max(wanted):
                    break
    return hits, len(places) - len(hits)


def _plain(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _late() -> str:
    return f"stopped after {SECONDS:g} seconds; use a simpler pattern, or fewer files"


def _wrong(said: str) -> str:
    return f"The pattern is no regular expression: {said[:300].strip().rstrip('.')}."
