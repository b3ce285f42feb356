"""Replies, tool results, usage and diffs built from updates of the Agent Client Protocol."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.agent.tools.execution_and_results import OutputLimits
from ctxkit.session.messages import Attachment, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_REPLY_CHARS = 1_000_000
"""Characters of a reply's text that are kept."""
_MAX_REPLY_CALLS = 1_000
"""Tool calls of one reply; a further call begins another reply."""
_MAX_DIFF_CHARS = 20_000
"""Characters of a file beyond which a change is described by its sizes only."""
_MAX_TOKEN_COUNT = 10**9
_ENDED_STATUSES = ("completed", "failed")
MISSING_RESULT = "The agent did not say how this call ended."


# Updates into messages
#
# The protocol streams pieces of text and states of tool calls, without saying where a reply ends. A
# reply is taken as complete when text follows its calls, when the message id changes, when a new
# call comes after one that has ended, or when the turn ends. A piece without text that comes while
# none of the calls has ended is the reply's own usage: Qwen Code from 0.24 on announces a call
# before it reports what the reply cost. Then the reply and the results of its calls come out, in
# the order that a conversation has. Texts and numbers of calls are bounded.


class AcpReplyBuilder:
    """Assembles ACP updates into replies and tool results.

    Args:
        model: name of the model for the replies.

    Example:
        >>> from ctxkit.agent import AcpReplyBuilder
        >>> builder = AcpReplyBuilder("claude-code")
        >>> update = {"content": {"type": "text", "text": "Hello"}}
        >>> list(builder.add_text("agent_message_chunk", update))
        []
        >>> [reply.text for reply in builder.end()]
        ['Hello']
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.usage: Usage | None = None
        """Usage of the open reply, if the agent reports it."""
        self._parts: list[Text | Thinking] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._message_id: Any = None
        self._chars_left = _MAX_REPLY_CHARS

    def add_text(self, kind: str, update: dict[str, Any]) -> Iterator[Message]:
        """Add a piece of `text` or `thinking`; yield the messages that are complete before it.

        Args:
            kind: "text" or "thinking".
            update: the notification; a new `messageId` begins another message.
        """
        piece = _block_text(update.get("content"))
        ident = update.get("messageId")
        is_other_message = (
            ident is not None and self._message_id is not None and ident != self._message_id
        )
        is_usage_update = not piece and not self._has_ended_call()
        if is_other_message or (self._calls and not is_usage_update):
            yield from self.end()
        self._message_id = ident or self._message_id
        self.usage = parse_acp_usage(_find_meta(update, "usage")) or self.usage
        piece, self._chars_left = piece[: self._chars_left], max(self._chars_left - len(piece), 0)
        part = Thinking if kind == "thinking" else Text
        if self._parts and isinstance(self._parts[-1], part):
            self._parts[-1] = part(self._parts[-1].text + piece)
        elif piece:
            self._parts.append(part(piece))

    def update_call(self, update: dict[str, Any]) -> Iterator[Message]:
        """Add or update a tool call; yield the messages that are complete before it.

        Args:
            update: an update of the protocol, `tool_call` or `tool_call_update`; its fields that
                are not null replace those reported before.
        """
        ident = str(update.get("toolCallId") or "")
        is_full = self._has_ended_call() or len(self._calls) >= _MAX_REPLY_CALLS
        if ident not in self._calls and is_full:
            yield from self.end()
        fields = self._calls.setdefault(ident, {})
        fields.update({k: v for k, v in update.items() if v is not None})

    def _has_ended_call(self) -> bool:
        return any(c.get("status") in _ENDED_STATUSES for c in self._calls.values())

    def has_call(self, ident: str) -> bool:
        """Return whether the open reply has a call of this id."""
        return ident in self._calls

    def get_call(self, ident: str) -> ToolCall:
        """Return a tool call in its current state."""
        return _to_tool_call(ident, self._calls.get(ident, {}))

    def get_call_for_review(self, ident: str) -> ToolCall:
        """Return a tool call with everything reported about it, for a person to decide on."""
        fields = self._calls.get(ident, {})
        raw_input, content = fields.get("rawInput"), fields.get("content")
        parts = content if isinstance(content, list) else [content]
        arguments = {
            **(raw_input if isinstance(raw_input, dict) else {"its input": raw_input}),
            **{f"its {k}": fields.get(k) for k in ("title", "kind", "locations")},
            **{f"its content {n}": _format_for_review(part) for n, part in enumerate(parts, 1)},
        }
        present = {k: v for k, v in arguments.items() if v is not None}
        return replace(self.get_call(ident), arguments=present)

    def end(self) -> Iterator[Message]:
        """End the open reply: yield it and the results of its calls."""
        calls = list(self._calls.items())
        parts = (*self._parts, *(_to_tool_call(i, c) for i, c in calls))
        self._parts = []
        self._calls = {}
        self._message_id = None
        self._chars_left = _MAX_REPLY_CHARS
        usage, self.usage = self.usage, None
        if not parts:
            return
        stop = "tool" if calls else "stop"
        yield Message(role="assistant", parts=parts, model=self.model, stop=stop, usage=usage)
        for ident, call in calls:
            name = _to_tool_call(ident, call).name
            text, images = _result_parts(call)
            has_ended = call.get("status") in _ENDED_STATUSES
            text = text or ("(no output)" if has_ended else MISSING_RESULT)
            text = OutputLimits().shorten(text)
            failed = call.get("status") == "failed" or not has_ended
            yield Message(
                role="tool", tool=name, call_id=ident, parts=(Text(text), *images), is_error=failed
            )


def _to_tool_call(ident: str, fields: dict[str, Any]) -> ToolCall:
    """Return a tool call, named by its tool if that is reported, else by its kind."""
    tool_name = _find_meta(fields, "toolName")
    title, kind = str(fields.get("title") or ""), str(fields.get("kind") or "other")
    first = title.split(" ", maxsplit=1)[0] or "tool"
    name = (
        tool_name
        if isinstance(tool_name, str) and tool_name
        else kind
        if kind != "other"
        else first
    )
    raw_input = fields.get("rawInput")
    arguments = dict(raw_input) if isinstance(raw_input, dict) and raw_input else {}
    locations = fields.get("locations")
    if (
        not arguments
        and isinstance(locations, list)
        and locations
        and isinstance(locations[0], dict)
    ):
        arguments = {"path": str(locations[0].get("path") or "")}
    if title and not arguments:
        arguments = {"title": title}
    return ToolCall(ident, name[:200], arguments)


def parse_acp_usage(usage: Any) -> Usage | None:
    """Return a reported usage in disjoint classes of tokens, or None.

    The protocol does not define whether the input includes cached tokens. If the total equals input
    plus output, it does, and they are subtracted.

    Args:
        usage: usage from a message of the protocol, not validated yet.

    Returns:
        The usage; None where it names no input tokens.

    Example:
        >>> from ctxkit.agent.acp_reply_builder import parse_acp_usage
        >>> usage = {"inputTokens": 100, "outputTokens": 10, "cachedReadTokens": 80}
        >>> parse_acp_usage({**usage, "totalTokens": 110}).input_tokens
        20
    """
    names = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "totalTokens")
    counts = usage if isinstance(usage, dict) else {}
    uncached, out, read, write, total = (_parse_count(counts.get(n)) for n in names)
    if uncached is None:
        return None
    if total is not None and total == uncached + (out or 0):
        uncached = max(uncached - (read or 0) - (write or 0), 0)
    return Usage(
        input_tokens=uncached, cache_read_tokens=read, cache_write_tokens=write, output_tokens=out
    )


def _parse_count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_TOKEN_COUNT else None


def _find_meta(update: dict[str, Any], name: str) -> Any:
    """Return a vendor's own field of an update (`_meta`), or None."""
    return next((m[name] for m in _meta_dicts(update.get("_meta")) if name in m), None)


