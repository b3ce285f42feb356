"""What is said to a server of tools and by it, in the words of the protocol and in ours."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments
from ctxkit.tools.pictures import picture

LONGEST = 64
"""Characters of a tool's name that providers take."""


def as_rpc(message: dict[str, Any]) -> Any:
    """Return a message as the package has it: version 2 by an adapter, version 1 by a model."""
    from mcp import types

    known: Any = types
    adapter = getattr(known, "jsonrpc_message_adapter", None)
    if adapter is None:
        return known.JSONRPCMessage.model_validate(message)
    return adapter.validate_python(message, by_name=False)


def next_page(cursor: str) -> Any:
    """Return what asks for the page of a list behind a cursor."""
    from mcp import types

    return types.PaginatedRequestParams(cursor=cursor)


def shown_part(part: dict[str, Any]) -> Any:
    """Return a part of a result: text, a picture, or words for what is neither."""
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text") or "")
    if kind == "image":
        import base64

        try:
            return picture(
                base64.b64decode(str(part.get("data") or ""), validate=True), "the picture"
            )
        except (ValueError, BadArguments) as e:
            return f"[a picture that is not shown: {e}]"
    held = part.get("resource")
    if kind == "resource" and isinstance(held, dict) and isinstance(held.get("text"), str):
        return held["text"]
    return (
        f"[{line(str(kind), 40)}: {line(str(part.get('uri') or part.get('mimeType') or ''), 200)}]"
    )


def part_text(shown: Any) -> str:
    """Return a part as a text: one that is none as JSON."""
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


def tool_name(name: str) -> str:
    """Return a name that providers take: letters, digits, `_` and `-`, at most 64."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(clean) <= LONGEST:
        return clean
    return f"{clean[: LONGEST - 9]}_{sha256(name.encode()).hexdigest()[:8]}"
