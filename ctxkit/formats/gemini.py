"""Gemini CLI: recorded chats (one object, or lines with `$set` and `$rewindTo`) and saved API
contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import (
    count_skipped,
    parse_chat_message,
    parse_parts,
    parse_tool_schemas,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    parse_arguments,
    parse_timestamp,
    read_each_line,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Edit, Message, Part, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "gemini-cli"
ALIASES = ("gemini",)
CAN = (
    "text, thoughts, calls with results, usage per call (cache reads), times; rewinds as branches;"
    " saved contents"
)
CANNOT = (
    "system prompt, tool schemas; compressions of recorded chats (only saved contents show their"
    " snapshot)"
)
BLIND = ("compactions",)
TRAITS = (("all", "compressions of recorded chats show as unmarked falls alone"),)
_SPOKEN = {"user", "gemini"}
_TOLD = {"info", "warning", "error"}


def sniff(source: Source) -> bool:
    """Say whether this is a recorded chat or a list of API contents."""
    document = source.document
    if _contents(document):
        return True
    for record in source.head[:1]:
        if "sessionId" in record and (
            "projectHash" in record or record.get("kind") in ("main", "subagent")
        ):
            return True
        kinds = {as_str(as_dict(m).get("type")) for m in as_list(record.get("messages"))[:8]}
        if "sessionId" in record and "gemini" in kinds:
            return True
    return any(
        r.get("type") == "gemini" and {"id", "content", "timestamp"} <= r.keys()
        for r in source.head[:4]
    )


def read(source: Source) -> list[Session]:
    """Return the one session of the file."""
    contents = _contents(source.document)
    if contents:
        return [_saved(source, contents)]
    log = SessionBuilder()
    log.faults += source.faults
    lines = _Lines(log.skipped)
    read_each_line(source.records, lines.take, log.faults)
    last: dict[int, int] = {-1: -1}
    for i, (raw, parent) in enumerate(lines.nodes):
        with catch_damage(log.faults, 0, f"message {i}: "):
            log.stand(last.get(parent, -1))
            _write(raw, log)
        last[i] = log.at
    log.stand(last.get(lines.at, -1))
    return [_session(source, lines.fields, log)]


def _session(source: Source, fields: dict[str, Any], log: SessionBuilder) -> Session:
    return log.session(
        id=as_str(fields.get("sessionId")) or source.path.stem,
        format=NAME,
        product="gemini-cli",
        agent="subagent" if fields.get("kind") == "subagent" else "main",
        title=str_or_none(fields.get("summary")),
        started=parse_timestamp(fields.get("startTime")),
        model=next((e.model for e in log.entries if isinstance(e, Message) and e.model), None),
    )


class _Lines:
    """Records as a tree: `$rewindTo`, `$set.messages` branch; a repeated id amends its message."""

    def __init__(self, skipped: dict[str, int]) -> None:
        self.fields: dict[str, Any] = {}
        self.nodes: list[tuple[dict[str, Any], int]] = []
        self.at = -1
        self.skipped = skipped
        self._by_id: dict[str, int] = {}
        self._walked = 0

    def take(self, record: dict[str, Any]) -> None:
        if "$set" in record:
            changes = as_dict(record["$set"])
            self.fields.update((k, v) for k, v in changes.items() if k != "messages")
            if "messages" in changes:
                self._replace(as_list(changes["messages"]))
        elif "$rewindTo" in record:
            node = self._by_id.get(as_str(record["$rewindTo"]))
            self._stand(-1 if node is None else self.nodes[node][1])
        elif "sessionId" in record:
            self.fields.update((k, v) for k, v in record.items() if k != "messages")
            for m in as_list(record.get("messages")):
                self._add(m)
        elif len(record) == 1 and next(iter(record)).startswith("$"):
            count_skipped(self.skipped, next(iter(record)))
        else:
            self._add(record)

    def _add(self, raw: Any) -> None:
        if type(raw) is not dict or "type" not in raw:
            count_skipped(self.skipped, "record without a type")
            return
        known = self._by_id.get(as_str(raw.get("id")))
        if known is not None:
            self.nodes[known] = (raw, self.nodes[known][1])
            return
        self.nodes.append((raw, self.at))
        self.at = len(self.nodes) - 1
        if as_str(raw.get("id")):
            self._by_id[raw["id"]] = self.at

    def _replace(self, messages: list[Any]) -> None:
        line = self._line()
        same = 0
        for node, raw in zip(line, messages, strict=False):
            if self.nodes[node][0].get("id") != as_dict(raw).get("id"):
                break
            same += 1
        self._stand(line[same - 1] if same else -1)
        for raw in messages[same:]:
            self._add(raw)

    def _line(self) -> list[int]:
        if self._walked > 8 * len(self.nodes) + 100_000:  # no file can make this quadratic
            raise ValueError("rewound too often")
        out, at = [], self.at
        while at >= 0:
            out.append(at)
            at = self.nodes[at][1]
        self._walked += len(out)
        return out[::-1]

    def _stand(self, node: int) -> None:
        self.at = node
        self._by_id = {as_str(self.nodes[n][0].get("id")): n for n in self._line()}
        self._by_id.pop("", None)


def _write(raw: dict[str, Any], log: SessionBuilder) -> None:
    kind, when = as_str(raw.get("type")), parse_timestamp(raw.get("timestamp"))
    parts, _ = parse_parts(raw.get("content"), log.skipped)
    if kind in _TOLD:
        told = Message(
            role="system",
            id=log.new_id(raw.get("id")),
            parts=tuple(parts),
            time=when,
            kind=kind,
            visible=False,
        )
        log.add(told)
    elif kind not in _SPOKEN:
        count_skipped(log.skipped, "message: " + (kind or "no type"))
    elif kind == "user":
        log.say("user", parts, raw.get("id"), time=when)
    else:
        calls = [c for c in as_list(raw.get("toolCalls")) if type(c) is dict]
        thoughts: list[Part] = [
            _thought(t) for t in as_list(raw.get("thoughts")) if type(t) is dict
        ]
        log.say(
            "assistant",
            (*thoughts, *parts, *map(_call, calls)),
            raw.get("id"),
            time=when,
            usage=_usage(raw.get("tokens")),
            model=str_or_none(raw.get("model")),
            stop="tool" if calls else "stop",
        )
        for c in calls:
            log.add(_result(c, log))


def _thought(raw: dict[str, Any]) -> Thinking:
    return Thinking(
        "\n".join(t for t in (as_str(raw.get("subject")), as_str(raw.get("description"))) if t)
    )


def _call(raw: dict[str, Any]) -> ToolCall:
    args, written = parse_arguments(raw.get("args"))
    return ToolCall(as_str(raw.get("id")), as_str(raw.get("name")), args, written)


def _result(raw: dict[str, Any], log: SessionBuilder) -> Message:
    said, wrong = [], raw.get("status") in ("error", "cancelled")
    result = raw.get("result")
    for part in [{"text": result}] if type(result) is str else as_list(result):
        response = as_dict(as_dict(as_dict(part).get("functionResponse")).get("response"))
        wrong = wrong or "error" in response
        said.append(
            to_text(response.get("output", response.get("error", as_dict(part).get("text"))))
        )
    return Message(
        role="tool",
        id=log.new_id(),
        parts=tuple(Text(s) for s in said if s),
        time=parse_timestamp(raw.get("timestamp")),
        tool=str_or_none(raw.get("name")),
        call_id=str_or_none(raw.get("id")),
        is_error=wrong,
        error=as_str(raw.get("status")) if wrong else None,
        pending=not result and raw.get("status") not in ("success", "error", "cancelled"),
    )


def _usage(raw: Any) -> Usage | None:
    """Return a call's usage: `input` holds cached, `output` no thoughts; `tool` is prompt too."""
    raw = as_dict(raw)
    if not raw:
        return None
    whole, cached = count_or_none(raw.get("input")), count_or_none(raw.get("cached"))
    output, thoughts = count_or_none(raw.get("output")), count_or_none(raw.get("thoughts"))
    fresh = (
        None
        if whole is None
        else max(whole - (cached or 0), 0) + (count_or_none(raw.get("tool")) or 0)
    )
    out = None if output is None else output + (thoughts or 0)
    return Usage(
        input_tokens=fresh, cache_read_tokens=cached, output_tokens=out, reasoning_tokens=thoughts
    )


