"""Made transcripts of Claude Code: lines that hang on each other, with the usage of a stream."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.formats import Source, read_source

if TYPE_CHECKING:
    from ctxkit.session import Session

MODEL = "claude-opus-4-5-20251101"


class Transcript:
    """Writes lines one after another; each follows the one before."""

    def __init__(self, parent: str | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._at = parent
        self._n = count()

    def add(self, kind: str, **fields: Any) -> str:
        own = f"u{next(self._n)}"
        self.lines.append(
            {"type": kind, "uuid": own, "parentUuid": self._at, "sessionId": "s", **fields}
        )
        self._at = own
        return own

    def ask(self, text: str) -> str:
        return self.add("user", message={"role": "user", "content": text})

    def answer(self, call: str, text: str) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.add("user", message={"role": "user", "content": [block]})

    def reply(
        self,
        id: str,
        prompt: int,
        output: int,
        *blocks: dict[str, Any],
        stop: str | None = None,
        **more: Any,
    ) -> str:
        read = more.pop("read", 0)
        usage = {
            "input_tokens": prompt - read,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": 0,
        }
        message = {
            "id": id,
            "role": "assistant",
            "model": more.pop("model", MODEL),
            "stop_reason": stop,
        }
        message |= {"content": list(blocks), "usage": {**usage, "output_tokens": output}}
        return self.add("assistant", message=message, requestId=f"r-{id}", **more)

    def compact(self, before: int, summary: str, trigger: str = "auto") -> None:
        meta = {"trigger": trigger, "preTokens": before}
        self.add("system", subtype="compact_boundary", parentUuid=None, compactMetadata=meta)
        self.add("user", isCompactSummary=True, message={"role": "user", "content": summary})

    def read(self) -> Session:
        data = b"\n".join(json.dumps(line).encode() for line in self.lines)
        return read_source(Source(Path("s.jsonl"), data))[0]


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def use(own: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": own, "name": "Bash", "input": {"command": "ls"}}
