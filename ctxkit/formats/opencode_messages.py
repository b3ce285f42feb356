"""Conversion of OpenCode messages to sessions, with prunings and both kinds of compaction."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import (
    Attachment,
    Edit,
    Fault,
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


# OpenCode edits the context in three ways, none of which is an entry at the right position:
#   pruning     a tool result has the time at which it was cleared. Results wait in a heap ordered
#               by that time; before each message, those with an earlier time become one edit
#   compaction  an assistant message with `summary: true`; the context starts at it
#   compress    a call of the compress plug-in: ranges of message numbers (m0001 is the first
#               message) become summaries written by the model
# A message has a call and its result in one part; it becomes a reply and a tool message. Older
# versions wrote several steps (API calls) into one message, which is split at `step-finish`.
def build_session(
    info: dict[str, Any], messages: list[Any], faults: Iterable[Fault] = ()
) -> Session:
    """Build a session.

    Args:
        info: the session's metadata.
        messages: its messages, each {info, parts}.
        faults: faults of the file so far.
    """
    reader = _MessageReader()
    reader.builder.faults += faults
    read_each_object(messages, "message", reader.read_message, reader.builder.faults)
    reader.finish(info)
    model = as_dict(info.get("model"))
    return reader.builder.session(
        id=as_str(info.get("id")) or "opencode",
        format="opencode",
        product="opencode",
        version=str_or_none(info.get("version")),
        agent=as_str(info.get("agent")) or "main",
        cwd=str_or_none(info.get("directory")),
        title=str_or_none(info.get("title")),
        model=str_or_none(model.get("id")) or reader.model,
        started=parse_timestamp(as_dict(info.get("time")).get("created")),
        parent=str_or_none(info.get("parentID")),
    )


class _MessageReader:
    """Reader of one session, message by message."""

    def __init__(self) -> None:
        self.builder = SessionBuilder()
        self.model: str | None = None
        self._pending_prunings: list[tuple[float, str]] = []
        """Heap of (time of pruning, id of a tool result)."""
        self._ids_by_message: list[list[str]] = []
        """Message ids of each OpenCode message, in order, as the compress plug-in numbers them."""

    def read_message(self, raw: dict[str, Any]) -> None:
        info, parts = (
            as_dict(raw.get("info")),
            [part for part in as_list(raw.get("parts")) if type(part) is dict],
        )
        self._add_prunings(parse_timestamp(as_dict(info.get("time")).get("created")))
        n_before = len(self.builder.entries)
        if info.get("role") == "user":
            self._read_user_message(info, parts)
        elif info.get("role") == "assistant":
            for step_info, step_parts in _split_steps(info, parts):
                self._read_reply(step_info, step_parts)
        elif info.get("role") == "system":
            self.builder.add_message("system", _parse_opencode_parts(parts, {}), info.get("id"))
        else:
            count_skipped(
                self.builder.skipped, "message: " + (as_str(info.get("role")) or "no role")
            )
            return
        self._ids_by_message.append(
            [e.id for e in self.builder.entries[n_before:] if isinstance(e, Message)]
        )
        for part in parts:
            if (
                part.get("tool") == "compress"
                and as_dict(part.get("state")).get("status") == "completed"
            ):
                self._read_compress_call(as_dict(part["state"]))

    def _add_prunings(self, until: float | None) -> None:
        """Add an edit for the results that were cleared up to a time (None: all)."""
        pruned_results = list[tuple[float, str]]()
        while self._pending_prunings and (until is None or self._pending_prunings[0][0] <= until):
            pruned_results.append(heappop(self._pending_prunings))
        if not pruned_results:
            return
        pruned_results.sort(key=lambda item: self.builder.index_by_id[item[1]])
        visible_ids = set(self.builder.visible_ids) if self.builder.may_edit() else set[str]()
        results = (
            self.builder.entries[self.builder.index_by_id[result_id]]
            for _, result_id in pruned_results
            if result_id in visible_ids
        )
        cleared = [m for m in results if isinstance(m, Message)]
        if not cleared:
            return
        self.builder.add(
            Edit(
                kind="replaced",
                id=self.builder.new_id(),
                targets=tuple(m.id for m in cleared),
                inserted=tuple(replace(m, parts=(Text(_CLEARED_RESULT),)) for m in cleared),
                method="prune",
                time=max(t for t, _ in pruned_results),
            )
        )

    def finish(self, info: dict[str, Any]) -> None:
        """Add the last prunings, and move to the message that the user reverted to."""
        self._add_prunings(None)
        reverted_index = self.builder.index_by_id.get(
            as_str(as_dict(info.get("revert")).get("messageID"))
        )
        if reverted_index is not None:
            self.builder.move_to(self.builder.parents[reverted_index])

    def _read_user_message(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        sent_parts = [p for p in parts if p.get("ignored") is not True]
        is_synthetic = bool(sent_parts) and all(
            p.get("synthetic") is True for p in sent_parts if p.get("type") == "text"
        )
        self.builder.add_message(
            "user",
            _parse_opencode_parts(sent_parts or parts, self.builder.skipped),
            info.get("id"),
            time=parse_timestamp(as_dict(info.get("time")).get("created")),
            kind=as_str(info.get("kind"))
            or (
                "injected"
                if is_synthetic and not any(p.get("type") == "file" for p in sent_parts)
                else ""
            ),
            visible=bool(sent_parts) or not parts,
        )

    def _read_reply(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        times = as_dict(info.get("time"))
        began_at, ended_at = (
            parse_timestamp(times.get("created")),
            parse_timestamp(times.get("completed")),
        )
        tool_parts = [tool_part for tool_part in parts if tool_part.get("type") == "tool"]
        error = as_dict(info.get("error"))
        error_message = as_str(as_dict(error.get("data")).get("message")) or as_str(
            error.get("name")
        )
        self.model = self.model or str_or_none(info.get("modelID"))
        reply = Message(
            role="assistant",
            id=self.builder.new_id(info.get("id")),
            parts=tuple(_parse_opencode_parts(parts, self.builder.skipped)),
            agent=str_or_none(info.get("agent")) or str_or_none(info.get("mode")),
            time=ended_at or began_at,
            usage=_parse_opencode_usage(info),
            model=str_or_none(info.get("modelID")),
            stop="error"
            if error
            else _STOP_REASONS.get(as_str(info.get("finish")), str_or_none(info.get("finish"))),
            latency=ended_at - began_at if began_at and ended_at and ended_at >= began_at else None,
            is_error=bool(error),
            error=error_message[:2000] or None,
        )
        if info.get("summary") is True:
            self._add_compaction(reply, str_or_none(info.get("reason")))
            return
        self.builder.add(reply)
        for tool_part in tool_parts:
            self._read_result(tool_part)

    def _read_result(self, raw: dict[str, Any]) -> None:
        state = as_dict(raw.get("state"))
        status, times = as_str(state.get("status")), as_dict(state.get("time"))
        if status not in ("completed", "error"):
            count_skipped(self.builder.skipped, "tool without a result: " + (status or "no status"))
            return
        is_error = status == "error"
        output = json_to_text(state.get("error" if is_error else "output"))
        files = [
            f
            for a in as_list(state.get("attachments"))
            for f in _parse_file_part(as_dict(a), self.builder.skipped)
        ]
        child = str_or_none(as_dict(state.get("metadata")).get("sessionId"))
        message_id, pruned_at = (
            self.builder.new_id(raw.get("id")),
            parse_timestamp(times.get("compacted")),
        )
        if pruned_at is not None:
            heappush(self._pending_prunings, (pruned_at, message_id))
        self.builder.add(
            Message(
                role="tool",
                id=message_id,
                parts=(*([Text(output)] if output else []), *files),
                time=parse_timestamp(times.get("end")),
                tool=str_or_none(raw.get("tool")),
                call_id=str_or_none(raw.get("callID")),
                is_error=is_error,
                details={"session": child} if child else {},
            )
        )

    def _add_compaction(self, reply: Message, trigger: str | None) -> None:
        """Add the built-in compaction; its reply is the summary of all messages before."""
        summary = Message(
            role="summary", id=self.builder.new_id(), parts=reply.parts, time=reply.time
        )
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
        self.builder.compact(edit, ())

    def _read_compress_call(self, state: dict[str, Any]) -> None:
        """Read a call of the compress plug-in: each range, ends included, becomes a summary."""
        arguments = as_dict(state.get("input"))
        for part in as_list(arguments.get("content")):
            has_budget = self.builder.may_edit()
            visible_ids = set(self.builder.visible_ids) if has_budget else set[str]()
            numbered = self._ids_by_message if has_budget else []
            first_number, last_number = (
                _parse_compress_plugin_id(as_dict(part).get(k)) for k in ("startId", "endId")
            )
            if first_number is None or last_number is None or not as_str(part.get("summary")):
                count_skipped(self.builder.skipped, "compress: a range that could not be read")
                continue
            time = parse_timestamp(as_dict(state.get("time")).get("end"))
            summary = Message(
                role="summary", id=self.builder.new_id(), parts=(Text(part["summary"]),), time=time
            )
            self.builder.add(
                Edit(
                    kind="summarised",
                    id=self.builder.new_id(),
                    targets=tuple(
                        i
                        for ids in numbered[first_number - 1 : last_number]
                        for i in ids
                        if i in visible_ids
                    ),
                    inserted=(summary,),
                    reason=as_str(arguments.get("topic"))[:200]
                    if has_budget
                    else TOO_MANY_COMPACTIONS,
                    trigger="tool",
                    method="compress",
                    time=time,
                )
            )


_CLEARED_RESULT = "[Old tool result content cleared]"
"""The text that OpenCode sends instead of a pruned result (`session/message-v2.ts`)."""
_STOP_REASONS = {"tool-calls": "tool", "stop": "stop", "length": "length"}

_IGNORED_PARTS = {
    "step-start",
    "step-finish",
    "snapshot",
    "agent",
    "retry",
    "subtask",
    "compaction",
}
"""Parts without content: marks of steps, snapshots, and events."""


def _parse_opencode_parts(parts: list[dict[str, Any]], skipped: dict[str, int]) -> list[Part]:
    """Return the content of a message as parts; unknown part types are counted."""
    parsed: list[Part] = []
    for part in parts:
        part_type = as_str(part.get("type"))
        if part_type == "text":
            parsed.append(Text(as_str(part.get("text"))))
        elif part_type == "reasoning":
            parsed.append(Thinking(as_str(part.get("text"))))
        elif part_type == "tool":
            arguments, raw_arguments = parse_arguments(as_dict(part.get("state")).get("input"))
            parsed.append(
                ToolCall(
                    as_str(part.get("callID")), as_str(part.get("tool")), arguments, raw_arguments
                )
            )
        elif part_type == "file":
            parsed += _parse_file_part(part, skipped)
        elif part_type not in _IGNORED_PARTS:
            count_skipped(skipped, "part: " + (part_type or "no type"))
    return parsed


def _parse_file_part(raw: dict[str, Any], skipped: dict[str, int]) -> list[Part]:
    """Return a file as a part; none for a text file, whose text is a part of its own."""
    mime, url = as_str(raw.get("mime")) or "application/octet-stream", as_str(raw.get("url"))
    if mime.startswith("text/") or mime == "application/x-directory":
        count_skipped(skipped, "part: file, whose text stands beside it")
        return []
    data = url.split(",", 1)[1] if url.startswith("data:") and "," in url else ""
    return [
        Attachment(
            mime,
            data,
            None if data else url or None,
            "image" if mime.startswith("image/") else "document",
        )
    ]


def _split_steps(
    info: dict[str, Any], parts: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Split a message of an older version into its steps, as (info, parts) each."""
    ends = [
        i
        for i, p in enumerate(parts)
        if p.get("type") == "step-finish" and as_dict(p.get("tokens"))
    ]
    if len(ends) < 2:
        return [(info, parts)]
    steps = []
    for begin, end in zip([0, *(e + 1 for e in ends)], [*ends, len(parts) - 1], strict=True):
        step_parts = parts[begin : end + 1]
        finish = parts[end] if end < len(parts) and parts[end].get("type") == "step-finish" else {}
        step_usage = {
            "tokens": finish.get("tokens"),
            "cost": finish.get("cost"),
            "finish": finish.get("reason"),
        }
        if any(p.get("type") not in _IGNORED_PARTS for p in step_parts):
            steps.append(({**info, **step_usage}, step_parts))
    return steps or [(info, parts)]


def _parse_compress_plugin_id(raw: Any) -> int | None:
    """Return the number, from 1, in an id of the compress plug-in (m0001), or None."""
    digits = as_str(raw).lstrip("m")
    return (
        int(digits)
        if digits.isascii() and digits.isdigit() and 0 < len(digits) < 8 and int(digits) > 0
        else None
    )


def _parse_opencode_usage(info: dict[str, Any]) -> Usage | None:
    """Return the usage of a message; its five token classes do not overlap, its cost is in USD."""
    tokens = as_dict(info.get("tokens"))
    cache, cost = as_dict(tokens.get("cache")), float_or_none(info.get("cost"))
    if not tokens:
        return None if cost is None else Usage(cost_usd=cost)
    output, reasoning = count_or_none(tokens.get("output")), count_or_none(tokens.get("reasoning"))
    return Usage(
        input_tokens=count_or_none(tokens.get("input")),
        cache_read_tokens=count_or_none(cache.get("read")),
        cache_write_tokens=count_or_none(cache.get("write")),
        output_tokens=None if output is None else output + (reasoning or 0),
        reasoning_tokens=reasoning,
        cost_usd=cost,
    )
