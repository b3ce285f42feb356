"""Transcripts of Claude Code: JSON Lines; replies over several lines, compaction boundaries,
subagents beside them.

What the program prints (`--output-format stream-json`, the SDK's messages) is read too: the same
messages, with the session's id as `session_id`, subagents told apart by the call that started them,
and a last line with the money.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.claude_code_conversation import (
    FORMAT_NAME,
    TranscriptConversation,
    TranscriptState,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    float_or_none,
    read_each_line,
    require_field,
    str_or_none,
)
from ctxkit.formats.source import Source
from ctxkit.session.messages import Fault, ToolSchema

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session.session import Session

NAME = FORMAT_NAME
ALIASES = ("claude",)
CAN = (
    "text, thinking, calls and results, usage per call (cache reads and writes by life), times,"
    " compactions, subagents"
)
CANNOT = "system prompt, tool schemas, money"
TRAITS = (
    (
        "2.0 on (seen: 2.0.5 to 2.1.29)",
        (
            "output tokens are often the first piece of a stream: estimated from the next prompt's "
            "growth and the text"
        ),
    ),
    (
        "all",
        (
            "a transcript that begins in the middle: what the first prompt held beyond the smallest"
            " later one is lost conversation"
        ),
    ),
    (
        "all",
        (
            "the window is not in the log: by the table of prices, unless a prompt or an automatic "
            "compaction refutes it"
        ),
    ),
    (
        "2.0 on",
        (
            "old results are dropped, or a resume leaves a branch out, without a mark: an unmarked "
            "fall"
        ),
    ),
    (
        "all",
        (
            "retries and replies that the program made up are events; a call is what has one "
            "message and request id"
        ),
    ),
    ("all", "summaries are not priced: estimated"),
)

_TALK = {"user", "assistant"}
_FACTS = {
    "sessionId": "sessionId",
    "session_id": "sessionId",
    "cwd": "cwd",
    "version": "version",
    "claude_code_version": "version",
    "agentId": "agentId",
    "timestamp": "timestamp",
    "gitBranch": "gitBranch",
}
"""Fields of the lines, and what they tell."""
_STARTERS = {"Task", "Agent"}
_SUBAGENTS = 1000


def sniff(source: Source) -> bool:
    """Say whether the first lines have Claude Code's types and fields that tie them together."""
    for record in source.head[:40]:
        kind = as_str(record.get("type"))
        if kind in _TALK and type(record.get("message")) is dict:
            return bool(record["message"].get("role", kind) == kind)
        if kind == "summary" and "leafUuid" in record:
            return True
        if (
            kind == "system"
            and "subtype" in record
            and ("sessionId" in record or "session_id" in record)
        ):
            return True
    return False


def read(source: Source) -> list[Session]:
    """Read a transcript with the subagents inside it and in the folder beside it."""
    main = _Transcript(source).session()
    return [_with_subagents(main, source.path) if source.on_disk else main]