# -- saved API contents ---------------------------------------------------------------------------


def _contents(document: Any) -> list[Any]:
    """Return the contents: the document itself or within it (request, checkpoint); else empty."""
    if type(document) is dict:
        document = next(
            (document[k] for k in ("contents", "clientHistory", "history") if k in document), None
        )
    found = as_list(document)
    first = as_dict(found[0]) if found else {}
    return (
        found if first.get("role") in ("user", "model") and type(first.get("parts")) is list else []
    )


def _saved(source: Source, contents: list[Any]) -> Session:
    log = SessionBuilder()
    asked = as_dict(source.document)
    told = asked.get("systemInstruction", asked.get("system_instruction"))
    instructed = tuple(parse_parts(as_dict(told).get("parts", told), log.skipped)[0])
    if instructed:
        log.say("system", instructed)
    for i, raw in enumerate(contents):
        made = list[Message]()
        with catch_damage(log.faults, 0, f"content {i}: "):
            made = parse_chat_message(raw, log, log.skipped)
        for m in made:
            if m.role == "user" and "<state_snapshot>" in (
                m.text[:2000] if i == 0 else m.text.lstrip()[:16]
            ):
                summary = Message(role="summary", id=m.id, parts=m.parts)
                log.add(
                    Edit(kind="summarised", id=log.new_id(), inserted=(summary,), method="compress")
                )
            else:
                log.add(m)
    given = [
        d
        for t in as_list(asked.get("tools"))
        for d in as_list(as_dict(t).get("functionDeclarations"))
    ]
    return replace(_session(source, {}, log), tools=parse_tool_schemas(given))
