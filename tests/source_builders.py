"""Short words for tests of readers: `source({...}, {...})` is a file of lines, `document(...)` one of a whole value."""

from __future__ import annotations

import json
from typing import Any

from ctxkit.formats import Source


def source(*records: Any, name: str = "session.jsonl") -> Source:
    return Source(
        name, b"\n".join(r if isinstance(r, bytes) else json.dumps(r).encode() for r in records)
    )


def document(value: Any, name: str = "session.json") -> Source:
    return Source(name, json.dumps(value).encode())


def texts(messages: Any) -> list[str]:
    return [m.text for m in messages]