class _Transcript:
    """A file: the main conversation, and sidechains that older versions wrote between its lines."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self.faults = list(source.faults)
        self.titles: dict[str, str] = {}
        self.seen: dict[str, Any] = {}
        self.chains: dict[str, TranscriptConversation] = {}
        self.of_line: dict[str, TranscriptConversation] = {}
        records = source.records
        self.has_main = any(as_str(r.get("type")) in _TALK and not _is_aside(r) for _, r in records)
        self.cost: float | None = None
        self.shared = _shared(records)
        self.main = TranscriptConversation(self.shared, "")
        read_each_line(records, self._line, self.faults)
        for chain in (self.main, *self.chains.values()):
            chain.close()

    def _line(self, record: dict[str, Any]) -> None:
        kind, uuid = record.get("type"), record.get("uuid")
        if type(uuid) is str:
            content = record.get("message")
            if uuid in self.seen and content is not None and self.seen[uuid] == content:
                self.shared.skipped["repeated line"] += 1
                return
            self.seen[uuid] = content
        chain = self._chain(record)
        chain.begin(record)
        if kind in _TALK:
            self._note(record)
            chain.talk(record, require_field(record, "message", dict))
        elif kind == "system":
            if record.get("subtype") == "init":
                self._begun(record)
            chain.system(record)
        elif (
            kind == "attachment"
            and as_dict(record.get("attachment")).get("type") == "queued_command"
        ):
            chain.queued(record)
        else:
            self._bookkeeping(kind, record)
            chain.pass_by(record)
        if type(uuid) is str:
            self.of_line[uuid] = chain

    def _chain(self, record: dict[str, Any]) -> TranscriptConversation:
        """Return the conversation of a line: the main one unless it is a sidechain within it."""
        if not self.has_main or not _is_aside(record):
            return self.main
        if record.get("isCompactSummary") is True and self.main.boundary is not None:
            return self.main
        agent, call = (
            str_or_none(record.get("agentId")),
            str_or_none(record.get("parent_tool_use_id")),
        )
        if call is not None:
            agent = call
            self.shared.agents.setdefault(call, call)
        if agent is None:
            parent = record.get("parentUuid")
            before = self.of_line.get(parent) if type(parent) is str else None
            if before is not None:
                return before
            if not _STARTERS & set(self.main.blocks.called.values()):
                return self.main  # nothing could have started a subagent
        name = agent or f"sidechain-{len(self.chains)}"
        if name not in self.chains:
            self.chains[name] = TranscriptConversation(self.shared, name)
        return self.chains[name]

    def _note(self, record: dict[str, Any]) -> None:
        facts = self.shared.facts
        for key, fact in _FACTS.items():
            if fact not in facts and type(record.get(key)) is str:
                facts[fact] = record[key]

    def _begun(self, record: dict[str, Any]) -> None:
        """Take what the program's output begins with."""
        self._note(record)
        self.shared.tools = tuple(
            ToolSchema(name=n) for n in as_list(record.get("tools")) if str_or_none(n)
        )
        self.main.model = str_or_none(record.get("model")) or self.main.model

    def _bookkeeping(self, kind: Any, record: dict[str, Any]) -> None:
        name = kind if type(kind) is str else "no type"
        if name == "attachment":
            name = f"attachment {as_str(as_dict(record.get('attachment')).get('type'))}"
        self.shared.skipped[name] += 1
        if name == "result":
            self.cost = float_or_none(record.get("total_cost_usd"))
        title = record.get(
            {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}.get(
                name, ""
            )
        )
        if type(title) is str:
            self.titles[name] = title

    def session(self) -> Session:
        main, facts = self.main, self.shared.facts
        if not main.log.entries and not facts:
            raise ReadError(
                "expected lines of type user or assistant with a message; found none.", self.path
            )
        agent = None if self.has_main else facts.get("agentId")
        own = facts.get("sessionId") or self.path.stem
        titles = self.titles
        session = main.session(own if agent is None else f"agent-{agent}", agent or "main")
        children = tuple(
            msgspec.structs.replace(
                chain.session(f"agent-{name}", name),
                parent=session.id,
                path_=str(self.path),
                started=None,
            )
            for name, chain in self.chains.items()
            if chain.log.entries
        )
        return msgspec.structs.replace(
            session,
            children=tuple(_linked(c, self.shared.agents) for c in children),
            parent=None if agent is None else own,
            title=titles.get("custom-title") or titles.get("ai-title") or titles.get("summary"),
            tools=self.shared.tools,
            skipped=dict(self.shared.skipped),
            faults=tuple(sorted(self.faults, key=lambda f: f.line)),
            path_=str(self.path),
            details={
                **session.details,
                **({"git_branch": facts["gitBranch"]} if facts.get("gitBranch") else {}),
                **({"subagents": self.shared.agents} if self.shared.agents else {}),
                **({"cost_usd": self.cost} if self.cost is not None else {}),
            },
        )


def _is_aside(record: dict[str, Any]) -> bool:
    return record.get("isSidechain") is True or type(record.get("parent_tool_use_id")) is str


def _shared(records: list[tuple[int, dict[str, Any]]]) -> TranscriptState:
    said: dict[str, Any] = {}
    ambiguous = False
    for _, record in records:
        uuid = record.get("uuid")
        if type(uuid) is str:
            message = record.get("message")
            first = said.setdefault(uuid, message)
            ambiguous = ambiguous or (first is not message and first != message)
    return TranscriptState(set(said), ambiguous=ambiguous)


def _linked(child: Session, agents: dict[str, str]) -> Session:
    call = agents.get(child.agent)
    return (
        child
        if call is None
        else msgspec.structs.replace(child, details={**child.details, "call_id": call})
    )


def _with_subagents(session: Session, path: Path) -> Session:
    """Return the session with its subagents, from the folder of its name or (older) beside it."""
    agents: dict[str, str] = session.details.get("subagents", {})
    folder = path.with_suffix("") / "subagents"
    files = sorted(folder.glob("agent-*.jsonl"))[:_SUBAGENTS] if folder.is_dir() else []
    if agents and path.stem not in {f"agent-{a}" for a in agents}:
        beside = {f"agent-{a}.jsonl" for a in agents} - {f.name for f in files}
        files += sorted(f for f in path.parent.glob("agent-*.jsonl") if f.name in beside)
    children, faults = list(session.children), list(session.faults)
    for file in files:
        try:
            child = _Transcript(Source(file)).session()
        except ReadError as e:
            faults.append(Fault(0, f"subagent {file.name}: {e.why}"))
            continue
        if child.parent in (session.id, None):
            children.append(_linked(msgspec.structs.replace(child, parent=session.id), agents))
    return msgspec.structs.replace(session, children=tuple(children), faults=tuple(faults))
