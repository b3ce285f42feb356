"""A record of tool calls with their outcome in the place of old messages, without a model
(fuseraft's intents).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.policies.summary import Summary
from ctxkit.texts import reconstructions

if TYPE_CHECKING:
    from ctxkit.policies.summarisers import Passage


@dataclass(frozen=True, kw_only=True)
class IntentRecord:
    """Writes one line a tool call: what was asked, of what, and how it ended."""

    quirks: bool = False
    """Lines as fuseraft's program writes them: no commands, the error last."""
    name = "intents"

    def __call__(self, passage: Passage) -> str:
        """Return the record of a passage."""
        turns = [int(t) for t in passage.history.turns[list(passage.positions)]]
        agent = passage.history.log.agent
        return reconstructions.intents(passage.messages, turns, agent, quirks=self.quirks)


@dataclass(frozen=True, kw_only=True, repr=False)
class Intents(Summary):
    """Put the record of tool calls in the place of old messages; needs no model."""

    summariser: IntentRecord = IntentRecord()
    apart: bool = False
