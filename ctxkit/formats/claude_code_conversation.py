"""One conversation of a Claude Code transcript: lines as messages, compactions, branches."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.anthropic import ContentBlocks, parse_anthropic_usage
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.session.messages import Edit, Message, Part, Text, ToolSchema

if TYPE_CHECKING:
    from ctxkit.session.session import Session


FORMAT_NAME = "claude-code"
_MAX_STEPS_BACK = 256


class TranscriptState:
    """What the conversations of one file have in common."""

    def __init__(self, uuids: set[str], *, ambiguous: bool) -> None:
        self.skipped: Counter[str] = Counter()
        self.facts: dict[str, Any] = {}
        self.agents: dict[str, str] = {}
        """Id of a subagent to the call that started it."""
        self.tools: tuple[ToolSchema, ...] = ()
        """Tools that the program's output names; a transcript names none."""
        self.ambiguous = ambiguous
        """True where a uuid names two lines: not parents but the order of lines then counts."""
        self.uuids = uuids
        """Those of all lines of the file."""


class TranscriptConversation:
    """One conversation of a transcript while its lines go by."""

    def __init__(self, shared: TranscriptState, name: str) -> None:
        self.shared, self.name = shared, name
        self.log = SessionBuilder()
        self.blocks = ContentBlocks(shared.skipped)
        self.places: dict[str, int] = {}
        """Line's uuid to the index of the entry at or before it."""
        self.replies: dict[str, int] = {}
        """Index of each reply by the id of its message and request: further lines add to it."""
        self.boundary: dict[str, Any] | None = None
        self.model: str | None = None
        self.resumed = False
        """True where the program was started anew since the last reply."""
        self.headless: bool | None = None
        """True where the first line follows one that is not in the file; None before it."""

    def begin(self, record: dict[str, Any]) -> None:
        """See from the first line with a uuid whether the file has lost what came before it."""
        if self.headless is None and type(record.get("uuid")) is str:
            parent = record.get("parentUuid")
            self.headless = type(parent) is str and parent not in self.shared.uuids

    # -- where a line hangs -----------------------------------------------------------------------

    def _place(self, record: dict[str, Any]) -> int:
        """Return the index of the entry that a line follows: its parent's, else the last one's."""
        parent = record.get("parentUuid")
        if self.shared.ambiguous:
            return self.log.at
        if parent is None:
            fresh = (
                record.get("type") == "user"
                and "parentUuid" in record
                and record.get("isMeta") is not True
            )
            return -1 if fresh and self.places else self.log.at
        place = self.places.get(parent) if type(parent) is str else None
        if place is None:
            if self.places:
                self.shared.skipped["parent not in the file"] += 1
            return self.log.at
        return place

    def _go(self, record: dict[str, Any]) -> None:
        """Stand where the line hangs; results and failed tries that hang beside are no branches."""
        log, place = self.log, self._place(record)
        at = log.at
        for _ in range(_MAX_STEPS_BACK):
            if at == place:
                return
            entry = log.entries[at] if at >= 0 else None
            if type(entry) is not Message or not (
                entry.role == "tool" or entry.kind == "api_error"
            ):
                break
            at = log.parents[at]
        log.stand(place)

    def _stay(self, record: dict[str, Any]) -> None:
        uuid = record.get("uuid")
        if type(uuid) is str:
            self.places[uuid] = self.log.at

    def pass_by(self, record: dict[str, Any]) -> None:
        """Let a line that is no part of the context go by: others may hang on it."""
        self.resumed = self.resumed or is_restart_line(record)
        uuid, parent = record.get("uuid"), record.get("parentUuid")
        if type(uuid) is str:
            self.places[uuid] = (
                self.places.get(parent, self.log.at) if type(parent) is str else self.log.at
            )

    # -- what is said -----------------------------------------------------------------------------

    def talk(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        """Take a line said: a piece of a reply, a request, results, or a compaction's summary."""
        if record.get("type") == "assistant":
            self._assistant(record, m)
        elif record.get("isCompactSummary") is True or (
            self.boundary and is_compact_summary(record, m.get("content"))
        ):
            self._compact(record, m)
        else:
            self.close()
            self._user(record, m.get("content"))

    def _assistant(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        self.close()
        parts, results = self.blocks.parts(m.get("content"))
        own = get_call_key(record, m)
        index = self._open(own, str_or_none(m.get("model")))
        old = None if index is None else self.log.entries[index]
        if index is not None and type(old) is Message:
            self.log.replace(index, extend_reply(old, record, m, parts))
        else:
            self._go(record)
            reply = parse_reply(record, m, parts, self.log.new_id(record.get("uuid")))
            if self.resumed and reply.role == "assistant":
                reply = msgspec.structs.replace(reply, details={"resumed": True})
                self.resumed = False
            self.model = reply.model or self.model
            index = self.log.add(reply)
            if own is not None and reply.role == "assistant":
                self.replies[own] = index
        self._stay(record)
        for block in results:  # a server's tools answer within the reply
            self._result(record, block, "server")

    def _open(self, own: str | None, model: str | None) -> int | None:
        """Return the index of the reply to add to, whatever is between; None on another branch."""
        index = None if own is None else self.replies.get(own)
        entry = None if index is None else self.log.entries[index]
        if (
            index is None
            or type(entry) is not Message
            or len(entry.parts) >= MAX_PARTS
            or entry.model != model
        ):
            return None
        at = self.log.at
        for _ in range(
            0 if self.shared.ambiguous else _MAX_STEPS_BACK
        ):  # where ids say nothing, only the next line adds
            if at <= index:
                break
            at = self.log.parents[at]
        return index if at == index else None

    def _user(self, record: dict[str, Any], content: Any) -> None:
        parts, results = self.blocks.parts(content)
        self._go(record)
        for block in results:
            self._result(record, block, "")
        if parts or not results:
            own = self.log.new_id(None if results else record.get("uuid"))
            self.log.add(parse_input(record, parts, own, beside=bool(results)))
        self._stay(record)

    def _result(self, record: dict[str, Any], block: dict[str, Any], kind: str) -> None:
        call = str_or_none(block.get("tool_use_id"))
        parts, _ = self.blocks.parts(block.get("content"))
        agent = get_started_subagent(record)
        if agent and call:
            self.shared.agents.setdefault(agent, call)
        self.log.say(
            "tool",
            parts,
            None if kind else record.get("uuid"),
            kind=kind,
            time=parse_timestamp(record.get("timestamp")),
            tool=self.blocks.called.get(call or ""),
            call_id=call,
            is_error=block.get("is_error") is True,
            details={"child": f"agent-{agent}"} if agent else {},
        )

    def queued(self, record: dict[str, Any]) -> None:
        """Take a prompt typed while the agent worked: newer versions write it as an attachment."""
        self.close()
        self._user(record, as_dict(record.get("attachment")).get("prompt"))

    # -- what happened to the context -------------------------------------------------------------

    def system(self, record: dict[str, Any]) -> None:
        """Take a line of the program: compaction boundaries, failed calls; the rest is counted."""
        kind = record.get("subtype")
        if kind == "compact_boundary":
            self.close()
            self.boundary = record
        elif kind == "microcompact_boundary":
            self._clear(record)
        elif kind == "api_error":
            self.log.add(parse_api_retry(record, self.log.new_id(record.get("uuid"))))
        else:
            self.shared.skipped[f"system {kind}" if type(kind) is str else "system"] += 1
            self.pass_by(record)
            return
        self._stay(record)

    def _compact(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        boundary, self.boundary = self.boundary or {}, None
        parts, _ = self.blocks.parts(m.get("content"))
        summary = Message(
            role="summary",
            id=self.log.new_id(record.get("uuid")),
            parts=tuple(parts),
            time=parse_timestamp(record.get("timestamp")),
        )
        self._edit(boundary or record, (summary,))
        self._stay(record)

    def close(self) -> None:
        """Write a compaction whose summary never came."""
        if self.boundary is not None:
            boundary, self.boundary = self.boundary, None
            self._edit(boundary, ())
            self._stay(boundary)

    def _edit(self, boundary: dict[str, Any], inserted: tuple[Message, ...]) -> None:
        preserved = as_list(
            as_dict(get_compact_metadata(boundary).get("preservedMessages")).get("uuids")
        )
        own = self.log.new_id(get_boundary_id(boundary))
        self.log.compact(parse_compaction(boundary, own, inserted), self._preserved(preserved))

    def _preserved(self, uuids: list[Any]) -> set[str]:
        places = {self.places[u] for u in uuids if type(u) is str and u in self.places}
        return {self.log.entries[i].id for i in places if i >= 0}

    def _clear(self, record: dict[str, Any]) -> None:
        """Put a mark in the place of old tool results, as the small compaction does."""
        told = as_dict(record.get("microcompactMetadata"))
        calls = {c for c in as_list(told.get("compactedToolIds")) if type(c) is str}
        shown = set(self.log.shown) if calls and self.log.may_edit() else set[str]()
        places = sorted(i for own in shown if (i := self.log.where[own]) >= 0)
        results = (self.log.entries[i] for i in places)
        gone = [m for m in results if type(m) is Message and m.call_id in calls]
        self.log.add(parse_microcompaction(record, self.log.new_id(get_boundary_id(record)), gone))

    def session(self, own: str, agent: str) -> Session:
        """Return the conversation as a session of its own."""
        log, facts = self.log, self.shared.facts
        return log.session(
            id=own,
            format=FORMAT_NAME,
            agent=agent,
            product=FORMAT_NAME,
            version=facts.get("version"),
            cwd=facts.get("cwd"),
            started=parse_timestamp(facts.get("timestamp")),
            model=self.model,
            details={"headless": True} if self.headless else {},
        )


_WRAPPERS = ("<command-", "<local-command-", "<bash-", "<task-notification>", "<user-memory-input>")
_CLEARED = "[Old tool result content cleared]"
_CONTINUED = "This session is being continued from a previous conversation"
"""How the summary of a compaction begins."""


def get_call_key(record: dict[str, Any], m: dict[str, Any]) -> str | None:
    """Return what tells the lines of one call from those of others: its message and its request."""
    own = str_or_none(m.get("id"))
    return None if own is None else f"{own} {as_str(record.get('requestId'))}"


def parse_reply(record: dict[str, Any], m: dict[str, Any], parts: list[Part], own: str) -> Message:
    """Return a reply's first line, with the id `own`; what no model wrote is an event, no call."""
    model, failed = str_or_none(m.get("model")), record.get("isApiErrorMessage") is True
    if model == "<synthetic>":
        return _make_event(
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
        time=parse_timestamp(record.get("timestamp")),
        is_error=failed,
        error="\n".join(p.text for p in parts if type(p) is Text)[:500] or None if failed else None,
        usage=parse_anthropic_usage(m.get("usage")),
        model=model,
        stop="error" if failed else ContentBlocks.stop(m.get("stop_reason")),
    )


def _make_event(record: dict[str, Any], own: str, kind: str, said: str, *, failed: bool) -> Message:
    """Return what the program wrote beside the talk: no model wrote it and none is shown it."""
    return Message(
        role="system",
        id=own,
        kind=kind,
        parts=(Text(said[:500]),) if said else (),
        time=parse_timestamp(record.get("timestamp")),
        visible=False,
        is_error=failed,
        error=said[:500] or None if failed else None,
    )


def extend_reply(
    old: Message, record: dict[str, Any], m: dict[str, Any], parts: list[Part]
) -> Message:
    """Return a reply with one more line: blocks come in pieces, usage is best on the last."""
    recent = old.parts[-64:]
    return msgspec.structs.replace(
        old,
        parts=old.parts + tuple(p for p in parts if p not in recent),
        time=parse_timestamp(record.get("timestamp")) or old.time,
        usage=parse_anthropic_usage(m.get("usage")) or old.usage,
        stop=ContentBlocks.stop(m.get("stop_reason")) or old.stop,
    )


def parse_input(record: dict[str, Any], parts: list[Part], own: str, *, beside: bool) -> Message:
    """Return input of the user or in their name; `beside`: in one line with results of tools."""
    said = parts[0].text if parts and type(parts[0]) is Text else ""
    kind = "injected" if record.get("isMeta") is True or beside else ""
    return Message(
        role="user",
        id=own,
        kind="wrapper" if said.startswith(_WRAPPERS) else kind,
        parts=tuple(parts),
        time=parse_timestamp(record.get("timestamp")),
    )


def is_compact_summary(record: dict[str, Any], content: Any) -> bool:
    """Say whether a line after a boundary is its summary; older lines and output have no mark."""
    marked = record.get("isCompactSummary") is True or record.get("isSynthetic") is True
    return marked or (type(content) is str and content.startswith(_CONTINUED))


_RESTARTS = ("SessionStart:resume", "SessionStart:clear")
"""Hooks that run where a conversation is gone on with in a new process, or begun anew in it."""


def is_restart_line(record: dict[str, Any]) -> bool:
    """Say whether a line tells that the program began anew: its hook, or titles read again."""
    told = as_dict(record.get("data")) or as_dict(record.get("attachment"))
    return str_or_none(told.get("hookName")) in _RESTARTS or record.get("type") == "summary"


def get_started_subagent(record: dict[str, Any]) -> str | None:
    """Return the id of the subagent that a result tells of."""
    extra = record.get("toolUseResult")
    return str_or_none(extra.get("agentId")) if type(extra) is dict else None


def parse_api_retry(record: dict[str, Any], own: str) -> Message:
    """Return the event that the provider refused a call, which was tried again."""
    error = as_dict(record.get("error"))
    inner = as_dict(as_dict(error.get("error")).get("error")) or as_dict(error.get("error"))
    said = (
        str_or_none(error.get("formatted"))
        or str_or_none(error.get("message"))
        or str_or_none(inner.get("message"))
    )
    told = said or to_text(error.get("cause") or error.get("status") or error)
    return _make_event(record, own, "api_error", told, failed=True)


def get_compact_metadata(boundary: dict[str, Any]) -> dict[str, Any]:
    """Return what a boundary tells of its compaction; the program's output has it in snake case."""
    return as_dict(boundary.get("compactMetadata") or boundary.get("compact_metadata"))


def parse_compaction(boundary: dict[str, Any], own: str, inserted: tuple[Message, ...]) -> Edit:
    """Return the compaction of a boundary (or of a lone summary), its targets still to be found."""
    told = get_compact_metadata(boundary)
    return Edit(
        kind="summarised",
        id=own,
        inserted=inserted,
        trigger=str_or_none(told.get("trigger")),
        method="compact",
        time=parse_timestamp(boundary.get("timestamp")),
        tokens_before=count_or_none(told.get("preTokens", told.get("pre_tokens"))) or None,
        tokens_after=count_or_none(told.get("postTokens", told.get("post_tokens"))) or None,
    )


def parse_microcompaction(record: dict[str, Any], own: str, gone: list[Message]) -> Edit:
    """Return the small compaction that puts a mark in the place of old tool results."""
    told = as_dict(record.get("microcompactMetadata"))
    return Edit(
        kind="replaced",
        id=own,
        targets=tuple(m.id for m in gone),
        inserted=tuple(msgspec.structs.replace(m, parts=(Text(_CLEARED),)) for m in gone),
        trigger=str_or_none(told.get("trigger")),
        method="microcompact",
        time=parse_timestamp(record.get("timestamp")),
        tokens_before=count_or_none(told.get("preTokens")) or None,
    )


def get_boundary_id(record: dict[str, Any]) -> str:
    """Return the id wanted for a compaction."""
    return f"compact-{as_str(record.get('uuid')) or 'boundary'}"
