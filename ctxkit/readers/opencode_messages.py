"""OpenCode's messages told as ours: a call and its result are one part there; two kinds of compaction."""

from __future__ import annotations

from typing import Any

from ctxkit.messages import Edit, Fault, Image, Message, Part, Text, Thinking, ToolCall, Usage
from ctxkit.readers.dialects import count
from ctxkit.readers.fields import DAMAGE, arguments, as_text, items, mapping, number, real, text, time, why, word
from ctxkit.readers.logs import TOO_MANY, Log
from ctxkit.session import Session

_QUIET = {"step-start", "step-finish", "snapshot", "agent", "retry", "subtask", "compaction"}
"""Parts that are no content: marks of a step, of the working tree, of what begins."""


def to_session(info: dict[str, Any], messages: list[Any]) -> Session:
    """Return a session of its `info` and its messages, each with its parts."""
    teller = _Teller()
    faults: list[Fault] = []
    for n, raw in enumerate(messages):
        try:
            teller.take(mapping(raw))
        except DAMAGE as e:
            faults.append(Fault(0, f"message {n}: {why(e)}"))
    model = mapping(info.get("model"))
    return Session(
        id=text(info.get("id")) or "opencode",
        format="opencode",
        product="opencode",
        version=word(info.get("version")),
        agent=text(info.get("agent")) or "main",
        log=tuple(teller.log.entries),
        cwd=word(info.get("directory")),
        title=word(info.get("title")),
        model=word(model.get("id")) or teller.model,
        started=time(mapping(info.get("time")).get("created")),
        parent=word(info.get("parentID")),
        skipped=teller.skipped,
        faults=tuple(faults),
    )


