"""What an agent of another program tells of its turn, put together to replies and results."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.agent.output_limits import OutputLimits
from ctxkit.messages import Image, Message, Text, Thinking, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHARS = 1_000_000
"""Characters of a reply's text that are taken."""
_CALLS = 1_000
"""Calls of a reply; what is told of more begins another one."""
_DIFF = 20_000
"""Characters of a file beyond which a change is told by its sizes."""
_MOST = 10**9
_ENDED = ("completed", "failed")
UNTOLD = "The agent did not say how this call ended."


class ReplyBuilder:
    """Puts updates together: a reply ends where the agent goes on after it called a tool.

    Messages come out in the order of a conversation: a reply with its calls, then their results.

    Args:
        model: the name that stands in the replies.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.usage: Usage | None = None
        """What the call of the open reply took, where the agent tells that."""
        self._parts: list[Text | Thinking] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._message: Any = None
        self._room = _CHARS

    def say(self, kind: str, update: dict[str, Any]) -> Iterator[Message]:
        """Take a piece of text (`text`, `thinking`); yield what is whole before it."""
        piece = _text(update.get("content"))
        ident = update.get("messageId")
        other = ident is not None and self._message is not None and ident != self._message
        if self._calls or other:
            yield from self.end()
        self._message = ident or self._message
        self.usage = usage_of(_meta(update, "usage")) or self.usage
        piece, self._room = piece[: self._room], max(self._room - len(piece), 0)
        part = Thinking if kind == "thinking" else Text
        if self._parts and isinstance(self._parts[-1], part):
            self._parts[-1] = part(self._parts[-1].text + piece)
        elif piece:
            self._parts.append(part(piece))

    def call(self, update: dict[str, Any]) -> Iterator[Message]:
        """Take what is told of a tool's call, first or later; yield what is whole before it."""
        ident = str(update.get("toolCallId") or "")
        if ident not in self._calls:
            ended = any(c.get("status") in _ENDED for c in self._calls.values())
            if ended or len(self._calls) >= _CALLS:
                yield from self.end()
        known = self._calls.setdefault(ident, {})
        known.update({k: v for k, v in update.items() if v is not None})

    def knows(self, ident: str) -> bool:
        """Say whether a call was told of in the reply that is open."""
        return ident in self._calls

    def called(self, ident: str) -> ToolCall:
        """Return a call as it stands."""
        return _called(ident, self._calls.get(ident, {}))

    def asked(self, ident: str) -> ToolCall:
        """Return a call with everything that was told of it, for a person to judge."""
        told = self._calls.get(ident, {})
        given, content = told.get("rawInput"), told.get("content")
        parts = content if isinstance(content, list) else [content]
        arguments = {
            **(given if isinstance(given, dict) else {"its input": given}),
            **{f"its {k}": told.get(k) for k in ("title", "kind", "locations")},
            **{f"its content {n}": _judged(part) for n, part in enumerate(parts, 1)},
        }
        shown = {k: v for k, v in arguments.items() if v is not None}
        return replace(self.called(ident), arguments=shown)

    def end(self) -> Iterator[Message]:
        """Yield the reply that is open, and the results of its calls."""
        calls = list(self._calls.items())
        parts = (*self._parts, *(_called(i, c) for i, c in calls))
        self._parts, self._calls, self._message, self._room = [], {}, None, _CHARS
        usage, self.usage = self.usage, None
        if not parts:
            return
        stop = "tool" if calls else "stop"
        yield Message(role="assistant", parts=parts, model=self.model, stop=stop, usage=usage)
        for ident, call in calls:
            name = _called(ident, call).name
            text, images = _shown(call)
            told = call.get("status") in _ENDED
            text = text or ("(no output)" if told else UNTOLD)
            text = OutputLimits().cut(text)
            failed = call.get("status") == "failed" or not told
            yield Message(
                role="tool", tool=name, call_id=ident, parts=(Text(text), *images), is_error=failed
            )


