"""Writing a session to a file in one of six formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxkit._internal.safe_files import write_file_atomically
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.formats.sessions_from_arguments import accepts_session

if TYPE_CHECKING:
    import os
    from collections import Counter
    from collections.abc import Callable, Iterable

    from ctxkit.session.session import Session

    SessionEncoder = Callable[[Session], tuple[Iterable[bytes], Counter[str]]]

WRITE_FORMATS = ("native", "openai", "pi", "atif", "otel", "inspect")
"""Names of the formats that can be written; only native keeps everything."""


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `write`: the file, its format, and what that format cannot hold."""

    path: str
    format: str
    lost: dict[str, int] = {}
    """Counts of what the file does not contain, by name; empty if nothing was lost."""

    def __repr__(self) -> str:
        lost = ", ".join(f"{n:,} {name}" for name, n in self.lost.items()) or "nothing"
        return f"<written {self.path} as {self.format}; lost: {lost}>"


@accepts_session
def write(session: Session, path: str | os.PathLike[str], format: str = "native") -> WriteResult:  # noqa: A002  fixed name
    """Write a session to a file, atomically and readable by its owner only.

    Args:
        session: a session, the path of a log, or a list of messages.
        path: the file; an existing one is replaced.
        format: `native` (lossless), `pi` (Pi's session format, version 3), `openai` (an object with
            Chat Completions `messages` and `tools`), `atif` (Agent Trajectory Interchange Format),
            `otel` (OpenTelemetry GenAI spans as an OTLP exporter writes them: usage and
            compactions, each call with its prompt), `inspect` (an evaluation log of one sample,
            which `inspect_ai.log.read_eval_log` takes).

    Returns:
        The path, the format, and counts of what the format cannot hold, by name (`lost`).

    Raises:
        BadArguments: there is no such format.
        StoreError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import ctxkit as ck
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = ck.write(ck.samples.path("billing"), f"{folder}/log.jsonl", "openai")
        >>> result.lost["compactions"]
        2
    """
    from ctxkit.formats import atif, inspect_ai, native, openai, otel, pi

    if format not in WRITE_FORMATS:
        choices = ", ".join(WRITE_FORMATS)
        raise BadArguments(
            f"There is no format {format!r} to write.{did_you_mean(str(format), WRITE_FORMATS)} "
            "Known:"
            f" {choices}."
        )
    if format == "native":
        write_file_atomically(Path(path), native.encode_session_lines(session))
        return WriteResult(path=str(path), format=format)
    encoders: dict[str, SessionEncoder] = {
        "openai": openai.encode_session,
        "pi": pi.encode_session,
        "atif": atif.encode_session,
        "otel": otel.encode_session,
        "inspect": inspect_ai.encode_session,
    }
    lines, lost = encoders[format](session)
    write_file_atomically(Path(path), lines)
    return WriteResult(
        path=str(path), format=format, lost={name: count for name, count in lost.items() if count}
    )
