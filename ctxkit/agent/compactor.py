"""Compaction in a live session: prepared by the engine, forced or by hand, with a model's summary if there is one."""

from __future__ import annotations

import asyncio
from dataclasses import replace as but
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.agent.context import LiveContext
from ctxkit.agent.summaries import ModelSummariser
from ctxkit.errors import ModelError
from ctxkit.policies.chain import using
from ctxkit.policies.reconstructions import failure
from ctxkit.policies.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.agent.context import Prepared
    from ctxkit.agent.limits import Spent
    from ctxkit.agent.transcript import Transcript
    from ctxkit.messages import Edit
    from ctxkit.models.model import Model
    from ctxkit.policies.rules import Rules


class Compactor:
    """Keeps a live context within its rules.

    Args:
        transcript: the session; its edits are in force.
        rules: the context manager.
        fixed: tokens of each prompt that no message holds.
        limit: the model's window where the rules name none.
        writer: the model that writes summaries; None: the rules' own summariser.
        seconds: how long it may take.
        tell: is told what happens (event, payload).
    """

    def __init__(
        self,
        transcript: Transcript,
        rules: Rules,
        *,
        fixed: int,
        limit: int | None,
        writer: Model | None,
        seconds: float,
        tell: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.transcript, self.rules, self._tell = transcript, rules, tell
        self._model, self._seconds = writer, seconds
        self._writer: ModelSummariser | None = None
        self.context = LiveContext(transcript.session, rules, fixed=fixed, limit=limit)
        self.made = 0
        """Compactions made since the count was last set back."""

    async def prepare(self, spent: Spent) -> Prepared:
        """Prepare the next call: compact where the rules say so, prune, and tell what was done."""
        before = self.context.tokens
        prepared: Prepared = await self._off_loop(lambda: self.context.prepare(self.transcript.clock()))
        if prepared.edits:
            self._tell("compaction_start", {"trigger": prepared.edits[0].trigger, "tokens_before": before})
            self._kept(prepared.edits, before, spent)
        for name in prepared.warned:
            self._tell("context_budget_warn", {"trigger": name, "tokens": prepared.tokens})
        for held in prepared.failed:
            self._tell("compaction_end", {"error": held, "tokens_before": before, "tokens_after": before})
        return prepared

    async def compact(self, spent: Spent, policy: Any = None, *, trigger: str, focus: str = "") -> tuple[Edit, ...]:
        """Compact now; return the edits that were kept, none where there is too little to compact.

        Raises:
            ModelError: the summariser failed; nothing was changed.
        """
        before = self.context.tokens
        self._tell("compaction_start", {"trigger": trigger, "focus": focus, "tokens_before": before})
        edits: tuple[Edit, ...] = await self._off_loop(
            lambda: self.context.compact(self.chosen(policy, focus), trigger)
        )
        if edits:
            self._kept(edits, before, spent)
        else:
            self._tell("compaction_end", {"outcome": "skipped", "tokens_before": before, "tokens_after": before})
        return edits

    async def force(self, spent: Spent, trigger: str) -> bool:
        """Compact because it must be.

        A failed summary takes nothing out; the marker of failure is said in the context, so that the model knows.
        """
        try:
            return bool(await self.compact(spent, trigger=trigger))
        except ModelError as e:
            marker = self.transcript.user(failure([self.transcript.turn], str(e)), kind="injected")
            self.context.add(marker)
            self._tell("compaction_end", {"error": str(e)})
            return False

    def chosen(self, policy: Any = None, focus: str = "") -> Any:
        """Return the policy of a compaction by hand, with its summariser and its focus."""
        own = policy if policy is not None else self.rules.policy
        own = own if own is not None else Summary(keep_turns=1)
        own = using(_bare(own), self._writer) if self._writer is not None else using(own, self.rules.summariser)
        return but(own, focus=focus) if focus and hasattr(own, "focus") else own

    def _kept(self, edits: tuple[Edit, ...], before: int, spent: Spent) -> None:
        usage = self._writer.take() if self._writer is not None else None
        if usage is not None and self._model is not None:
            edits = (replace(edits[0], usage=usage, model=self._model.name), *edits[1:])
            spent.add_summary(usage, self._model.name)
        self.transcript.edit(edits)
        self.made += 1
        told = {"outcome": "compacted", "trigger": edits[0].trigger, "messages": sum(len(e.targets) for e in edits)}
        self._tell("compaction_end", {**told, "tokens_before": before, "tokens_after": self.context.tokens})

    async def _off_loop(self, work: Callable[[], Any]) -> Any:
        """Do what may summarise in a thread, so that a summary model can run on this loop meanwhile."""
        if self._model is not None:
            self._writer = ModelSummariser(self._model, asyncio.get_running_loop(), self._seconds)
            if getattr(self.rules.summariser, "name", "") in ("extractive", ""):
                self.context.rules = self.rules.but(policy=using(_bare(self.rules.policy), self._writer))
        return await asyncio.to_thread(work)


def _bare(policy: Any) -> Any:
    """Return a policy without the summariser that the rules lent it, so that another can be lent."""
    if hasattr(policy, "parts"):
        return but(policy, parts=tuple(_bare(p) for p in policy.parts))
    lent = getattr(policy, "summariser", None)
    return but(policy, summariser=None) if getattr(lent, "name", "") == "extractive" else policy
