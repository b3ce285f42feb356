"""A session from whatever names it on a command line: a path, an id, a title, or `last`."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.commands.seen import LogFile, Seen, Sighting
    from ctxkit.session import Session

LAST = "last"
"""The session that was written to last."""
_LEAST = 4
"""Characters of an id or a title that are enough to mean it."""
_SHOWN = 5


class Word(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A word of the command line, with what a shell may complete it to."""

    def __init__(self, name: str, offered: Callable[[str], list[CompletionItem]]) -> None:
        self.name = name
        self._offered = offered

    def shell_complete(
        self,
        ctx: Any,  # noqa: ARG002
        param: Any,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return what begins so."""
        return self._offered(incomplete)


def _listed(incomplete: str) -> list[CompletionItem]:
    """Return sessions that were listed before, by id; files are left to the shell."""
    from ctxkit.commands.seen import Seen

    ids = [(s.id, s.title) for log in Seen().logs() for s in log.sessions or ()]
    found = [CompletionItem(i, help=t) for i, t in ids if i.startswith(incomplete)][:50]
    return [*found, CompletionItem(incomplete, type="file")]


def _presets(incomplete: str) -> list[CompletionItem]:
    from ctxkit.presets.preset_names import names

    return [CompletionItem(n) for n in ("all", *names()) if n.startswith(incomplete)]


SESSION_WORD, RULES_WORD = Word("session", _listed), Word("rules", _presets)


def session_of(word: str, seen: Seen | None = None) -> Session:
    """Return the session that a word names.

    Raises:
        BadArguments: no session is called that, or several are; the sentence names them.
        ReadError: its file cannot be read.
    """
    return opened(*meant(word, seen))


def meant(word: str, seen: Seen | None = None) -> tuple[str, Sighting | None]:
    """Return the path that a word means, and what is known of the session without reading it."""
    from ctxkit.commands.seen import Seen, file

    seen = seen or Seen()
    if not is_path(word):
        log, sighting = sighted(word, seen)
        return log.path, sighting
    known = seen.known(file(word)).sessions or ()
    return word, known[0] if len(known) == 1 else None


def opened(path: str, sighting: Sighting | None) -> Session:
    """Return the session of a path; of several the one that was meant."""
    from ctxkit.readers.reader_names import read, read_all

    if sighting is not None:
        for session in read_all(path, progress=False):
            if session.id == sighting.id:
                return session
    return read(path)


def is_path(word: str) -> bool:
    """Say whether a word is meant as a path: something is there, or it has a separator."""
    return os.sep in word or Path(word).expanduser().exists()


def sighted(word: str, seen: Seen | None = None) -> tuple[LogFile, Sighting]:
    """Return the file and what is known of the session that an id, its beginning or a title names.

    What was listed before is asked first; only where nothing fits, the others are read.
    """
    from ctxkit.commands.seen import Seen, files

    seen, here = seen or Seen(), files()
    if word == LAST:
        newest = ((log, s) for f in here for log in seen.read([f]) for s in log.sessions or ())
        found = list(islice(newest, 1))
    else:
        paths = {f.path for f in here}
        known = [seen.known(f) for f in here] + [e for e in seen.logs() if e.path not in paths]
        found = _fitting(word, known) or _fitting(word, seen.read(here))
    seen.keep()
    if len(found) == 1:
        return found[0]
    if not found:
        ids = [s.id for log in seen.logs() for s in log.sessions or ()]
        raise BadArguments(
            f"No file and no session is called {line(word, 80)!r}: `ctxkit list` shows those of "
            f"this machine.{did_you_mean(word, ids)}"
        )
    told = "; ".join(
        f"{line(s.id, 40)} ({line(s.title or log.path, 60)})" for log, s in found[:_SHOWN]
    )
    raise BadArguments(
        f"{len(found)} sessions are meant by {line(word, 80)!r}: {told}. Say more of the id, "
        "or give the path."
    )


def _fitting(word: str, logs: Iterable[LogFile]) -> list[tuple[LogFile, Sighting]]:
    """Return the sessions of that id; else of that title, else whose id or title has it in it."""
    every = [(log, s) for log in logs for s in log.sessions or ()]
    low = word.casefold()
    tests: list[Callable[[Sighting], bool]] = [
        lambda s: s.id == word,
        lambda s: (s.title or "").casefold() == low,
    ]
    if len(word) >= _LEAST:
        tests += [
            lambda s: s.id.startswith(word),
            lambda s: low in (s.title or "").casefold(),
        ]
    return next((found for test in tests if (found := [e for e in every if test(e[1])])), [])
