"""Reader of Claude Code transcripts and of the program's `stream-json` output.

The output (`--output-format stream-json`, the SDK's messages) has the same messages; the session's
id is `session_id`, a subagent is identified by the call that started it, and the last line has the
cost.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.claude_code_attachments import SHAPE_TYPE, find_system_prompt_and_tools
from ctxkit.formats.claude_code_conversation import (
    FORMAT_NAME,
    SharedTranscriptState,
    TranscriptConversationReader,
)
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    float_or_none,
    read_each_line,
    require_field,
    str_or_none,
)
from ctxkit.session.messages import Fault, ToolSchema

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session.session import Session

NAME = FORMAT_NAME
ALIASES = ("claude",)
CAN = (
    "text, thinking, calls and results, usage per call (cache reads and writes by lifetime), "
    "times, compactions, subagents"
)
CANNOT = "cost; system prompt and tool schemas in older versions (seen: 2.0.5 to 2.1.29)"
TRAITS = (
    (
        "2.0 on (seen: 2.0.5 to 2.1.29)",
        (
            "output tokens are often the first piece of a stream: estimated from the next "
            "prompt's growth and the text"
        ),
    ),
    (
        "seen: 2.1.332",
        ("system prompt, tool schemas and attachments are in the transcript as they were sent"),
    ),
    (
        "all",
        (
            "a transcript that begins in the middle: the part of the first prompt beyond the "
            "smallest later one is missing conversation"
        ),
    ),
    (
        "all",
        (
            "the window is not in the log: that of the price table is used, unless a prompt or an "
            "automatic compaction refutes it"
        ),
    ),
    (
        "2.0 on",
        (
            "old results are dropped, or a resume leaves a branch out, without a mark: an "
            "unmarked drop"
        ),
    ),
    (
        "all",
        (
            "retries and replies that the program made up are events; a call is what has one "
            "message and request id"
        ),
    ),
    (
        "all",
        ("summaries are not priced: estimated"),
    ),
)

# A transcript is a file of JSON lines, each with a uuid and the uuid of its parent. One reader
# object handles one file:
#   1. `_scan_lines` lists the uuids; where one names two different lines, parents are ignored
#   2. each line is routed to a conversation: the main one, or a sidechain (a subagent whose lines
#      older versions wrote into the same file)
#   3. the conversation reads messages, results, compaction boundaries and retries
#   4. newer versions write a subagent into SESSION/subagents/agent-ID.jsonl, older ones into
#      agent-ID.jsonl beside the transcript; both are read as children
# A line that repeats an earlier one exactly (a resumed session copies its history) is skipped.
_MESSAGE_TYPES = {"user", "assistant"}
_METADATA_FIELDS = {
    "sessionId": "sessionId",
    "session_id": "sessionId",
    "cwd": "cwd",
    "version": "version",
    "claude_code_version": "version",
    "agentId": "agentId",
    "timestamp": "timestamp",
    "gitBranch": "gitBranch",
}
"""Fields of any line that describe the session, and the names they are stored under."""


class _ResultDetails(TypedDict, total=False):
    """The one field of `toolUseResult` that this reader uses.

    Half of a transcript's bytes are in it, and repeat the result that the message has.
    """

    agentId: Any


class _Line(TypedDict, total=False):
    """The fields of a line that this reader uses; all others are passed over undecoded."""

    type: Any
    uuid: Any
    parentUuid: Any
    message: Any
    toolUseResult: _ResultDetails | list[msgspec.Raw] | str | float | bool | None
    timestamp: Any
    requestId: Any
    sessionId: Any
    session_id: Any
    agentId: Any
    cwd: Any
    version: Any
    claude_code_version: Any
    gitBranch: Any
    isSidechain: Any
    isMeta: Any
    isApiErrorMessage: Any

    isCompactSummary: Any
    isSynthetic: Any
    parent_tool_use_id: Any
    subtype: Any
    compactMetadata: Any
    compact_metadata: Any
    microcompactMetadata: Any
    attachment: Any
    rendered: Any
    shape: Any
    data: Any
    error: Any
    model: Any
    tools: Any
    total_cost_usd: Any
    customTitle: Any
    aiTitle: Any
    summary: Any


LINE_FIELDS = frozenset(_Line.__annotations__)
LINE_DECODER = msgspec.json.Decoder(_Line)
"""Decodes one line; a field that the reader uses is in its type."""
_TITLE_FIELDS = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
"""The field with the session's title, by the type of the line."""
_SUBAGENT_TOOLS = {"Task", "Agent"}
_MAX_SUBAGENT_FILES = 1000


def sniff(source: Source) -> bool:
    """Return True if one of the first lines has a type and fields of Claude Code's transcripts."""
    for record in islice(source.head, 40):  # a slice would decode all of them
        record_type = as_str(record.get("type"))
        if record_type in _MESSAGE_TYPES and type(record.get("message")) is dict:
            return bool(record["message"].get("role", record_type) == record_type)
        if record_type == "summary" and "leafUuid" in record:
            return True
        if (
            record_type == "system"
            and "subtype" in record
            and ("sessionId" in record or "session_id" in record)
        ):
            return True
    return False