class _Teller:
    """Writes OpenCode's messages, in which a call and its result are one part, as ours."""

    def __init__(self) -> None:
        self.log, self.skipped = Log(), dict[str, int]()
        self.model: str | None = None
        self._numbered: list[list[str]] = []
        """Ids of ours for each message of OpenCode's, as the compress plug-in numbers them (m0001 is the first)."""

    def take(self, raw: dict[str, Any]) -> None:
        info, parts = mapping(raw.get("info")), [p for p in items(raw.get("parts")) if type(p) is dict]
        before = len(self.log.entries)
        if info.get("role") == "user":
            self._user(info, parts)
        elif info.get("role") == "assistant":
            self._assistant(info, parts)
        else:
            count(self.skipped, "message: " + (text(info.get("role")) or "no role"))
            return
        self._numbered.append([e.id for e in self.log.entries[before:] if isinstance(e, Message)])
        for p in parts:
            if p.get("tool") == "compress" and mapping(p.get("state")).get("status") == "completed":
                self._compress(mapping(p["state"]))

    def _user(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        said = [p for p in parts if p.get("ignored") is not True]
        synthetic = bool(said) and all(p.get("synthetic") is True for p in said if p.get("type") == "text")
        self.log.add(
            Message(
                role="user",
                id=self.log.new_id(info.get("id")),
                parts=tuple(self._parts(said or parts)),
                time=time(mapping(info.get("time")).get("created")),
                kind="injected" if synthetic and not any(p.get("type") == "file" for p in said) else "",
                visible=bool(said) or not parts,
            )
        )

    def _assistant(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        when = mapping(info.get("time"))
        begun, ended = time(when.get("created")), time(when.get("completed"))
        tools = [p for p in parts if p.get("type") == "tool"]
        error = mapping(info.get("error"))
        said = text(mapping(error.get("data")).get("message")) or text(error.get("name"))
        self.model = self.model or word(info.get("modelID"))
        reply = Message(
            role="assistant",
            id=self.log.new_id(info.get("id")),
            parts=tuple(self._parts(parts)),
            agent=word(info.get("agent")) or word(info.get("mode")),
            time=ended or begun,
            usage=_usage(info),
            model=word(info.get("modelID")),
            stop="error" if error else _STOPS.get(text(info.get("finish")), word(info.get("finish"))),
            latency=ended - begun if begun and ended and ended >= begun else None,
            is_error=bool(error),
            error=said[:2000] or None,
        )
        if info.get("summary") is True:
            self._summary(reply)
            return
        self.log.add(reply)
        for p in tools:
            self._result(p)

    def _parts(self, parts: list[dict[str, Any]]) -> list[Part]:
        out: list[Part] = []
        for p in parts:
            kind = text(p.get("type"))
            if kind == "text":
                out.append(Text(text(p.get("text"))))
            elif kind == "reasoning":
                out.append(Thinking(text(p.get("text"))))
            elif kind == "tool":
                args, written = arguments(mapping(p.get("state")).get("input"))
                out.append(ToolCall(text(p.get("callID")), text(p.get("tool")), args, written))
            elif kind == "file":
                out += self._file(p)
            elif kind not in _QUIET:
                count(self.skipped, "part: " + (kind or "no type"))
        return out

    def _file(self, raw: dict[str, Any]) -> list[Part]:
        mime, url = text(raw.get("mime")) or "application/octet-stream", text(raw.get("url"))
        if mime.startswith("text/") or mime == "application/x-directory":
            count(self.skipped, "part: file, whose text stands beside it")
            return []
        data = url.split(",", 1)[1] if url.startswith("data:") and "," in url else ""
        return [Image(mime, data, None if data else url or None, "image" if mime.startswith("image/") else "document")]

    def _result(self, raw: dict[str, Any]) -> None:
        state = mapping(raw.get("state"))
        status, when = text(state.get("status")), mapping(state.get("time"))
        if status not in ("completed", "error"):
            count(self.skipped, "tool without a result: " + (status or "no status"))
            return
        wrong = status == "error"
        said = as_text(state.get("error" if wrong else "output"))
        files = [f for a in items(state.get("attachments")) for f in self._file(mapping(a))]
        child = word(mapping(state.get("metadata")).get("sessionId"))
        self.log.add(
            Message(
                role="tool",
                id=self.log.new_id(raw.get("id")),
                parts=(*([Text(said)] if said else []), *files),
                time=time(when.get("end")),
                tool=word(raw.get("tool")),
                call_id=word(raw.get("callID")),
                is_error=wrong,
                details={"session": child} if child else {},
            )
        )

    def _summary(self, reply: Message) -> None:
        """The built-in compaction: a reply that is a summary; the context starts at it."""
        summary = Message(role="summary", id=self.log.new_id(), parts=reply.parts, time=reply.time)
        edit = Edit(
            kind="summarised",
            id=reply.id,
            inserted=(summary,),
            method="compaction",
            time=reply.time,
            tokens_before=reply.usage.prompt_tokens if reply.usage else None,
            usage=reply.usage,
            model=reply.model,
        )
        self.log.compact(edit, ())

    def _compress(self, state: dict[str, Any]) -> None:
        """The plug-in's tool: each range of messages, both ends included, gives way to the model's own summary."""
        given = mapping(state.get("input"))
        for part in items(given.get("content")):
            may = self.log.may_edit()
            shown = set(self.log.shown) if may else set[str]()
            told = self._numbered if may else []
            first, last = (_ordinal(mapping(part).get(k)) for k in ("startId", "endId"))
            if first is None or last is None or not text(part.get("summary")):
                count(self.skipped, "compress: a range that could not be read")
                continue
            when = time(mapping(state.get("time")).get("end"))
            summary = Message(role="summary", id=self.log.new_id(), parts=(Text(part["summary"]),), time=when)
            self.log.add(
                Edit(
                    kind="summarised",
                    id=self.log.new_id(),
                    targets=tuple(i for ids in told[first - 1 : last] for i in ids if i in shown),
                    inserted=(summary,),
                    reason=text(given.get("topic"))[:200] if may else TOO_MANY,
                    trigger="tool",
                    method="compress",
                    time=when,
                )
            )


_STOPS = {"tool-calls": "tool", "stop": "stop", "length": "length"}


def _ordinal(raw: Any) -> int | None:
    digits = text(raw).lstrip("m")
    return int(digits) if digits.isascii() and digits.isdigit() and 0 < len(digits) < 8 and int(digits) > 0 else None


def _usage(info: dict[str, Any]) -> Usage | None:
    """Tokens of a message: the five classes stand apart; its cost is in dollars."""
    tokens = mapping(info.get("tokens"))
    cache, cost = mapping(tokens.get("cache")), real(info.get("cost"))
    if not tokens:
        return None if cost is None else Usage(cost_usd=cost)
    output, thought = number(tokens.get("output")), number(tokens.get("reasoning"))
    return Usage(
        input_tokens=number(tokens.get("input")),
        cache_read_tokens=number(cache.get("read")),
        cache_write_tokens=number(cache.get("write")),
        output_tokens=None if output is None else output + (thought or 0),
        reasoning_tokens=thought,
        cost_usd=cost,
    )
