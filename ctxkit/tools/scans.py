"""A search without ripgrep: files are read here, part by part, and searched in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from ctxkit.tools import scanner
from ctxkit.tools.walks import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ctxkit.tools.walks import FoundFile, Walk

_PIECE = 1 << 20
"""Bytes of a file that are handed over at once."""


def searching(
    pattern: str, hits: int, texts: Iterable[Mapping[str, Any]]
) -> subprocess.Popen[bytes]:
    """Return the process of a search, to which a thread hands texts until it wants no more.

    Args:
        pattern: the regular expression.
        hits: how many are asked for.
        texts: each with its `name`, the number of its `first` line, and its `text`.
    """
    process = subprocess.Popen(  # noqa: S603  our own script, which gets its data as data
        [sys.executable, "-I", "-S", str(scanner.__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pipe, process.stdin = process.stdin, None  # it is the thread's from now on
    asked = {"pattern": pattern, "hits": hits}
    threading.Thread(target=_feed, args=(pipe, chain([asked], texts)), daemon=True).start()
    return process


def _feed(pipe: Any, lines: Iterable[Mapping[str, Any]]) -> None:
    with suppress(BrokenPipeError, ValueError), pipe:  # it has its hits, or was ended
        for line in lines:
            pipe.write(json.dumps(line).encode("ascii") + b"\n")


class Scan:
    """A search under way: its process, and how far the files were handed to it.

    Args:
        walk: the files.
        pattern: the regular expression.
        hits: how many are asked for.
    """

    def __init__(self, walk: Walk, pattern: str, hits: int) -> None:
        self.at, self.failed = "the first file", ""
        """The file that is searched now; why the walk ended too early."""
        self._unread: list[str] = []
        self.process = searching(pattern, hits, self._texts(walk))

    def results(self) -> tuple[list[str], str]:
        """Return the lines of hits, and what the process had to complain of, when it has ended."""
        pipe: Any = self.process.stdout
        hits = []
        for line in pipe:
            if line.startswith(b"\0"):
                self.at = json.loads(line[1:])
            else:
                hits.append(line.decode("utf-8", "replace").rstrip("\n"))
        errors: Any = self.process.stderr
        return hits, errors.read().decode("utf-8", "replace")

    def told(self) -> str:
        """Return a line that says which files were not read; empty where all were."""
        return f"[not read: {some(self._unread)}]" if self._unread else ""

    def _texts(self, walk: Walk) -> Iterator[dict[str, Any]]:
        try:
            for found in walk:
                yield from self._text(found)
        except Exception as e:  # noqa: BLE001  a thread has nobody to tell but this
            self.failed = type(e).__name__

    def _text(self, found: FoundFile) -> Iterator[dict[str, Any]]:
        """Yield a text file in whole lines; of a long one its beginning."""
        first, carried = 1, b""
        try:
            file = os.fdopen(found.folder.open(found.name, os.O_RDONLY), "rb")
        except OSError:
            self._unread.append(found.path)
            return
        with file:
            while piece := file.read(_PIECE):
                if first == 1 and not carried and b"\0" in piece[:4096]:
                    return  # no text, which ripgrep passes over, too
                whole, newline, rest = (carried + piece).rpartition(b"\n")
                carried = rest if newline else rest[: scanner.LINE]
                if newline:
                    yield {"name": found.path, "first": first, "text": _decoded(whole)}
                    first += whole.count(b"\n") + 1
            if carried:
                yield {"name": found.path, "first": first, "text": _decoded(carried)}


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")