def read(source: Source) -> list[Session]:
    """Read a transcript with its subagents, in the same file or in files beside it."""
    session = _TranscriptReader(source).build_session()
    return [_attach_subagents(session, source.path) if source.on_disk else session]


class _TranscriptReader:
    """Reader of one file: the main conversation, and sidechains between its lines."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        records, faults = source.decode_records(LINE_DECODER)
        self.faults = list(faults)
        self.titles: dict[str, str] = {}
        self.unknown_metadata = list(_METADATA_FIELDS.items())
        self.message_by_uuid: dict[str, Any] = {}
        self.sidechains: dict[str, TranscriptConversationReader] = {}
        self.conversation_by_uuid: dict[str, TranscriptConversationReader] = {}
        lines = _scan_lines(records)
        self.has_main = lines.has_main
        self.has_sidechains = lines.has_main and lines.has_sidechains
        self.cost_usd: float | None = None
        self.state = _make_state(lines.uuids, records)
        self.main = TranscriptConversationReader(self.state, "")
        system, self.state.tools = find_system_prompt_and_tools(lines.shapes)
        if system:
            self.main.add_system_prompt(system)
        read_each_line(records, self._read_record, self.faults)
        for chain in (self.main, *self.sidechains.values()):
            chain.close_pending_compaction()

    def _read_record(self, record: dict[str, Any]) -> None:
        record_type, uuid = record.get("type"), record.get("uuid")
        if type(uuid) is str and self.state.has_repeated_uuids:
            content = record.get("message")
            if (
                uuid in self.message_by_uuid
                and content is not None
                and self.message_by_uuid[uuid] == content
            ):
                self.state.skipped["repeated line"] += 1
                return
            self.message_by_uuid[uuid] = content
        chain = self._find_conversation(record) if self.has_sidechains else self.main
        if chain.is_headless is None:
            chain.note_first_parent(record)
        if record_type in _MESSAGE_TYPES:
            self._note_metadata(record)
            message = record.get("message")
            if type(message) is not dict:
                message = require_field(record, "message", dict)
            if record_type == "assistant":
                chain.read_reply(record, message)
            else:
                chain.read_user_line(record, message)
        elif record_type == "system":
            if record.get("subtype") == "init":
                self._read_init(record)
            chain.read_system_line(record)
        elif record_type == "attachment" and chain.read_attachment(record):
            pass
        else:
            self._count_other_record(record_type, record)
            chain.skip_line(record)
        if self.has_sidechains and type(uuid) is str:
            self.conversation_by_uuid[uuid] = chain

    def _find_conversation(self, record: dict[str, Any]) -> TranscriptConversationReader:
        """Return the conversation of a line: the main one, or a sidechain within the file."""
        if not _is_sidechain(record):
            return self.main
        if record.get("isCompactSummary") is True and self.main.pending_boundary is not None:
            return self.main
        agent, call_id = (
            str_or_none(record.get("agentId")),
            str_or_none(record.get("parent_tool_use_id")),
        )
        if call_id is not None:
            agent = call_id
            self.state.call_by_agent.setdefault(call_id, call_id)
        if agent is None:
            parent = record.get("parentUuid")
            parent_conversation = (
                self.conversation_by_uuid.get(parent) if type(parent) is str else None
            )
            if parent_conversation is not None:
                return parent_conversation
            if not _SUBAGENT_TOOLS & set(self.main.blocks.tool_by_call.values()):
                return self.main  # no call so far could have started a subagent
        name = agent or f"sidechain-{len(self.sidechains)}"
        if name not in self.sidechains:
            self.sidechains[name] = TranscriptConversationReader(self.state, name)
        return self.sidechains[name]

    def _note_metadata(self, record: dict[str, Any]) -> None:
        facts = self.state.metadata
        for key, fact in self.unknown_metadata:
            if type(record.get(key)) is str:
                facts.setdefault(fact, record[key])
                # rebound, not changed: this loop continues over the old list
                self.unknown_metadata = [f for f in self.unknown_metadata if f[1] != fact]

    def _read_init(self, record: dict[str, Any]) -> None:
        """Read the first line of the program's output: metadata, tools, model."""
        self._note_metadata(record)
        self.state.tools = tuple(
            ToolSchema(name=n) for n in as_list(record.get("tools")) if str_or_none(n)
        )
        self.main.model = str_or_none(record.get("model")) or self.main.model

    def _count_other_record(self, record_type: Any, record: dict[str, Any]) -> None:
        name = record_type if type(record_type) is str else "no type"
        if name == "attachment":
            name = f"attachment {as_str(as_dict(record.get('attachment')).get('type'))}"
        self.state.skipped[name] += 1
        if name == "result":
            self.cost_usd = float_or_none(record.get("total_cost_usd"))
        title = record.get(_TITLE_FIELDS[name]) if name in _TITLE_FIELDS else None
        if type(title) is str:
            self.titles[name] = title

    def build_session(self) -> Session:
        main, facts = self.main, self.state.metadata
        if not main.builder.entries and not facts:
            raise ReadError(
                "expected lines of type user or assistant with a message; found none.", self.path
            )
        agent = None if self.has_main else facts.get("agentId")
        session_id = facts.get("sessionId") or self.path.stem
        titles = self.titles
        session = main.build_session(
            session_id if agent is None else f"agent-{agent}", agent or "main"
        )
        children = tuple(
            msgspec.structs.replace(
                chain.build_session(f"agent-{name}", name),
                parent=session.id,
                path_=str(self.path),
                started=None,
            )
            for name, chain in self.sidechains.items()
            if chain.builder.entries
        )
        return msgspec.structs.replace(
            session,
            children=tuple(_link_to_call(c, self.state.call_by_agent) for c in children),
            parent=None if agent is None else session_id,
            title=titles.get("custom-title") or titles.get("ai-title") or titles.get("summary"),
            tools=self.state.tools,
            skipped=dict(self.state.skipped),
            faults=tuple(sorted(self.faults, key=lambda f: f.line)),
            path_=str(self.path),
            details={
                **session.details,
                **({"git_branch": facts["gitBranch"]} if facts.get("gitBranch") else {}),
                **({"subagents": self.state.call_by_agent} if self.state.call_by_agent else {}),
                **({"cost_usd": self.cost_usd} if self.cost_usd is not None else {}),
            },
        )


