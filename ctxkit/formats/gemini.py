"""Reader of Gemini CLI: recorded chats (an object, or lines) and saved API contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    parse_chat_message,
    parse_parts_and_results,
    parse_tool_schemas,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Part, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "gemini-cli"
ALIASES = ("gemini",)
CAN = (
    "text, thoughts, calls with results, usage per call (cache reads), times; rewinds as branches;"
    " saved contents"
)
CANNOT = (
    "system prompt, tool schemas; compressions of recorded chats (only saved contents have "
    "their snapshot)"
)
BLIND = ("compactions",)
TRAITS = (
    (
        "all",
        ("compressions of recorded chats appear only as unmarked drops"),
    ),
)
_MESSAGE_TYPES = {"user", "gemini"}
_NOTICE_TYPES = {"info", "warning", "error"}


# A recorded chat is one object with all messages, or lines: messages, `$set` (changes of fields;
# a new list of messages branches after the common prefix) and `$rewindTo` (the parent of a message
# becomes the position). A message whose id exists on the current path replaces that message. The
# lines first become a tree of nodes (raw message, parent), which is then written entry by entry.
# Saved contents are a request's `contents`; a state snapshot in them is a compaction's summary.
def sniff(source: Source) -> bool:
    """Return True for a recorded chat or a list of API contents."""
    document = source.document
    if _get_contents(document):
        return True
    for record in source.head[:1]:
        if "sessionId" in record and (
            "projectHash" in record or record.get("kind") in ("main", "subagent")
        ):
            return True
        message_types = {
            as_str(as_dict(m).get("type")) for m in as_list(record.get("messages"))[:8]
        }
        if "sessionId" in record and "gemini" in message_types:
            return True
    return any(
        r.get("type") == "gemini" and {"id", "content", "timestamp"} <= r.keys()
        for r in source.head[:4]
    )


def read(source: Source) -> list[Session]:
    """Read the session of the file."""
    contents = _get_contents(source.document)
    if contents:
        return [_read_contents(source, contents)]
    builder = SessionBuilder()
    builder.faults += source.faults
    reader = _RecordTree(builder.skipped)
    read_each_line(source.records, reader.read_record, builder.faults)
    index_by_node: dict[int, int] = {-1: -1}
    for i, (raw, parent) in enumerate(reader.nodes):
        with catch_damage(builder.faults, 0, f"message {i}: "):
            builder.move_to(index_by_node.get(parent, -1))
            _add_message(raw, builder)
        index_by_node[i] = builder.at
    builder.move_to(index_by_node.get(reader.position, -1))
    return [_build_session(source, reader.fields, builder)]


def _build_session(source: Source, fields: dict[str, Any], builder: SessionBuilder) -> Session:
    return builder.session(
        id=as_str(fields.get("sessionId")) or source.path.stem,
        format=NAME,
        product="gemini-cli",
        agent="subagent" if fields.get("kind") == "subagent" else "main",
        title=str_or_none(fields.get("summary")),
        started=parse_timestamp(fields.get("startTime")),
        model=next((e.model for e in builder.entries if isinstance(e, Message) and e.model), None),
    )


class _RecordTree:
    """Tree of raw messages; `$rewindTo` and `$set.messages` begin branches."""

    def __init__(self, skipped: dict[str, int]) -> None:
        self.fields: dict[str, Any] = {}
        self.nodes: list[tuple[dict[str, Any], int]] = []
        self.position = -1
        self.skipped = skipped
        self._by_id: dict[str, int] = {}
        self._path_steps = 0

    def read_record(self, record: dict[str, Any]) -> None:
        if "$set" in record:
            changes = as_dict(record["$set"])
            self.fields.update((k, v) for k, v in changes.items() if k != "messages")
            if "messages" in changes:
                self._replace_messages(as_list(changes["messages"]))
        elif "$rewindTo" in record:
            node = self._by_id.get(as_str(record["$rewindTo"]))
            self._move_to(-1 if node is None else self.nodes[node][1])
        elif "sessionId" in record:
            self.fields.update((k, v) for k, v in record.items() if k != "messages")
            for m in as_list(record.get("messages")):
                self._add_node(m)
        elif len(record) == 1 and next(iter(record)).startswith("$"):
            count_skipped(self.skipped, next(iter(record)))
        else:
            self._add_node(record)

    def _add_node(self, raw: Any) -> None:
        if type(raw) is not dict or "type" not in raw:
            count_skipped(self.skipped, "record without a type")
            return
        node = self._by_id.get(as_str(raw.get("id")))
        if node is not None:
            self.nodes[node] = (raw, self.nodes[node][1])
            return
        self.nodes.append((raw, self.position))
        self.position = len(self.nodes) - 1
        if as_str(raw.get("id")):
            self._by_id[raw["id"]] = self.position

    def _replace_messages(self, messages: list[Any]) -> None:
        path = self._path_to_position()
        n_same = 0
        for node, raw in zip(path, messages, strict=False):
            if self.nodes[node][0].get("id") != as_dict(raw).get("id"):
                break
            n_same += 1
        self._move_to(path[n_same - 1] if n_same else -1)
        for raw in messages[n_same:]:
            self._add_node(raw)

    def _path_to_position(self) -> list[int]:
        if self._path_steps > 8 * len(self.nodes) + 100_000:  # bounds the cost for hostile files
            raise ValueError("rewound too often")
        nodes, node = [], self.position
        while node >= 0:
            nodes.append(node)
            node = self.nodes[node][1]
        self._path_steps += len(nodes)
        return nodes[::-1]

    def _move_to(self, node: int) -> None:
        self.position = node
        self._by_id = {as_str(self.nodes[n][0].get("id")): n for n in self._path_to_position()}
        self._by_id.pop("", None)


def _add_message(raw: dict[str, Any], builder: SessionBuilder) -> None:
    message_type, time = as_str(raw.get("type")), parse_timestamp(raw.get("timestamp"))
    parts, _ = parse_parts_and_results(raw.get("content"), builder.skipped)
    if message_type in _NOTICE_TYPES:
        notice = Message(
            role="system",
            id=builder.new_id(raw.get("id")),
            parts=tuple(parts),
            time=time,
            kind=message_type,
            visible=False,
        )
        builder.add(notice)
    elif message_type not in _MESSAGE_TYPES:
        count_skipped(builder.skipped, "message: " + (message_type or "no type"))
    elif message_type == "user":
        builder.add_message("user", parts, raw.get("id"), time=time)
    else:
        calls = [call for call in as_list(raw.get("toolCalls")) if type(call) is dict]
        thoughts: list[Part] = [
            _parse_thought(t) for t in as_list(raw.get("thoughts")) if type(t) is dict
        ]
        builder.add_message(
            "assistant",
            (*thoughts, *parts, *map(_parse_call, calls)),
            raw.get("id"),
            time=time,
            usage=_parse_usage(raw.get("tokens")),
            model=str_or_none(raw.get("model")),
            stop="tool" if calls else "stop",
        )
        for call in calls:
            builder.add(_parse_result(call, builder))


def _parse_thought(raw: dict[str, Any]) -> Thinking:
    return Thinking(
        "\n".join(t for t in (as_str(raw.get("subject")), as_str(raw.get("description"))) if t)
    )


def _parse_call(raw: dict[str, Any]) -> ToolCall:
    arguments, raw_arguments = parse_arguments(raw.get("args"))
    return ToolCall(as_str(raw.get("id")), as_str(raw.get("name")), arguments, raw_arguments)


def _parse_result(raw: dict[str, Any], builder: SessionBuilder) -> Message:
    texts, is_error = [], raw.get("status") in ("error", "cancelled")
    result = raw.get("result")
    for part in [{"text": result}] if type(result) is str else as_list(result):
        response = as_dict(as_dict(as_dict(part).get("functionResponse")).get("response"))
        is_error = is_error or "error" in response
        texts.append(
            json_to_text(response.get("output", response.get("error", as_dict(part).get("text"))))
        )
    return Message(
        role="tool",
        id=builder.new_id(),
        parts=tuple(Text(s) for s in texts if s),
        time=parse_timestamp(raw.get("timestamp")),
        tool=str_or_none(raw.get("name")),
        call_id=str_or_none(raw.get("id")),
        is_error=is_error,
        error=as_str(raw.get("status")) if is_error else None,
        pending=not result and raw.get("status") not in ("success", "error", "cancelled"),
    )


def _parse_usage(raw: Any) -> Usage | None:
    """Return a usage; `input` includes cached tokens but not `tool`, `output` no thoughts."""
    raw = as_dict(raw)
    if not raw:
        return None
    input_tokens, cache_read = count_or_none(raw.get("input")), count_or_none(raw.get("cached"))
    output, thoughts = count_or_none(raw.get("output")), count_or_none(raw.get("thoughts"))
    uncached = (
        None
        if input_tokens is None
        else max(input_tokens - (cache_read or 0), 0) + (count_or_none(raw.get("tool")) or 0)
    )
    total_output = None if output is None else output + (thoughts or 0)
    return Usage(
        input_tokens=uncached,
        cache_read_tokens=cache_read,
        output_tokens=total_output,
        reasoning_tokens=thoughts,
    )


# -- saved API contents ---------------------------------------------------------------------------


def _get_contents(document: Any) -> list[Any]:
    """Return the contents of a document, a request or a checkpoint; empty if it has none."""
    if type(document) is dict:
        document = next(
            (document[k] for k in ("contents", "clientHistory", "history") if k in document), None
        )
    contents = as_list(document)
    first = as_dict(contents[0]) if contents else {}
    return (
        contents
        if first.get("role") in ("user", "model") and type(first.get("parts")) is list
        else []
    )


def _read_contents(source: Source, contents: list[Any]) -> Session:
    builder = SessionBuilder()
    request = as_dict(source.document)
    instructions = request.get("systemInstruction", request.get("system_instruction"))
    instruction_parts = tuple(
        parse_parts_and_results(as_dict(instructions).get("parts", instructions), builder.skipped)[
            0
        ]
    )
    if instruction_parts:
        builder.add_message("system", instruction_parts)
    for i, raw in enumerate(contents):
        messages = list[Message]()
        with catch_damage(builder.faults, 0, f"content {i}: "):
            messages = parse_chat_message(raw, builder, builder.skipped)
        for m in messages:
            if m.role == "user" and "<state_snapshot>" in (
                m.text[:2000] if i == 0 else m.text.lstrip()[:16]
            ):
                summary = Message(role="summary", id=m.id, parts=m.parts)
                builder.add(
                    Edit(
                        kind="summarised",
                        id=builder.new_id(),
                        inserted=(summary,),
                        method="compress",
                    )
                )
            else:
                builder.add(m)
    declarations = [
        d
        for t in as_list(request.get("tools"))
        for d in as_list(as_dict(t).get("functionDeclarations"))
    ]
    return replace(_build_session(source, {}, builder), tools=parse_tool_schemas(declarations))
