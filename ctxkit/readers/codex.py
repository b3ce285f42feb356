"""Rollouts of Codex CLI: JSON Lines of response items and events; token counts tell the calls
apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import ReadError
from ctxkit.messages import Fault
from ctxkit.readers.codex_rollouts import Rollout
from ctxkit.readers.damaged import each_line
from ctxkit.readers.fields import items, mapping, text, time, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "codex"
CAN = (
    "text, system prompt, calls and results, usage per call (cache reads), window, times,"
    " compactions"
)
CANNOT = "encrypted reasoning (its size only), money"
TRAITS = (
    (
        "all",
        (
            "a failed command is told by its exit code; the window is recorded; summaries are not "
            "priced: estimated"
        ),
    ),
    (
        "all",
        (
            "reasoning of earlier turns leaves the prompt without a mark: an unmarked fall, where "
            "it is large"
        ),
    ),
)

_TYPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}


def sniff(source: Source) -> bool:
    """Say whether the lines are Codex's (type and payload), or bare items of its first versions."""
    for record in source.head[:4]:
        if text(record.get("type")) in _TYPES and type(record.get("payload")) is dict:
            return True
    return _is_bare(source) or _is_first(source.document)


def _is_bare(source: Source) -> bool:
    first = source.head[0] if len(source.head) > 1 else {}
    return (
        "instructions" in first
        and "timestamp" in first
        and "type" not in first
        and type(first.get("id")) is str
    )


def _is_first(document: Any) -> bool:
    """Say whether this is an object of the first (TypeScript) versions: a session and its items."""
    about = mapping(mapping(document).get("session"))
    return "instructions" in about and "timestamp" in about and type(document.get("items")) is list


def read(source: Source) -> list[Session]:
    """Read a rollout's one session; each call is one reply with the usage of its token count."""
    faults = list[Fault]()
    records: Iterable[tuple[int, Any]] = source.stream()
    early = [r.get("payload") for r in source.head[:12] if r.get("type") == "response_item"]
    bare = _is_bare(source)
    if _is_first(source.document):
        document, bare = mapping(source.document), True
        records = [(0, document["session"]), *((0, r) for r in items(document.get("items")))]
    reading = Rollout(early, bare=bare)
    each_line(records, reading.record, faults)
    if not reading.log.entries and not reading.meta:
        raise ReadError(
            "expected lines of session_meta and response_item; found none.", source.path
        )
    faults += source.faults
    return [_session(reading, source.path.stem, faults)]


def _session(reading: Rollout, name: str, faults: list[Fault]) -> Session:
    reading.replies.flush()
    meta, log = reading.meta, reading.log
    spawn = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
    parent = word(meta.get("parent_thread_id")) or word(spawn.get("parent_thread_id"))
    return log.session(
        id=word(meta.get("id")) or name,
        format=NAME,
        agent=word(meta.get("agent_nickname")) or word(spawn.get("agent_nickname")) or "main",
        product=word(meta.get("originator")) or NAME,
        version=word(meta.get("cli_version")),
        cwd=word(meta.get("cwd")),
        title=reading.title,
        started=time(meta.get("timestamp")),
        model=reading.replies.model,
        context_window=reading.replies.window,
        tools=reading.tools,
        parent=parent or word(meta.get("forked_from_id")),
        skipped=dict(reading.skipped),
        faults=tuple(sorted(faults, key=lambda f: f.line)),
    )