def _is_sidechain(record: dict[str, Any]) -> bool:
    return record.get("isSidechain") is True or type(record.get("parent_tool_use_id")) is str


class _LinesScan(NamedTuple):
    """What the lines of a file are, before any is read."""

    uuids: list[str]
    has_main: bool
    """True if a message belongs to no sidechain."""
    has_sidechains: bool
    shapes: list[dict[str, Any]]
    """The lines with the common beginning of later requests."""


def _scan_lines(records: list[tuple[int, dict[str, Any]]]) -> _LinesScan:
    uuids: list[str] = []
    shapes: list[dict[str, Any]] = []
    has_main = has_sidechains = False
    for _, record in records:
        if type(uuid := record.get("uuid")) is str:
            uuids.append(uuid)
        record_type = record.get("type")
        # `_is_sidechain`, without a call for each line
        if record.get("isSidechain") is True or type(record.get("parent_tool_use_id")) is str:
            has_sidechains = True
        elif not has_main:
            has_main = type(record_type) is str and record_type in _MESSAGE_TYPES
        if record_type == SHAPE_TYPE:
            shapes.append(record)
    return _LinesScan(uuids, has_main, has_sidechains, shapes)


def _make_state(
    uuids: list[str], records: list[tuple[int, dict[str, Any]]]
) -> SharedTranscriptState:
    """Return the state of a file: its uuids, and whether one of them names different lines."""
    unique = set(uuids)
    if len(unique) == len(uuids):
        return SharedTranscriptState(unique, ambiguous=False, repeated=False)
    message_by_uuid: dict[str, Any] = {}
    is_ambiguous = False
    for _, record in records:
        uuid = record.get("uuid")
        if type(uuid) is str:
            message = record.get("message")
            first_message = message_by_uuid.setdefault(uuid, message)
            is_ambiguous = is_ambiguous or (
                first_message is not message and first_message != message
            )
    return SharedTranscriptState(unique, ambiguous=is_ambiguous, repeated=True)


def _link_to_call(child: Session, agents: dict[str, str]) -> Session:
    call_id = agents.get(child.agent)
    return (
        child
        if call_id is None
        else msgspec.structs.replace(child, details={**child.details, "call_id": call_id})
    )


def _attach_subagents(session: Session, path: Path) -> Session:
    """Return the session with the subagents that have files of their own."""
    agents: dict[str, str] = session.details.get("subagents", {})
    folder = path.with_suffix("") / "subagents"
    files = sorted(folder.glob("agent-*.jsonl"))[:_MAX_SUBAGENT_FILES] if folder.is_dir() else []
    if agents and path.stem not in {f"agent-{a}" for a in agents}:
        older_names = {f"agent-{a}.jsonl" for a in agents} - {f.name for f in files}
        files += sorted(f for f in path.parent.glob("agent-*.jsonl") if f.name in older_names)
    children, faults = list(session.children), list(session.faults)
    for file in files:
        try:
            child = _TranscriptReader(Source(file)).build_session()
        except ReadError as e:
            faults.append(Fault(0, f"subagent {file.name}: {e.why}"))
            continue
        if child.parent in (session.id, None):
            children.append(
                _link_to_call(msgspec.structs.replace(child, parent=session.id), agents)
            )
    return msgspec.structs.replace(session, children=tuple(children), faults=tuple(faults))
