"""Parts in any dialect: text, thinking, pictures, files, tool calls, and results among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ctxkit.messages import Image, Part, Sized, Text, Thinking, ToolCall
from ctxkit.readers.fields import arguments, as_text, items, mapping, text, word

if TYPE_CHECKING:
    from collections.abc import Callable

_RESULTS = {"tool_result", "tool_call_response", "functionResponse"}


def count(skipped: dict[str, int], name: str) -> None:
    """Count a record passed over, by name (at most 200, so that no file can fill the memory)."""
    name = name[:80] if name in skipped or len(skipped) < 200 else "others"
    skipped[name] = skipped.get(name, 0) + 1


def to_parts(content: Any, skipped: dict[str, int]) -> tuple[list[Part], list[dict[str, Any]]]:
    """Return content (text, part, list of parts) as parts, and the tool results among them, raw."""
    if type(content) is str:
        return ([Text(content)] if content else []), []
    parts: list[Part] = []
    results: list[dict[str, Any]] = []
    for raw in [content] if type(content) is dict else items(content):
        if type(raw) is str:
            parts.append(Text(raw))
            continue
        if type(raw) is not dict:
            count(skipped, "part: not an object")
            continue
        kind = text(raw.get("type")) or next((k for k in _KEYED if k in raw), "")
        make = _PARTS.get(kind)
        if make is not None:
            parts.append(make(raw))
        elif kind in _RESULTS or kind.endswith("_tool_result"):
            results.append(raw)
        else:
            count(skipped, "part: " + (kind or "no type"))
    return parts, results


def _text(raw: dict[str, Any]) -> Part:
    value = next((raw[k] for k in ("text", "content", "refusal", "output") if k in raw), "")
    if raw.get("thought") is True:
        return Thinking(as_text(value), signature=word(raw.get("thoughtSignature")))
    return Text(as_text(value))


def to_reasoning(raw: dict[str, Any]) -> Thinking:
    """Return reasoning, whose text may be missing or sealed: then its size is told."""
    said = next(
        (raw[k] for k in ("thinking", "reasoning", "text", "content", "summary") if raw.get(k)), ""
    )
    if type(said) is list:
        said = "\n".join(text(mapping(s).get("text")) for s in said)
    hidden = len(text(raw.get("encrypted_content"))) + len(text(raw.get("data")))
    return Thinking(as_text(said), signature=word(raw.get("signature")), hidden=hidden)


_MIMES = ("media_type", "mimeType", "mime_type", "mime", "mediaType")


def _image(raw: dict[str, Any]) -> Image:
    inner = raw.get("image_url", raw.get("source", raw.get("inlineData", raw.get("image"))))
    fields = mapping(inner) or raw
    url = inner if type(inner) is str else text(fields.get("url"))
    media = next(
        (w for k in _MIMES if (w := word(fields.get(k)))),
        "image/png",
    )
    data = text(fields.get("data"))
    if url.startswith("data:") and "," in url[:200]:
        head, data = url.split(",", 1)
        media, url = head[5:].split(";")[0] or media, ""
    return Image(media_type=media, data=data, url=url or None)


def _compaction(raw: dict[str, Any]) -> Part:
    """What a provider put in the place of older messages; where it is sealed, its size."""
    said = raw.get("content", raw.get("text"))
    hidden = len(text(raw.get("encrypted_content")))
    return Text(as_text(said)) if said else Sized("compaction", chars=hidden or None)


def _blob(raw: dict[str, Any]) -> Part:
    """OpenTelemetry's binary parts: `blob` holds the data, `uri` says where it is."""
    kinds: dict[str, Literal["image", "audio", "document"]] = {"image": "image", "audio": "audio"}
    kind = kinds.get(text(raw.get("modality")), "document")
    mime = word(raw.get("mime_type")) or "application/octet-stream"
    return Image(mime, text(raw.get("content")), word(raw.get("uri")), kind)


def _document(raw: dict[str, Any]) -> Part:
    if word(raw.get("path")) and type(raw.get("content")) is str:  # Cline's: the file as text
        return Text(raw["content"])
    inner = mapping(raw.get("file") or raw.get("input_audio") or raw.get("source"))
    data = text(inner.get("file_data")) or text(inner.get("data"))
    audio = "audio" in text(raw.get("type"))
    media = word(inner.get("media_type")) or ("audio/wav" if audio else "application/octet-stream")
    return Image(media_type=media, data=data, kind="audio" if audio else "document")


def to_call(raw: dict[str, Any]) -> ToolCall:
    """Return a raw tool call, in whichever words its dialect puts name, id and arguments."""
    raw = mapping(raw.get("functionCall")) or raw
    inner = mapping(raw.get("function"))
    name = (
        inner.get("name")
        or raw.get("name")
        or raw.get("function_name")
        or raw.get("function")
        or raw.get("tool")
    )
    given = next(
        (s[k] for s in (inner, raw) for k in ("arguments", "args", "input") if k in s), None
    )
    args, written = arguments(given)
    wanted = raw.get("id") or raw.get("tool_call_id") or raw.get("call_id") or raw.get("toolCallId")
    return ToolCall(text(wanted), text(name), args, written)


_KEYED = ("text", "functionCall", "functionResponse", "inlineData", "image_url")
_PARTS: dict[str, Callable[[dict[str, Any]], Part]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "refusal"), _text),
    **dict.fromkeys(("thinking", "reasoning", "redacted_thinking"), to_reasoning),
    **dict.fromkeys(("image", "image_url", "input_image", "inlineData"), _image),
    **dict.fromkeys(("blob", "uri"), _blob),
    "compaction": _compaction,
    **dict.fromkeys(("file", "input_file", "document", "input_audio", "audio"), _document),
    **dict.fromkeys(
        ("tool_use", "tool_call", "toolCall", "functionCall", "function_call", "server_tool_use"),
        to_call,
    ),
}


def to_calls(raw: Any) -> list[ToolCall]:
    """Return raw tool calls as ours (Chat Completions' `function`, LangChain's `args`, ATIF's)."""
    return [to_call(c) for c in items(raw) if type(c) is dict]


def function_call(raw: dict[str, Any]) -> list[ToolCall]:
    """Return the one call of a message of Chat Completions from before there were tools."""
    called = mapping(raw.get("function_call"))  # Chat Completions before tools
    return [to_call(called)] if called else []


def to_thoughts(raw: dict[str, Any]) -> list[Part]:
    """Return the thinking that stands beside a message's content."""
    blocks: list[Part] = [
        to_reasoning(b) for b in items(raw.get("thinking_blocks")) if type(b) is dict
    ]
    said = word(raw.get("reasoning_content")) or word(raw.get("reasoning"))
    return blocks or ([Thinking(said)] if said else [])


def is_content(raw: Any) -> bool:
    """Say whether a value is a part that is known here."""
    return type(raw) is dict and raw.get("type") in _PARTS
