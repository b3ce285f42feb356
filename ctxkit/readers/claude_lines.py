"""Lines of Claude Code as values: replies in pieces, inputs, results, failed calls, compactions."""

from __future__ import annotations

from typing import Any

import msgspec

from ctxkit.messages import Edit, Message, Part, Text
from ctxkit.readers.content_blocks import Blocks, to_usage
from ctxkit.readers.fields import as_text, mapping, number, text, time, word

_WRAPPERS = ("<command-", "<local-command-", "<bash-", "<task-notification>", "<user-memory-input>")
_CLEARED = "[Old tool result content cleared]"
_CONTINUED = "This session is being continued from a previous conversation"
"""How the summary of a compaction begins."""


def call_id(record: dict[str, Any], m: dict[str, Any]) -> str | None:
    """Return what tells the lines of one call from those of others: its message and its request."""
    own = word(m.get("id"))
    return None if own is None else f"{own} {text(record.get('requestId'))}"


def to_reply(record: dict[str, Any], m: dict[str, Any], parts: list[Part], own: str) -> Message:
    """Return a reply's first line, with the id `own`; what no model wrote is an event, no call."""
    model, failed = word(m.get("model")), record.get("isApiErrorMessage") is True
    if model == "<synthetic>":
        return _event(
            record,
            own,
            "synthetic",
            "\n".join(p.text for p in parts if type(p) is Text),
            failed=failed,
        )
    return Message(
        role="assistant",
        id=own,
        parts=tuple(parts),
        time=time(record.get("timestamp")),
        is_error=failed,
        error="\n".join(p.text for p in parts if type(p) is Text)[:500] or None if failed else None,
        usage=to_usage(m.get("usage")),
        model=model,
        stop="error" if failed else Blocks.stop(m.get("stop_reason")),
    )


def _event(record: dict[str, Any], own: str, kind: str, said: str, *, failed: bool) -> Message:
    """Return what the program wrote beside the talk: no model wrote it and none is shown it."""
    return Message(
        role="system",
        id=own,
        kind=kind,
        parts=(Text(said[:500]),) if said else (),
        time=time(record.get("timestamp")),
        visible=False,
        is_error=failed,
        error=said[:500] or None if failed else None,
    )


def with_more(
    old: Message, record: dict[str, Any], m: dict[str, Any], parts: list[Part]
) -> Message:
    """Return a reply with one more line: blocks come in pieces, usage is best on the last."""
    recent = old.parts[-64:]
    return msgspec.structs.replace(
        old,
        parts=old.parts + tuple(p for p in parts if p not in recent),
        time=time(record.get("timestamp")) or old.time,
        usage=to_usage(m.get("usage")) or old.usage,
        stop=Blocks.stop(m.get("stop_reason")) or old.stop,
    )


def to_input(record: dict[str, Any], parts: list[Part], own: str, *, beside: bool) -> Message:
    """Return input of the user or in their name; `beside`: in one line with results of tools."""
    said = parts[0].text if parts and type(parts[0]) is Text else ""
    kind = "injected" if record.get("isMeta") is True or beside else ""
    return Message(
        role="user",
        id=own,
        kind="wrapper" if said.startswith(_WRAPPERS) else kind,
        parts=tuple(parts),
        time=time(record.get("timestamp")),
    )


def is_summary(record: dict[str, Any], content: Any) -> bool:
    """Say whether a line after a boundary is its summary; older lines and output have no mark."""
    marked = record.get("isCompactSummary") is True or record.get("isSynthetic") is True
    return marked or (type(content) is str and content.startswith(_CONTINUED))


_RESTARTS = ("SessionStart:resume", "SessionStart:clear")
"""Hooks that run where a conversation is gone on with in a new process, or begun anew in it."""


def is_restart(record: dict[str, Any]) -> bool:
    """Say whether a line tells that the program began anew: its hook, or titles read again."""
    told = mapping(record.get("data")) or mapping(record.get("attachment"))
    return word(told.get("hookName")) in _RESTARTS or record.get("type") == "summary"


def started(record: dict[str, Any]) -> str | None:
    """Return the id of the subagent that a result tells of."""
    extra = record.get("toolUseResult")
    return word(extra.get("agentId")) if type(extra) is dict else None


def to_retry(record: dict[str, Any], own: str) -> Message:
    """Return the event that the provider refused a call, which was tried again."""
    error = mapping(record.get("error"))
    inner = mapping(mapping(error.get("error")).get("error")) or mapping(error.get("error"))
    said = word(error.get("formatted")) or word(error.get("message")) or word(inner.get("message"))
    told = said or as_text(error.get("cause") or error.get("status") or error)
    return _event(record, own, "api_error", told, failed=True)


def about(boundary: dict[str, Any]) -> dict[str, Any]:
    """Return what a boundary tells of its compaction; the program's output has it in snake case."""
    return mapping(boundary.get("compactMetadata") or boundary.get("compact_metadata"))


def to_compaction(boundary: dict[str, Any], own: str, inserted: tuple[Message, ...]) -> Edit:
    """Return the compaction of a boundary (or of a lone summary), its targets still to be found."""
    told = about(boundary)
    return Edit(
        kind="summarised",
        id=own,
        inserted=inserted,
        trigger=word(told.get("trigger")),
        method="compact",
        time=time(boundary.get("timestamp")),
        tokens_before=number(told.get("preTokens", told.get("pre_tokens"))) or None,
        tokens_after=number(told.get("postTokens", told.get("post_tokens"))) or None,
    )


def to_clearing(record: dict[str, Any], own: str, gone: list[Message]) -> Edit:
    """Return the small compaction that puts a mark in the place of old tool results."""
    told = mapping(record.get("microcompactMetadata"))
    return Edit(
        kind="replaced",
        id=own,
        targets=tuple(m.id for m in gone),
        inserted=tuple(msgspec.structs.replace(m, parts=(Text(_CLEARED),)) for m in gone),
        trigger=word(told.get("trigger")),
        method="microcompact",
        time=time(record.get("timestamp")),
        tokens_before=number(told.get("preTokens")) or None,
    )


def boundary_id(record: dict[str, Any]) -> str:
    """Return the id wanted for a compaction."""
    return f"compact-{text(record.get('uuid')) or 'boundary'}"
