"""The registry of readers: built-in, registered, from entry points; detection by content."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

from ctxkit.errors import BadArguments, ReadError, UnknownFormat, did_you_mean

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

ENTRY_POINT_GROUP = "ctxkit.readers"
READER_MODULES = (
    "native",
    "pi",
    "qwen",
    "claude_code",
    "codex",
    "codex_exec",
    "copilot",
    "fuseraft_snapshots",
    "fuseraft_events",
    "fuseraft_checkpoint",
    "fuseraft_turns",
    "gemini",
    "opencode",
    "tau_bench",
    "mini_swe_agent",
    "kimi",
    "swe_agent",
    "atif",
    "inspect_ai",
    "aider",
    "cline",
    "goose",
    "crush",
    "hermes",
    "sharegpt",
    "openhands",
    "langfuse",
    "langchain",
    "notebook",
    "mlflow",
    "otel",
    "anthropic",
    "openai_responses",
    "openai",
)
"""Modules of this package, in the order in which they are asked; the strict ones first."""


class Reader(Protocol):
    """What a member offers."""

    NAME: str

    def sniff(self, source: Source) -> bool:
        """Say whether the content looks like this format."""

    def read(self, source: Source) -> list[Session]:
        """Return the sessions of a file."""


_REGISTERED: dict[str, Reader] = {}


def register(reader: Any) -> None:
    """Let a reader of your own be asked, before all others, until the process ends.

    Args:
        reader: a module or any object with `NAME`, `sniff(source)` and `read(source)`; a notebook
            may register the same name again, with a newer form in the place of the older.

    Raises:
        BadArguments: something of these is missing, or the name is that of a reader of the kit.
    """
    checked = _check_reader(reader)
    if checked.NAME in {r.NAME for r in _installed()}:
        raise BadArguments(f"A reader {checked.NAME!r} is there already: give yours another NAME.")
    _REGISTERED[checked.NAME] = checked


def all_readers() -> tuple[Reader, ...]:
    """Return all readers: those that were registered, the kit's own, those of other packages.

    A reader of another package that cannot be loaded is named in a warning, once.
    """
    return (*_REGISTERED.values(), *_installed())


@cache
def _installed() -> tuple[Reader, ...]:
    own = [cast("Reader", import_module(f"ctxkit.formats.{name}")) for name in READER_MODULES]
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            reader = point.load()
            own.append(_check_reader(reader))
        except Exception as e:  # noqa: BLE001  another's code may raise anything
            warnings.warn(
                f"The reader {point.name!r} could not be loaded: {type(e).__name__}: {e}",
                stacklevel=2,
            )
    return tuple(own)


def _check_reader(reader: Any) -> Reader:
    parts = [getattr(reader, name, None) for name in ("NAME", "sniff", "read")]
    if not (isinstance(parts[0], str) and parts[0] and callable(parts[1]) and callable(parts[2])):
        raise BadArguments("A reader has NAME (a text), sniff(source) and read(source).")
    return cast("Reader", reader)


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, as `format=` takes them."""
    return tuple(m.NAME for m in all_readers())


def get_reader(format: str) -> Reader:  # noqa: A002  the word that a user types
    """Return the reader of a format.

    Raises:
        UnknownFormat: there is none of that name.
    """
    wanted = str(format).lower().replace("_", "-").replace(" ", "-")
    for m in all_readers():
        if wanted == m.NAME or wanted in getattr(m, "ALIASES", ()):
            return m
    known = ", ".join(sorted(format_names()))
    raise UnknownFormat(
        f"There is no format {format!r}.{did_you_mean(wanted, format_names())} Known formats: "
        f"{known}."
    )


def detect_reader(source: Source) -> Reader:
    """Return the reader that knows the content of a file.

    Raises:
        UnknownFormat: none does; the sentence says what the file looks like.
        ReadError: the file cannot be opened.
    """
    if not (source.is_database or source.is_large) and source.is_blank:
        raise UnknownFormat("the file is empty: expected a session.", source.path)
    for m in all_readers():
        if source.is_database and not getattr(m, "TABLES", ()):
            continue
        if reader_matches(m, source):
            return m
    raise UnknownFormat(
        f"no reader knows this file ({source.looks}). Known formats: "
        f"{', '.join(format_names())}; format="
        " forces one.",
        source.path,
    )


def reader_matches(reader: Reader, source: Source) -> bool:
    """Say whether a reader knows a file; one that stumbles over it does not."""
    try:
        return bool(reader.sniff(source))
    except ReadError:
        raise
    except Exception:  # noqa: BLE001  what a reader stumbles over is not its format; others are still asked
        return False
