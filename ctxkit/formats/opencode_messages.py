"""Messages and parts of OpenCode as ours, with both kinds of compaction."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import count_skipped
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    parse_arguments,
    parse_timestamp,
    read_each_object,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.session.messages import (
    Edit,
    Fault,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.session import Session


def build_session(
    info: dict[str, Any], messages: list[Any], faults: Iterable[Fault] = ()
) -> Session:
    """Return a session of its `info` and its messages, each with its parts."""
    teller = _MessageReader()
    teller.log.faults += faults
    read_each_object(messages, "message", teller.take, teller.log.faults)
    teller.close(info)
    model = as_dict(info.get("model"))
    return teller.log.session(
        id=as_str(info.get("id")) or "opencode",
        format="opencode",
        product="opencode",
        version=str_or_none(info.get("version")),
        agent=as_str(info.get("agent")) or "main",
        cwd=str_or_none(info.get("directory")),
        title=str_or_none(info.get("title")),
        model=str_or_none(model.get("id")) or teller.model,
        started=parse_timestamp(as_dict(info.get("time")).get("created")),
        parent=str_or_none(info.get("parentID")),
    )


class _MessageReader:
    """Writes OpenCode's messages, in which a call and its result are one part, as ours."""

    def __init__(self) -> None:
        self.log = SessionBuilder()
        self.model: str | None = None
        self._pruned: list[tuple[float, str]] = []
        """A heap of results that will be cleared, and when."""
        self._numbered: list[list[str]] = []
        """Our ids by OpenCode's message, as the compress plug-in numbers them (m0001 is first)."""

    def take(self, raw: dict[str, Any]) -> None:
        info, parts = (
            as_dict(raw.get("info")),
            [p for p in as_list(raw.get("parts")) if type(p) is dict],
        )
        self._prune(parse_timestamp(as_dict(info.get("time")).get("created")))
        before = len(self.log.entries)
        if info.get("role") == "user":
            self._user(info, parts)
        elif info.get("role") == "assistant":
            for told, some in split_steps(info, parts):
                self._assistant(told, some)
        elif info.get("role") == "system":
            self.log.say("system", parse_opencode_parts(parts, {}), info.get("id"))
        else:
            count_skipped(self.log.skipped, "message: " + (as_str(info.get("role")) or "no role"))
            return
        self._numbered.append([e.id for e in self.log.entries[before:] if isinstance(e, Message)])
        for p in parts:
            if p.get("tool") == "compress" and as_dict(p.get("state")).get("status") == "completed":
                self._compress(as_dict(p["state"]))

    def _prune(self, until: float | None) -> None:
        """Write which old results OpenCode cleared before a message; marks stand in their place."""
        due = list[tuple[float, str]]()
        while self._pruned and (until is None or self._pruned[0][0] <= until):
            due.append(heappop(self._pruned))
        if not due:
            return
        due.sort(key=lambda each: self.log.where[each[1]])
        shown = set(self.log.shown) if self.log.may_edit() else set[str]()
        found = (self.log.entries[self.log.where[own]] for _, own in due if own in shown)
        gone = [m for m in found if isinstance(m, Message)]
        if not gone:
            return
        self.log.add(
            Edit(
                kind="replaced",
                id=self.log.new_id(),
                targets=tuple(m.id for m in gone),
                inserted=tuple(replace(m, parts=(Text(_CLEARED_RESULT),)) for m in gone),
                method="prune",
                time=max(t for t, _ in due),
            )
        )

    def close(self, info: dict[str, Any]) -> None:
        """Write what was cleared last, and stand where the user has gone back to."""
        self._prune(None)
        back = self.log.where.get(as_str(as_dict(info.get("revert")).get("messageID")), -1)
        if back >= 0:
            self.log.stand(self.log.parents[back])

    def _user(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        said = [p for p in parts if p.get("ignored") is not True]
        synthetic = bool(said) and all(
            p.get("synthetic") is True for p in said if p.get("type") == "text"
        )
        self.log.say(
            "user",
            parse_opencode_parts(said or parts, self.log.skipped),
            info.get("id"),
            time=parse_timestamp(as_dict(info.get("time")).get("created")),
            kind=as_str(info.get("kind"))
            or ("injected" if synthetic and not any(p.get("type") == "file" for p in said) else ""),
            visible=bool(said) or not parts,
        )

    def _assistant(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        when = as_dict(info.get("time"))
        begun, ended = parse_timestamp(when.get("created")), parse_timestamp(when.get("completed"))
        tools = [p for p in parts if p.get("type") == "tool"]
        error = as_dict(info.get("error"))
        said = as_str(as_dict(error.get("data")).get("message")) or as_str(error.get("name"))
        self.model = self.model or str_or_none(info.get("modelID"))
        reply = Message(
            role="assistant",
            id=self.log.new_id(info.get("id")),
            parts=tuple(parse_opencode_parts(parts, self.log.skipped)),
            agent=str_or_none(info.get("agent")) or str_or_none(info.get("mode")),
            time=ended or begun,
            usage=parse_opencode_usage(info),
            model=str_or_none(info.get("modelID")),
            stop="error"
            if error
            else _STOPS.get(as_str(info.get("finish")), str_or_none(info.get("finish"))),
            latency=ended - begun if begun and ended and ended >= begun else None,
            is_error=bool(error),
            error=said[:2000] or None,
        )
        if info.get("summary") is True:
            self._summary(reply, str_or_none(info.get("reason")))
            return
        self.log.add(reply)
        for p in tools:
            self._result(p)

    def _result(self, raw: dict[str, Any]) -> None:
        state = as_dict(raw.get("state"))
        status, when = as_str(state.get("status")), as_dict(state.get("time"))
        if status not in ("completed", "error"):
            count_skipped(self.log.skipped, "tool without a result: " + (status or "no status"))
            return
        wrong = status == "error"
        said = to_text(state.get("error" if wrong else "output"))
        files = [
            f
            for a in as_list(state.get("attachments"))
            for f in parse_file_part(as_dict(a), self.log.skipped)
        ]
        child = str_or_none(as_dict(state.get("metadata")).get("sessionId"))
        own, pruned = self.log.new_id(raw.get("id")), parse_timestamp(when.get("compacted"))
        if pruned is not None:
            heappush(self._pruned, (pruned, own))
        self.log.add(
            Message(
                role="tool",
                id=own,
                parts=(*([Text(said)] if said else []), *files),
                time=parse_timestamp(when.get("end")),
                tool=str_or_none(raw.get("tool")),
                call_id=str_or_none(raw.get("callID")),
                is_error=wrong,
                details={"session": child} if child else {},
            )
        )

    def _summary(self, reply: Message, trigger: str | None) -> None:
        """The built-in compaction: a reply that is a summary; the context starts at it."""
        summary = Message(role="summary", id=self.log.new_id(), parts=reply.parts, time=reply.time)
        edit = Edit(
            kind="summarised",
            id=reply.id,
            inserted=(summary,),
            method="compaction",
            trigger=trigger,
            time=reply.time,
            tokens_before=reply.usage.prompt_tokens if reply.usage else None,
            usage=reply.usage,
            model=reply.model,
        )
        self.log.compact(edit, ())

    def _compress(self, state: dict[str, Any]) -> None:
        """Write the plug-in's edits: a range, ends included, becomes the model's own summary."""
        given = as_dict(state.get("input"))
        for part in as_list(given.get("content")):
            may = self.log.may_edit()
            shown = set(self.log.shown) if may else set[str]()
            told = self._numbered if may else []
            first, last = (parse_message_number(as_dict(part).get(k)) for k in ("startId", "endId"))
            if first is None or last is None or not as_str(part.get("summary")):
                count_skipped(self.log.skipped, "compress: a range that could not be read")
                continue
            when = parse_timestamp(as_dict(state.get("time")).get("end"))
            summary = Message(
                role="summary", id=self.log.new_id(), parts=(Text(part["summary"]),), time=when
            )
            self.log.add(
                Edit(
                    kind="summarised",
                    id=self.log.new_id(),
                    targets=tuple(i for ids in told[first - 1 : last] for i in ids if i in shown),
                    inserted=(summary,),
                    reason=as_str(given.get("topic"))[:200] if may else TOO_MANY_COMPACTIONS,
                    trigger="tool",
                    method="compress",
                    time=when,
                )
            )


_CLEARED_RESULT = "[Old tool result content cleared]"
"""What OpenCode sends in the place of a result that it has pruned (`session/message-v2.ts`)."""
_STOPS = {"tool-calls": "tool", "stop": "stop", "length": "length"}

_IGNORED_PARTS = {
    "step-start",
    "step-finish",
    "snapshot",
    "agent",
    "retry",
    "subtask",
    "compaction",
}
"""Parts that are no content: marks of a step, of the working tree, of what begins."""


def parse_opencode_parts(parts: list[dict[str, Any]], skipped: dict[str, int]) -> list[Part]:
    """Return what a message says; marks are passed over, unknown parts counted."""
    out: list[Part] = []
    for p in parts:
        kind = as_str(p.get("type"))
        if kind == "text":
            out.append(Text(as_str(p.get("text"))))
        elif kind == "reasoning":
            out.append(Thinking(as_str(p.get("text"))))
        elif kind == "tool":
            args, written = parse_arguments(as_dict(p.get("state")).get("input"))
            out.append(ToolCall(as_str(p.get("callID")), as_str(p.get("tool")), args, written))
        elif kind == "file":
            out += parse_file_part(p, skipped)
        elif kind not in _IGNORED_PARTS:
            count_skipped(skipped, "part: " + (kind or "no type"))
    return out


def parse_file_part(raw: dict[str, Any], skipped: dict[str, int]) -> list[Part]:
    """Return a file as a part; the text of one stands beside it already."""
    mime, url = as_str(raw.get("mime")) or "application/octet-stream", as_str(raw.get("url"))
    if mime.startswith("text/") or mime == "application/x-directory":
        count_skipped(skipped, "part: file, whose text stands beside it")
        return []
    data = url.split(",", 1)[1] if url.startswith("data:") and "," in url else ""
    return [
        Image(
            mime,
            data,
            None if data else url or None,
            "image" if mime.startswith("image/") else "document",
        )
    ]


def split_steps(
    info: dict[str, Any], parts: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The calls of a message: one, but older versions wrote several steps into one message."""
    ends = [
        i
        for i, p in enumerate(parts)
        if p.get("type") == "step-finish" and as_dict(p.get("tokens"))
    ]
    if len(ends) < 2:
        return [(info, parts)]
    out = []
    for begin, end in zip([0, *(e + 1 for e in ends)], [*ends, len(parts) - 1], strict=True):
        some = parts[begin : end + 1]
        last = parts[end] if end < len(parts) and parts[end].get("type") == "step-finish" else {}
        told = {
            "tokens": last.get("tokens"),
            "cost": last.get("cost"),
            "finish": last.get("reason"),
        }
        if any(p.get("type") not in _IGNORED_PARTS for p in some):
            out.append(({**info, **told}, some))
    return out or [(info, parts)]


def parse_message_number(raw: Any) -> int | None:
    """Return the number in an id of the compress plug-in (m0001), from 1."""
    digits = as_str(raw).lstrip("m")
    return (
        int(digits)
        if digits.isascii() and digits.isdigit() and 0 < len(digits) < 8 and int(digits) > 0
        else None
    )


def parse_opencode_usage(info: dict[str, Any]) -> Usage | None:
    """Tokens of a message: the five classes stand apart; its cost is in dollars."""
    tokens = as_dict(info.get("tokens"))
    cache, cost = as_dict(tokens.get("cache")), float_or_none(info.get("cost"))
    if not tokens:
        return None if cost is None else Usage(cost_usd=cost)
    output, thought = count_or_none(tokens.get("output")), count_or_none(tokens.get("reasoning"))
    return Usage(
        input_tokens=count_or_none(tokens.get("input")),
        cache_read_tokens=count_or_none(cache.get("read")),
        cache_write_tokens=count_or_none(cache.get("write")),
        output_tokens=None if output is None else output + (thought or 0),
        reasoning_tokens=thought,
        cost_usd=cost,
    )
