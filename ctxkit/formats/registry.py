"""The registry of readers: built-in, registered, from entry points; detection by content."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ctxkit.errors import BadArguments, ReadError, UnknownFormat, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

ENTRY_POINT_GROUP = "ctxkit.readers"
READER_MODULES = (
    "native",
    "pi",
    "qwen",
    "claude_code",
    "codex",
    "codex_exec",
    "copilot_cli",
    "fuseraft_token_snapshot_logs",
    "fuseraft_events",
    "fuseraft_checkpoint",
    "fuseraft_post_mortem",
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
    "notebook_agent_cells",
    "mlflow",
    "otel",
    "anthropic",
    "openai_responses",
    "openai",
)
"""Modules of this package, in the order in which detection tries them."""
# Detection asks each reader in this order and takes the first whose `sniff` is true. A format
# whose records could pass for those of a more general one (Qwen's for Gemini's, a trace's for a
# plain list of messages) therefore comes before it; Chat Completions, which nearly any chat log
# resembles, is last. Readers that a user registers come first, those of other packages last.


class Reader(Protocol):
    """A reader of one log format: a module or object with a name, detection and reading.

    Example:
        >>> class EmptyReader:
        ...     NAME = "empty"
        ...     def sniff(self, source):
        ...         return False
        ...     def read(self, source):
        ...         return []
        >>> register(EmptyReader())
        >>> "empty" in format_names()
        True
    """

    NAME: str
    """The format's name, as `format=` takes it."""

    def sniff(self, source: Source) -> bool:
        """Return True if the content looks like this format; called with any file."""

    def read(self, source: Source) -> list[Session]:
        """Return the sessions of a file of this format.

        Raises:
            ReadError: the file holds no session of this format.
        """


_USER_READERS: dict[str, Reader] = {}


def register(reader: Any) -> None:
    """Register a reader for this process; it is tried before all others.

    Args:
        reader: a module or any object with `NAME`, `sniff(source)` and `read(source)`. Registering
            a name again replaces the earlier reader of that name.

    Raises:
        BadArguments: one of the three is missing, or a built-in reader has that name.

    Example:
        >>> from types import SimpleNamespace
        >>> reader = SimpleNamespace(
        ...     NAME="my-agent", sniff=lambda source: False, read=lambda source: []
        ... )
        >>> register(reader)
        >>> "my-agent" in format_names()
        True
    """
    checked = _check_reader(reader)
    others = (*map(_import_reader, READER_MODULES), *_load_foreign_readers())
    if checked.NAME in {r.NAME for r in others}:
        raise BadArguments(f"A reader {checked.NAME!r} is there already: give yours another NAME.")
    _USER_READERS[checked.NAME] = checked


def all_readers() -> tuple[Reader, ...]:
    """Return all readers: registered ones, built-in ones, then those of other packages.

    A reader of another package that cannot be loaded is named in a warning, once.

    Returns:
        Readers in the order in which `detect_reader` tries them.

    Example:
        >>> [reader.NAME for reader in all_readers() if reader.NAME.startswith("openai")]
        ['openai-responses', 'openai']
    """
    return tuple(iter_readers())


def iter_readers() -> Iterator[Reader]:
    """Yield all readers in the order of `all_readers`, each imported when it is reached.

    A file of a common format is thus recognized without importing 30 other readers.
    """
    yield from tuple(_USER_READERS.values())
    yield from map(_import_reader, READER_MODULES)
    yield from _load_foreign_readers()


@cache
def _import_reader(module: str) -> Reader:
    return cast("Reader", import_module(f"ctxkit.formats.{module}"))


@cache
def _load_foreign_readers() -> tuple[Reader, ...]:
    from importlib.metadata import entry_points  # 10 ms, which most commands do not need

    readers: list[Reader] = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            reader = point.load()
            readers.append(_check_reader(reader))
        except Exception as e:  # noqa: BLE001  another's code may raise anything
            warnings.warn(
                f"The reader {point.name!r} could not be loaded: {type(e).__name__}: {e}",
                stacklevel=2,
            )
    return tuple(readers)


def _check_reader(reader: Any) -> Reader:
    members = [getattr(reader, name, None) for name in ("NAME", "sniff", "read")]
    if not (
        isinstance(members[0], str) and members[0] and callable(members[1]) and callable(members[2])
    ):
        raise BadArguments("A reader has NAME (a text), sniff(source) and read(source).")
    return cast("Reader", reader)


def format_names() -> tuple[str, ...]:
    """Return the names of all formats that can be read, as `format=` takes them.

    Returns:
        Names in the order of `all_readers`, without the aliases.

    Example:
        >>> "claude-code" in format_names()
        True
    """
    return tuple(reader.NAME for reader in all_readers())


def get_reader(format: str) -> Reader:  # noqa: A002  the word that a user types
    """Return the reader of a format by its name or alias.

    Args:
        format: a name or alias in any case, with `-`, `_` or a blank.

    Returns:
        The first reader that has it.

    Raises:
        UnknownFormat: no reader has that name.

    Example:
        >>> get_reader("Claude_Code").NAME
        'claude-code'
    """
    normalized = str(format).lower().replace("_", "-").replace(" ", "-")
    for reader in iter_readers():
        if normalized == reader.NAME or normalized in getattr(reader, "ALIASES", ()):
            return reader
    choices = ", ".join(sorted(format_names()))
    raise UnknownFormat(
        f"There is no format {format!r}.{did_you_mean(normalized, format_names())} Known formats: "
        f"{choices}."
    )


def detect_reader(source: Source) -> Reader:
    """Return the first reader that recognizes the content of a file.

    Args:
        source: the file.

    Returns:
        The reader; its `read` gives the sessions of the file.

    Raises:
        UnknownFormat: no reader recognizes it; the error says what the file looks like.
        ReadError: the file cannot be opened.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.formats import Source
        >>> detect_reader(Source(ck.samples.path("chat"))).NAME
        'native'
    """
    if not (source.is_database or source.is_large) and source.is_blank:
        raise UnknownFormat("the file is empty: expected a session.", source.path)
    for reader in iter_readers():
        if source.is_database and not getattr(reader, "TABLES", ()):
            continue
        if is_reader_of(reader, source):
            return reader
    raise UnknownFormat(
        f"no reader knows this file ({source.description}): {len(format_names())} formats are"
        " known, as claude-code, codex and openai, and format= forces one.",
        source.path,
    )


def is_reader_of(reader: Reader, source: Source) -> bool:
    """Return True if a reader recognizes a file; a reader with a bug does not.

    Args:
        reader: the reader of one format.
        source: the file.

    Raises:
        ReadError: the file cannot be read.
    """
    try:
        return bool(reader.sniff(source))
    except ReadError:
        raise
    except Exception:  # noqa: BLE001  a reader that fails does not match; the others are still tried
        return False
