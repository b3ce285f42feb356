"""What `changes.json`, `intents.json` and `evidence.json` hold, and how they are read (fuseraft's
models).

A file may be anybody's: it is read to a bound, and what is no ledger is an error in a sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from ctxkit.errors import ReadError

if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 50_000_000
MOST_OUTPUT, MOST_ARGUMENT = 4_096, 200
"""Characters of an output, and of an argument, that are kept."""
Status = Literal["Pending", "Applied", "Failed", "Retryable"]
Made = TypeVar("Made", bound=msgspec.Struct)


class CommandRun(msgspec.Struct, frozen=True, kw_only=True):
    """A command of a turn. There is no exit code in it; `evidence.json` has some."""

    command: str = msgspec.field(name="Command")
    succeeded: bool = True
    output: str | None = msgspec.field(default=None, name="Output")


class ChangeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """What one agent changed in one turn."""

    agent: str
    turn_index: int
    """From 0."""
    timestamp: str = ""
    session_id: str | None = None
    files_written: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = ()
    commands_run: tuple[CommandRun, ...] = ()
    git_commits: tuple[str, ...] = ()


class ChangeLog(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """`changes.json`."""

    active_session_id: str | None = None
    entries: tuple[ChangeEntry, ...] = ()


class Operation(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """What a tool call was to do."""

    function_name: str
    target_path: str | None = None
    """The argument `path`, else `destination`, else `source`; so none for a command."""
    args_summary: dict[str, str] = {}


class IntentEntry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A tool call, written before it runs and again when it ended."""

    intent_id: str
    """16 hexadecimal digits."""
    timestamp: str = ""
    agent: str = ""
    turn_index: int = 0
    session_id: str | None = None
    operation: Operation
    status: Status = "Pending"
    error_message: str | None = None
    completed_at: str | None = None


class IntentLog(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """`intents.json`."""

    active_session_id: str | None = None
    entries: tuple[IntentEntry, ...] = ()


class EvidenceNode(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """Something that is proved: a file, a command, a commit, a symbol."""

    id: str
    node_type: str
    timestamp: str = ""
    agent: str = ""
    turn: int = 0
    session_id: str | None = None
    path: str | None = None
    content_hash: str | None = None
    """SHA-256 of a file's content."""
    command: str | None = None
    exit_code: int | None = None
    output_hash: str | None = None
    output: str | None = None
    commit_message: str | None = None
    status: str | None = None
    symbol_name: str | None = None
    symbol_kind: str | None = None
    target_file: str | None = None


class EvidenceEdge(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """How two nodes hang together: `produced_by`, `verified_by`, `depends_on`."""

    from_: str = msgspec.field(name="From")
    to: str
    relation: str


class EvidenceGraph(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """`evidence.json`."""

    active_session_id: str | None = None
    nodes: tuple[EvidenceNode, ...] = ()
    edges: tuple[EvidenceEdge, ...] = ()


def ledger(path: str | Path, kind: type[Made]) -> Made:
    """Return what a file holds.

    Args:
        path: `changes.json`, `intents.json` or `evidence.json`, ours or fuseraft's.
        kind: `ChangeLog`, `IntentLog` or `EvidenceGraph`.

    Raises:
        ReadError: it cannot be read, is too large, or is none.
    """
    place = Path(path)
    try:
        if not place.is_file():
            raise ReadError("There is no such file.", path)
        with place.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as e:
        raise ReadError(f"It cannot be read: {e.strerror}.", path) from None
    if len(data) > MOST_BYTES:
        raise ReadError(f"It has more than {MOST_BYTES:,} bytes.", path)
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=kind)
    except (msgspec.DecodeError, RecursionError) as e:
        why = str(e)[:200] if isinstance(e, msgspec.DecodeError) else "it is nested too deeply"
        raise ReadError(f"It is no {kind.__name__} of fuseraft's: {why}.", path) from None


def ledger_bytes(held: msgspec.Struct) -> bytes:
    """Return a ledger as the bytes of its file: one object, indented."""
    told: Any = msgspec.json.encode(held)
    return bytes(msgspec.json.format(told, indent=2))
