"""Memory flush: notes in a dated file, saved before a compaction.

A flush runs at most once per compaction cycle, and never twice for the same messages: passages that
were saved are remembered by their digest. It never raises; how it ended is an event.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ctxkit._internal.redaction import redact
from ctxkit.agent.models.model import Request, ignore_delta
from ctxkit.agent.tools.tool import tool
from ctxkit.errors import ModelError, StoreError
from ctxkit.policies.offline_summarisers import ExtractiveSummariser
from ctxkit.policies.texts import summary_prompts
from ctxkit.session.messages import Message, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.agent.models.model import Model
    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.policies.memory_policies import MemoryFlush
    from ctxkit.session.messages import ToolSchema

MEMORY_FOLDER = "memory"
_MAX_SAVED_DIGESTS = 512
"""Digests of saved passages that are remembered (Tyrum's number)."""
_TRUNCATED = "\n...(truncated)"
_EXTRACT_TOKENS = 400
"""Tokens of a note that is extracted without a model."""


def save_memory(text: str) -> str:
    """Save a note to memory; it is added to today's file."""
    return text


SAVE_MEMORY_TOOL = tool(save_memory)


class MemoryFlusher:
    """Saves notes to `memory/YYYY-MM-DD.md` under the agent's root; the file is only appended to.

    Args:
        flush: when to save, and how.
        root: the agent's root folder.
        writer: the model that writes the notes; None: key sentences are extracted without a model.
        clock: returns seconds since 1970.
        emit: called with the event that says how a flush ended (kind, payload).
    """

    def __init__(
        self,
        flush: MemoryFlush,
        root: RootFolder,
        writer: Model | None,
        clock: Callable[[], float],
        emit: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.flush, self._root, self._writer = flush, root, writer
        self._clock, self._emit = clock, emit
        self._saved_digests: dict[str, None] = {}
        self._flushed_after = -1

    def is_due(self, tokens: int, window: int, compactions: int) -> bool:
        """Return True if a flush is due before the next call, once per compaction cycle."""
        if not self.flush.is_due(tokens, window) or compactions == self._flushed_after:
            return False
        self._flushed_after = compactions
        return True

    async def save(
        self,
        messages: Sequence[Message],
        *,
        tools: tuple[ToolSchema, ...] = (),
        seconds: float | None = None,
    ) -> Message | None:
        """Save the notes that the model writes; return its reply, which has the usage.

        Failures are emitted as events, never raised.

        Args:
            messages: the current prompt, or the messages about to be removed.
            tools: tool schemas of the agent's calls, so that the prompt cache still fits.
            seconds: the turn's limit in seconds; None: none.
        """
        passage = repr([(m.id, m.text) for m in messages])
        digest = sha256(passage.encode("utf-8", "replace")).hexdigest()
        if not messages or digest in self._saved_digests:
            return None
        max_seconds = self.flush.seconds
        if seconds is not None and self.flush.turn_share is not None:
            max_seconds = min(max_seconds, seconds * self.flush.turn_share)
        try:
            async with asyncio.timeout(max_seconds):
                reply = await self._ask_model(messages, tools)
            written = self._write_notes(self._collect_notes(messages, reply))
        except (ModelError, StoreError, OSError) as e:  # TimeoutError is an OSError
            late = isinstance(e, TimeoutError)
            why = f"took longer than {max_seconds:g} s" if late else redact(str(e))
            self._emit("memory_flush", {"outcome": "failed", "error": why})
            return None
        self._saved_digests[digest] = None
        if len(self._saved_digests) > _MAX_SAVED_DIGESTS:
            del self._saved_digests[next(iter(self._saved_digests))]
        outcome = "saved" if written else "nothing to save"
        self._emit("memory_flush", {"outcome": outcome, **written})
        return reply

    async def _ask_model(
        self, messages: Sequence[Message], tools: tuple[ToolSchema, ...]
    ) -> Message | None:
        if self._writer is None:
            return None
        instruction = Message(
            role="user", id="flush", kind="injected", parts=(Text(self.flush.full_prompt),)
        )
        sent = (*messages, instruction)
        limit = self.flush.message_chars
        if limit is not None:
            rows = [
                f"{m.role}: {_truncate_text(summary_prompts.plain_text(m), limit)}"
                for m in messages
            ]
            conversation = Text("<conversation>\n" + "\n\n".join(rows) + "\n</conversation>")
            passage = Message(role="user", id="passage", parts=(conversation,))
            sent, tools = (passage, instruction), ()
        try:
            return await self._writer(
                Request(messages=sent, tools=(*tools, SAVE_MEMORY_TOOL.schema)), ignore_delta
            )
        except (ModelError, asyncio.CancelledError):
            raise
        except Exception as e:  # noqa: BLE001  a model of the user's may raise anything
            raise ModelError(f"{type(e).__name__}: {e}") from None

    def _collect_notes(self, messages: Sequence[Message], reply: Message | None) -> list[str]:
        if reply is None:
            spoken_messages = [m for m in messages if m.role != "summary"]
            return [
                t
                for t in (ExtractiveSummariser().extract(spoken_messages, _EXTRACT_TOKENS),)
                if t.strip()
            ]
        save_calls = [c for c in reply.tool_calls if c.name == SAVE_MEMORY_TOOL.name]
        texts = [str(c.arguments.get("text") or "").strip() for c in save_calls]
        return [t for t in texts if t][: self.flush.writes]

    def _write_notes(self, notes: list[str]) -> dict[str, Any]:
        if not notes:
            return {}
        now = datetime.fromtimestamp(self._clock(), UTC).astimezone()
        path = f"{MEMORY_FOLDER}/{now:%Y-%m-%d}.md"
        text = "".join(f"## {now:%H:%M:%S}\n\n{redact(note)}\n\n" for note in notes)
        self._root.write(path, text.encode("utf-8", "replace"), append=True, private=True)
        by = "model" if self._writer else "extract"
        return {"path": path, "notes": len(notes), "chars": len(text), "by": by}


def _truncate_text(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + _TRUNCATED
