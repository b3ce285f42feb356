"""A search without ripgrep: files are read here, part by part, and searched in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from ctxkit.tools import scanner
from ctxkit.tools.walks import some

if TYPE_CHECKING:
    from ctxkit.tools.walks import FoundFile, Walk

_PIECE = 1 << 20
"""Bytes of a file that are handed over at once."""


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
        self.process = subprocess.Popen(  # noqa: S603  our own script, which gets its data as data
            [sys.executable, "-I", "-S", str(scanner.__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        asked = {"pattern": pattern, "hits": hits}
        pipe, self.process.stdin = self.process.stdin, None  # it is the thread's from now on
        feeding = threading.Thread(target=self._feed, args=(pipe, walk, asked), daemon=True)
        feeding.start()

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

    def _feed(self, pipe: Any, walk: Walk, asked: dict[str, Any]) -> None:
        """Write the pattern and the files to the process, until it wants no more."""
        try:
            with pipe:
                pipe.write(_line(asked))
                for found in walk:
                    self._hand_over(pipe, found)
        except (BrokenPipeError, ValueError):
            return  # it has its hits, or was ended
        except Exception as e:  # noqa: BLE001  a thread has nobody to tell but this
            self.failed = type(e).__name__

    def _hand_over(self, pipe: Any, found: FoundFile) -> None:
        """Write a text file to the process in whole lines; of a long one its beginning."""
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
                    pipe.write(_line({"name": found.path, "first": first, "text": _text(whole)}))
                    first += whole.count(b"\n") + 1
            if carried:
                pipe.write(_line({"name": found.path, "first": first, "text": _text(carried)}))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode("ascii") + b"\n"