def _called(ident: str, told: dict[str, Any]) -> ToolCall:
    """Return a call: under its tool's own name where that is told, else under its kind."""
    own = _meta(told, "toolName")
    title, kind = str(told.get("title") or ""), str(told.get("kind") or "other")
    first = title.split(" ", maxsplit=1)[0] or "tool"
    name = own if isinstance(own, str) and own else kind if kind != "other" else first
    given = told.get("rawInput")
    arguments = dict(given) if isinstance(given, dict) and given else {}
    places = told.get("locations")
    if not arguments and isinstance(places, list) and places and isinstance(places[0], dict):
        arguments = {"path": str(places[0].get("path") or "")}
    if title and not arguments:
        arguments = {"title": title}
    return ToolCall(ident, name[:200], arguments)


def usage_of(told: Any) -> Usage | None:
    """Return the usage of a call or a turn, in disjoint classes; None where the agent tells none.

    The protocol does not say whether the input holds what was read from a cache: the total does.
    """
    names = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "totalTokens")
    given = told if isinstance(told, dict) else {}
    fresh, out, read, write, total = (_count(given.get(n)) for n in names)
    if fresh is None:
        return None
    if total is not None and total == fresh + (out or 0):
        fresh = max(fresh - (read or 0) - (write or 0), 0)
    return Usage(
        input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=write, output_tokens=out
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST else None


def _meta(update: dict[str, Any], name: str) -> Any:
    """Return what an agent adds of its own to an update, under a name."""
    return next((m[name] for m in _dicts(update.get("_meta")) if name in m), None)


def with_id(message: Message, ids: dict[str, str]) -> Message:
    """Return a result that names its call by the id under which that was kept."""
    return replace(message, call_id=ids.get(message.call_id or "", message.call_id))


def _dicts(meta: Any) -> Iterator[dict[str, Any]]:
    if isinstance(meta, dict):
        yield meta
        yield from (v for v in meta.values() if isinstance(v, dict))


def _shown(told: dict[str, Any]) -> tuple[str, list[Image]]:
    """Return the text and the pictures of a call's result."""
    said: list[str] = []
    images: list[Image] = []
    content = told.get("content")
    for each in content if isinstance(content, list) else ():
        if not isinstance(each, dict):
            continue
        inner = each.get("content")
        if each.get("type") == "diff":
            said.append(_diff(each))
        elif isinstance(inner, dict) and inner.get("type") == "image":
            kind, data = inner.get("mimeType") or "image/png", inner.get("data") or ""
            images.append(Image(str(kind), str(data)))
        else:
            said.append(_text(inner))
    raw = told.get("rawOutput")
    if not any(said) and not images and raw is not None:
        said = [raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)]
    return "\n".join(filter(None, said)), images


def _text(content: Any) -> str:
    """Return the text of a block of content."""
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("text"), str):
        return str(content["text"])
    held = content.get("resource")
    if isinstance(held, dict) and isinstance(held.get("text"), str):
        return str(held["text"])
    return f"[{content.get('type') or 'content'} {content.get('uri') or ''}]".replace(" ]", "]")


def _judged(part: Any) -> Any:
    """Return a block of a call's content as a person judges it: a change as its lines."""
    if not isinstance(part, dict) or part.get("type") != "diff":
        return part
    path, old, new = _change(part)
    if len(old) + len(new) > _DIFF:
        return f"{path}: all of it becomes\n{new}"
    return _unified(path, old.split("\n"), new.split("\n"))  # other line ends stay to be seen


def _diff(told: dict[str, Any]) -> str:
    path, old, new = _change(told)
    if len(old) + len(new) > _DIFF:
        return f"{path}: {len(old):,} characters became {len(new):,}"
    return _unified(path, old.splitlines(), new.splitlines())


def _change(told: dict[str, Any]) -> tuple[str, str, str]:
    """Return the path of a change, and the text before and after it."""
    path, old, new = (str(told.get(k) or "") for k in ("path", "oldText", "newText"))
    return path, old, new


def _unified(path: str, old: list[str], new: list[str]) -> str:
    lines = difflib.unified_diff(old, new, path, path, lineterm="", n=2)
    return "\n".join(lines) or f"{path}: unchanged"
