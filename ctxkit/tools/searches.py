"""Searches through text files for a regular expression: by ripgrep where it exists, else in a Python process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, StoreError
from ctxkit.tools import scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ctxkit.tools.root import Root

MAX_HITS = 200
MAX_FILE = 2_000_000
SECONDS = 20.0
"""How long a search may take."""


def search(root: Root, pattern: str, folder: Path, files: str, walk: Iterable[Path]) -> str:
    """Return the hits as lines `file:line: text`.

    Args:
        root: where files are read.
        pattern: the regular expression.
        folder: a folder, or one file, inside the root.
        files: names that are looked at, such as `*.py`.
        walk: the files below the folder, for the search without ripgrep.

    Raises:
        BadArguments: the pattern is no regular expression.
        StoreError: the search took too long.
    """
    program = shutil.which("rg")
    hits = _ripgrep(program, root, pattern, folder, files) if program else _scan(root, pattern, walk)
    lines = list(islice(hits, MAX_HITS + 1))
    more = f"\n[more than {MAX_HITS} hits: narrow the pattern]" if len(lines) > MAX_HITS else ""
    return "\n".join(lines[:MAX_HITS]) + more or "(no hits)"


def _ripgrep(program: str, root: Root, pattern: str, folder: Path, files: str) -> Iterator[str]:
    command = [program, "--no-config", "--no-heading", "--line-number", "--with-filename", "--color=never",
               "--sort=path", "--max-columns=400", "--max-filesize=2M", "--no-ignore",
               f"--glob={files}", "--glob=!.git", "-e", pattern, "--", root.relative(folder)]  # fmt: skip
    try:
        done = subprocess.run(command, cwd=root.folder, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603  no shell, a fixed program, the pattern after -e
    except subprocess.TimeoutExpired:
        raise StoreError(_late()) from None
    if done.returncode == 2 and not done.stdout:
        raise BadArguments(_wrong(done.stderr))
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        yield re.sub(r"^(\./)?(.*?:\d+):", r"\2: ", line, count=1)


def _scan(root: Root, pattern: str, walk: Iterable[Path]) -> Iterator[str]:
    """Search in a process that is killed when the time is over: no thread can stop a regular expression."""
    process = subprocess.Popen(  # noqa: S603  our own script, which gets its data as data
        [sys.executable, "-I", "-S", str(scanner.__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    clock = threading.Timer(SECONDS, end)
    clock.daemon = True
    clock.start()
    threading.Thread(target=_feed, args=(process.stdin, root, pattern, walk), daemon=True, name="ctxkit-search").start()
    assert process.stdout is not None  # noqa: S101  for the type checker, as the next
    assert process.stderr is not None  # noqa: S101
    try:
        with process.stdout, process.stderr:
            found, said = process.stdout.read(), process.stderr.read()
            status = process.wait()
    finally:
        clock.cancel()
        process.kill()
    if late.is_set():
        raise StoreError(_late())
    if status:
        raise BadArguments(_wrong(said))
    yield from found.decode("utf-8", "replace").splitlines()


def _feed(pipe: Any, root: Root, pattern: str, walk: Iterable[Path]) -> None:
    """Write the pattern and the files to the process, until it wants no more."""
    with suppress(BrokenPipeError, ValueError), pipe:
        pipe.write(_line({"pattern": pattern, "hits": MAX_HITS + 1}))
        for path in walk:
            name = root.relative(path)
            try:
                data = root.read(name, MAX_FILE)
            except StoreError:  # gone, or not to be read: ripgrep passes it over, too
                continue
            if b"\0" not in data[:4096]:
                pipe.write(_line({"name": name, "text": data.decode("utf-8", "replace")}))


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"


def _late() -> str:
    return f"The search took more than {SECONDS:g} seconds; use a simpler pattern, or fewer files."


def _wrong(said: bytes) -> str:
    return "The pattern is no regular expression: " + said.decode(errors="replace")[:300].strip()
