"""Sessions to files: our own format without loss, and formats of others with a list of what they
cannot hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ctxkit.errors import BadArguments, StoreError, did_you_mean
from ctxkit.held_folders import Folder
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    import os
    from collections import Counter
    from collections.abc import Callable, Iterable

    from ctxkit.session import Session

    Convert = Callable[[Session], tuple[Iterable[bytes], Counter[str]]]

FORMATS = ("native", "openai", "pi", "atif", "otel", "inspect")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What `write` did: where, in which format, and what that format could not hold."""

    path: str
    format: str
    lost: dict[str, int] = {}
    """What the file does not have, by name, with counts; empty where nothing was lost."""

    def __repr__(self) -> str:
        lost = ", ".join(f"{n:,} {name}" for name, n in self.lost.items()) or "nothing"
        return f"<written {self.path} as {self.format}; lost: {lost}>"


@of_session
def write(session: Session, path: str | os.PathLike[str], format: str = "native") -> Written:  # noqa: A002  fixed name
    """Write a session to a file, whole or not at all, readable by its owner only.

    Args:
        session: what to write: a session, the path of a log, or a list of messages.
        path: the file; one that exists is replaced. Nothing else is written.
        format: `native` (lossless), `pi` (Pi's session format, version 3), `openai` (an object with
            Chat Completions `messages` and `tools`), `atif` (Agent Trajectory Interchange Format),
            `otel` (OpenTelemetry GenAI spans as an OTLP exporter writes them: usage and
            compactions, each call with its prompt), `inspect` (an evaluation log of one sample,
            which `inspect_ai.log.read_eval_log` takes).

    Returns:
        What the format could not hold, by name.

    Raises:
        BadArguments: there is no such format.
        StoreError: the file cannot be written.
    """
    from ctxkit.writers import as_atif, as_native, as_openai, as_otel, as_pi, inspect_log

    if format not in FORMATS:
        known = ", ".join(FORMATS)
        raise BadArguments(
            f"There is no format {format!r} to write.{did_you_mean(str(format), FORMATS)} Known:"
            f" {known}."
        )
    if format == "native":
        save(Path(path), as_native.lines(session))
        return Written(path=str(path), format=format)
    members: dict[str, Convert] = {
        "openai": as_openai.convert,
        "pi": as_pi.convert,
        "atif": as_atif.convert,
        "otel": as_otel.convert,
        "inspect": inspect_log.convert,
    }
    lines, lost = members[format](session)
    save(Path(path), lines)
    return Written(path=str(path), format=format, lost={k: n for k, n in lost.items() if n})


def save(path: Path, lines: Iterable[bytes], mode: int = 0o600) -> None:
    """Write a file whole or not at all, in a folder that exists; `mode`: of one that is new."""
    try:
        real = path.resolve()  # the user named it: a link leads where the user let it lead
        with Folder(real.parent) as folder:
            folder.write(real.name, lines, mode)
    except (OSError, ValueError, RuntimeError) as e:
        why = (e.strerror if isinstance(e, OSError) else None) or str(e)
        raise StoreError(
            f"{str(path)!r} could not be written ({why}). Choose a folder that exists and may be "
            "written, and no device or pipe."
        ) from None
