"""Kimi Code wire logs: events become replies, compactions keep their sizes; Kimi CLI's older wire
and context too, told apart by their lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.messages import ToolSchema
from ctxkit.readers.damaged import each_line
from ctxkit.readers.fields import items, text, time, word
from ctxkit.readers.kimi_steps import Steps, is_mark, is_step, take_context
from ctxkit.readers.kimi_wire import Wire
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

NAME = "kimi-cli"
ALIASES = ("kimi",)
CAN = (
    "text, thinking, system prompt, calls and results, usage per call (cache reads and writes),"
    " latency; compactions"
)
CANNOT = (
    "tool schemas (names only), money, the parent of a subagent's log; what an older wire's"
    " compaction kept"
)
TRAITS = (
    (
        "all",
        "unanswered requests are no calls; the compaction's call is priced by the table of prices",
    ),
)


_BESIDE = 100


def sniff(source: Source) -> bool:
    """Say whether this is a wire log (first line `metadata` with a protocol version), or older."""
    first = source.head[0] if source.head else {}
    if first.get("type") == "metadata" and "protocol_version" in first:
        return True
    return is_step(first) or any(is_mark(r) for r in source.head[:4])


def read(source: Source) -> list[Session]:
    """Return the one session of the file; subagents told of in an older wire are its children."""
    if any(map(is_step, source.head)):
        steps = Steps()
        steps.log.faults += source.faults
        each_line(source.records, steps.take, steps.log.faults)
        return [_older(steps, _name(source))]
    if any(is_mark(r) for r in source.head[:4]):
        log, asked = ReaderLog(), dict[str, str]()
        log.faults += source.faults
        each_line(source.records, lambda record: take_context(record, log, asked), log.faults)
        return [log.session(id=_name(source), format=NAME, product="kimi-cli")]
    wire = Wire()
    wire.log.faults += source.faults
    each_line(source.records, wire.take, wire.log.faults)
    wire.end({}, None)
    return [_newer(wire, _name(source))]


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is one session of the older Kimi CLI: a talk as wire and as context."""
    try:
        both = (path / "wire.jsonl").is_file() and (path / "context.jsonl").is_file()
        return both and sniff(Source(path / "wire.jsonl"))
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Return a folder's session: its wire, which tells usage; contexts beside count as skipped."""
    wire = path / "wire.jsonl"
    (session,) = read(Source(wire))
    beside = {f.name: 1 for f in sorted(path.glob("context*.jsonl"))[:_BESIDE]}
    return [replace(session, skipped={**session.skipped, **beside}, path_=str(wire))]


def _name(source: Source) -> str:
    """The file's name, or the folder's where the file bears the same name in every session."""
    path = source.path
    return (
        path.parent.name
        if source.on_disk and path.stem in ("wire", "context") and path.parent.name
        else path.stem
    )


def _newer(wire: Wire, name: str) -> Session:
    return wire.log.session(
        id=text(wire.config.get("sessionId")) or name,
        format=NAME,
        product="kimi-cli",
        version=word(wire.config.get("protocol_version")),
        agent=wire.agent,
        cwd=word(wire.config.get("cwd")),
        model=word(wire.config.get("modelAlias")),
        started=time(wire.config.get("created_at")),
        tools=tuple(ToolSchema(name=n) for n in items(wire.config.get("tools")) if word(n)),
    )


def _older(steps: Steps, name: str, parent: str | None = None, call: str = "") -> Session:
    steps.close()
    return steps.log.session(
        id=name,
        format=NAME,
        product="kimi-cli",
        agent=steps.name,
        started=next((e.time for e in steps.log.entries if e.time), None),
        context_window=steps.window,
        parent=parent,
        children=tuple(
            _older(c, f"{name}/{i}", name, own) for i, (own, c) in enumerate(steps.children.items())
        ),
        details={"call_id": call} if call else {},
    )