def with_stored_call_id(message: Message, ids: dict[str, str]) -> Message:
    """Return a result with the id under which its call was stored.

    Args:
        message: the result of a tool call.
        ids: stored id by the id that the agent uses; other ids stay.
    """
    return replace(message, call_id=ids.get(message.call_id or "", message.call_id))


def _meta_dicts(meta: Any) -> Iterator[dict[str, Any]]:
    if isinstance(meta, dict):
        yield meta
        yield from (v for v in meta.values() if isinstance(v, dict))


def _result_parts(fields: dict[str, Any]) -> tuple[str, list[Attachment]]:
    """Return the text and the images of a call's result."""
    texts: list[str] = []
    images: list[Attachment] = []
    content = fields.get("content")
    for each in content if isinstance(content, list) else ():
        if not isinstance(each, dict):
            continue
        inner = each.get("content")
        if each.get("type") == "diff":
            texts.append(_format_diff(each))
        elif isinstance(inner, dict) and inner.get("type") == "image":
            kind, data = inner.get("mimeType") or "image/png", inner.get("data") or ""
            images.append(Attachment(str(kind), str(data)))
        else:
            texts.append(_block_text(inner))
    raw = fields.get("rawOutput")
    if not any(texts) and not images and raw is not None:
        texts = [raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)]
    return "\n".join(filter(None, texts)), images


def _block_text(content: Any) -> str:
    """Return the text of a content block; for other blocks their type and address."""
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("text"), str):
        return str(content["text"])
    resource = content.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    return f"[{content.get('type') or 'content'} {content.get('uri') or ''}]".replace(" ]", "]")


def _format_for_review(part: Any) -> Any:
    """Return a block of a call's content for a person to decide on: a file change as a diff."""
    if not isinstance(part, dict) or part.get("type") != "diff":
        return part
    path, old, new = _parse_change(part)
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return f"{path}: all of it becomes\n{new}"
    # Split at "\n" only, so that other line ends stay visible.
    return _unified_diff(path, old.split("\n"), new.split("\n"))


def _format_diff(change: dict[str, Any]) -> str:
    path, old, new = _parse_change(change)
    if len(old) + len(new) > _MAX_DIFF_CHARS:
        return f"{path}: {len(old):,} characters became {len(new):,}"
    return _unified_diff(path, old.splitlines(), new.splitlines())


def _parse_change(change: dict[str, Any]) -> tuple[str, str, str]:
    """Return the path of a file change, and the text before and after it."""
    path, old, new = (str(change.get(k) or "") for k in ("path", "oldText", "newText"))
    return path, old, new


def _unified_diff(path: str, old: list[str], new: list[str]) -> str:
    lines = difflib.unified_diff(old, new, path, path, lineterm="", n=2)
    return "\n".join(lines) or f"{path}: unchanged"
