"""One conversation of a Claude Code transcript: its replies, results, compactions and rewinds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Message, ToolSchema
from ctxkit.readers import claude_lines
from ctxkit.readers.content_blocks import Blocks
from ctxkit.readers.fields import items, mapping, time, word
from ctxkit.readers.logs import MAX_PARTS, ReaderLog

if TYPE_CHECKING:
    from ctxkit.session import Session

FORMAT = "claude-code"
_BACK = 256


class Shared:
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


class Conversation:
    """One conversation of a transcript while its lines go by."""

    def __init__(self, shared: Shared, name: str) -> None:
        self.shared, self.name = shared, name
        self.log = ReaderLog()
        self.blocks = Blocks(shared.skipped)
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
        for _ in range(_BACK):
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
        self.resumed = self.resumed or claude_lines.is_restart(record)
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
            self.boundary and claude_lines.is_summary(record, m.get("content"))
        ):
            self._compact(record, m)
        else:
            self.close()
            self._user(record, m.get("content"))

    def _assistant(self, record: dict[str, Any], m: dict[str, Any]) -> None:
        self.close()
        parts, results = self.blocks.parts(m.get("content"))
        own = claude_lines.call_id(record, m)
        index = self._open(own, word(m.get("model")))
        old = None if index is None else self.log.entries[index]
        if index is not None and type(old) is Message:
            self.log.replace(index, claude_lines.with_more(old, record, m, parts))
        else:
            self._go(record)
            reply = claude_lines.to_reply(record, m, parts, self.log.new_id(record.get("uuid")))
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
            0 if self.shared.ambiguous else _BACK
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
            self.log.add(claude_lines.to_input(record, parts, own, beside=bool(results)))
        self._stay(record)

    def _result(self, record: dict[str, Any], block: dict[str, Any], kind: str) -> None:
        call = word(block.get("tool_use_id"))
        parts, _ = self.blocks.parts(block.get("content"))
        agent = claude_lines.started(record)
        if agent and call:
            self.shared.agents.setdefault(agent, call)
        self.log.say(
            "tool",
            parts,
            None if kind else record.get("uuid"),
            kind=kind,
            time=time(record.get("timestamp")),
            tool=self.blocks.called.get(call or ""),
            call_id=call,
            is_error=block.get("is_error") is True,
            details={"child": f"agent-{agent}"} if agent else {},
        )

    def queued(self, record: dict[str, Any]) -> None:
        """Take a prompt typed while the agent worked: newer versions write it as an attachment."""
        self.close()
        self._user(record, mapping(record.get("attachment")).get("prompt"))

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
            self.log.add(claude_lines.to_retry(record, self.log.new_id(record.get("uuid"))))
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
            time=time(record.get("timestamp")),
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
        preserved = items(
            mapping(claude_lines.about(boundary).get("preservedMessages")).get("uuids")
        )
        own = self.log.new_id(claude_lines.boundary_id(boundary))
        self.log.compact(
            claude_lines.to_compaction(boundary, own, inserted), self._preserved(preserved)
        )

    def _preserved(self, uuids: list[Any]) -> set[str]:
        places = {self.places[u] for u in uuids if type(u) is str and u in self.places}
        return {self.log.entries[i].id for i in places if i >= 0}

    def _clear(self, record: dict[str, Any]) -> None:
        """Put a mark in the place of old tool results, as the small compaction does."""
        told = mapping(record.get("microcompactMetadata"))
        calls = {c for c in items(told.get("compactedToolIds")) if type(c) is str}
        shown = set(self.log.shown) if calls and self.log.may_edit() else set[str]()
        places = sorted(i for own in shown if (i := self.log.where[own]) >= 0)
        results = (self.log.entries[i] for i in places)
        gone = [m for m in results if type(m) is Message and m.call_id in calls]
        self.log.add(
            claude_lines.to_clearing(
                record, self.log.new_id(claude_lines.boundary_id(record)), gone
            )
        )

    def session(self, own: str, agent: str) -> Session:
        """Return the conversation as a session of its own."""
        log, facts = self.log, self.shared.facts
        return log.session(
            id=own,
            format=FORMAT,
            agent=agent,
            product=FORMAT,
            version=facts.get("version"),
            cwd=facts.get("cwd"),
            started=time(facts.get("timestamp")),
            model=self.model,
            details={"headless": True} if self.headless else {},
        )
