"""A live session's memory: asked before turns, told after them, given what is about to go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ctxkit.agent.extractions import billed, extracted
from ctxkit.agent.remembering import EXTRACT, SessionMemory
from ctxkit.agent.threads import run
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ctxkit.memory import MemoryEntry
    from ctxkit.messages import Message
    from ctxkit.models.model import Model
    from ctxkit.session import Session


AT_END = 60.0
"""Seconds that a model may take at the end of a session: a kernel that shuts down waits for it."""


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

    async def before(self, agent: str, prompt: str, seconds: float | None = None) -> None:
        """Ask for the blocks of the next turn, for so many seconds at most (None: any)."""
        if self._memory is not None:
            self._failed(await _within(self._memory.before(agent, prompt), seconds))

    async def after(self, agent: str, seconds: float | None = None) -> None:
        """Tell the talk after a turn, for so many seconds at most (None: any)."""
        self._talked = True
        if self._memory is not None:
            self._failed(await _within(self._memory.after(agent, self._session()), seconds))

    def compacted(self) -> None:
        """Keep what may outlive the messages that a compaction took."""
        if self._memory is None:
            return
        session = self._session()
        edits, self._cuts = session.edits[self._cuts :], len(session.edits)
        gone = {t for e in edits for t in e.targets} - {m.id for e in edits for m in e.inserted}
        self._promote([m for m in session.messages if m.id in gone], "compaction")

    def end(self, writer: Model | None = None, seconds: float = AT_END) -> None:
        """Keep what may outlive the talk, where there was one.

        Where the memory asks for it the model says what; where that fails, sentences are taken.
        """
        if not self._talked:
            return
        if self._memory is not None and self._memory.by_model and writer is not None:
            try:
                run(self.remember(writer, min(seconds, AT_END), "end"))
            except CtxkitError as e:
                self._failed([str(e)])
            else:
                return
        self._promote(self._session().messages, "end")

    async def remember(
        self, writer: Model | None, seconds: float, why: str = "extraction"
    ) -> tuple[list[MemoryEntry], str]:
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
        kept = [held.add(e, session=session.id, by=by, why=why) for e in found]
        cost = billed(reply, writer)
        self._kept(kept, by, why, cost)
        return kept, cost

    # -- inside ------------------------------------------------------------------------------------

    def _promote(self, messages: Sequence[Message], why: str) -> list[MemoryEntry]:
        if self._memory is None:
            return []
        try:
            kept = self._memory.promote(self._session().id, messages, why)
            gone = self._memory.memories.consolidate(EXTRACT) if kept else []
        except CtxkitError as e:
            self._failed([str(e)])
            return []
        self._kept(kept, EXTRACT, why)
        if gone:
            names = [e.name for e, _ in gone]
            self._tell("memory_consolidated", {"names": names, "why": [why for _, why in gone]})
        return kept

    def _kept(self, kept: Sequence[MemoryEntry], by: str, why: str, cost: str = "") -> None:
        if kept:
            names, types = [e.name for e in kept], [e.type for e in kept]
            told = {"names": names, "types": types, "by": by, "why": why, "cost": cost or None}
            self._tell("memory_promoted", told)

    def _failed(self, why: Sequence[str]) -> None:
        for said in why:
            self._tell("memory_failed", {"error": said})


async def _within(asked: Awaitable[list[str]], seconds: float | None) -> list[str]:
    """Return in sentences what failed; work that takes longer than it may is one of them."""
    try:
        async with asyncio.timeout(seconds):
            return await asked
    except TimeoutError:
        return [f"The memory did not answer in what the limit of the turn left ({seconds:.3g} s)."]
