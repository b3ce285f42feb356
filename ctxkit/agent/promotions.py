"""A live session's memory at work: asked before turns, told after them, and given what is about to
go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.agent.extractions import billed, extracted
from ctxkit.agent.remembering import EXTRACT, SessionMemory
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.memory import MemoryEntry
    from ctxkit.messages import Message
    from ctxkit.models.model import Model
    from ctxkit.session import Session


class Promotions:
    """What a session's memory is asked and given, and what is told of it.

    Args:
        memory: None: nothing is asked, given or told.
        session: returns it as it stands.
        tell: is told what happens (event, payload).
    """

    def __init__(
        self,
        memory: SessionMemory | None,
        session: Callable[[], Session],
        tell: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._memory, self._session, self._tell = memory, session, tell
        self._talked = False
        self.moved()

    def moved(self) -> None:
        """Take the compactions that stand for done."""
        self._cuts = len(self._session().edits) if self._memory is not None else 0

    async def before(self, agent: str, prompt: str) -> None:
        """Ask for the blocks of the next turn."""
        if self._memory is not None:
            self._failed(await self._memory.before(agent, prompt))

    async def after(self, agent: str) -> None:
        """Tell the talk after a turn."""
        self._talked = True
        if self._memory is not None:
            self._failed(await self._memory.after(agent, self._session()))

    def compacted(self) -> None:
        """Keep what may outlive the messages that a compaction took."""
        if self._memory is None:
            return
        session = self._session()
        edits, self._cuts = session.edits[self._cuts :], len(session.edits)
        gone = {t for e in edits for t in e.targets} - {m.id for e in edits for m in e.inserted}
        self._promote([m for m in session.messages if m.id in gone], "compaction")

    def end(self) -> None:
        """Keep what may outlive the talk, where there was one."""
        if self._talked:
            self._promote(self._session().messages, "end")

    async def remember(self, writer: Model | None, seconds: float) -> tuple[list[MemoryEntry], str]:
        """Return what a model finds worth remembering, kept, and in words what it cost.

        Without a model, sentences are taken.

        Raises:
            BadArguments: the session has no memory.
            ModelError: the model failed; nothing was kept.
            StoreError: it cannot be kept.
        """
        if self._memory is None:
            raise BadArguments("This session has no memory: begin it with `--memory on`.")
        session, held = self._session(), self._memory.memories
        if writer is None:
            return self._promote(session.messages, "extraction"), ""
        found, reply = await extracted(writer, session.messages, held.entries(), seconds)
        by = redact(writer.name)
        kept = [held.add(e, session=session.id, by=by, why="extraction") for e in found]
        self._kept(kept, by, "extraction")
        return kept, billed(reply, writer)

    # -- inside ------------------------------------------------------------------------------------

    def _promote(self, messages: Sequence[Message], why: str) -> list[MemoryEntry]:
        if self._memory is None:
            return []
        try:
            kept = self._memory.promote(self._session().id, messages, why)
        except CtxkitError as e:
            self._failed([str(e)])
            return []
        self._kept(kept, EXTRACT, why)
        return kept

    def _kept(self, kept: Sequence[MemoryEntry], by: str, why: str) -> None:
        if kept:
            names, types = [e.name for e in kept], [e.type for e in kept]
            self._tell("memory_promoted", {"names": names, "types": types, "by": by, "why": why})

    def _failed(self, why: Sequence[str]) -> None:
        for said in why:
            self._tell("memory_failed", {"error": said})
