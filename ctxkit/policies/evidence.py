"""What the record proves in the place of old messages (fuseraft): tool calls with their outcome, or
files, commands with exit status and open failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ctxkit.errors import ModelError, failure_text
from ctxkit.policies.summarisers import Extractive, may_ask, text_of, written_instead
from ctxkit.policies.summary import Summary
from ctxkit.texts import contents, reconstructions

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.policies.summarisers import Passage


@dataclass(frozen=True, kw_only=True)
class IntentRecord:
    """Writes one line a tool call: what was asked, of what, and how it ended."""

    quirks: bool = False
    """Lines as fuseraft's program writes them: no commands, the error last."""
    name = "intents"
    needs_model = False

    def __call__(self, passage: Passage) -> str:
        """Return the record of a passage."""
        turns = [int(t) for t in passage.history.turns[list(passage.positions)]]
        agent = passage.history.log.agent
        return reconstructions.intents(passage.messages, turns, agent, quirks=self.quirks)


@dataclass(frozen=True, kw_only=True)
class EvidenceRecord:
    """Writes what the record proves of a passage, and of all before it."""

    name = "evidence"
    needs_model = False

    def __call__(self, passage: Passage) -> str:
        """Return the evidence."""
        return reconstructions.evidence_before(passage.history, passage.before)


@dataclass(frozen=True, kw_only=True)
class HybridRecord:
    """Writes the evidence, then another summariser's words; evidence alone where those fail."""

    summariser: Any = field(default_factory=Extractive)
    """Writes the words: ``(passage) -> text``."""
    name = "hybrid"

    @property
    def needs_model(self) -> bool:
        """True where what writes the words may ask a model."""
        return may_ask(self.summariser)

    def __call__(self, passage: Passage) -> Message | str:
        """Return evidence and words; evidence alone as a message that says why."""
        proved = EvidenceRecord()(passage)
        try:
            said = self.summariser(passage)
        except (ModelError, OSError, ValueError, RuntimeError) as error:
            alone = f"{proved}\n\n[no narrative: {contents.one_line(failure_text(error), 200)}]"
            return written_instead(alone, error)
        text = text_of(said)
        return f"{proved}\n\n---\n\n{text}" if text.strip() else proved


@dataclass(frozen=True, kw_only=True, repr=False)
class Intents(Summary):
    """Put the record of tool calls in the place of old messages; needs no model."""

    summariser: IntentRecord = IntentRecord()
    apart: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Evidence(Summary):
    """Put the evidence in the place of old messages (fuseraft's lossless mode); needs no model."""

    summariser: Any = EvidenceRecord()
    apart: bool = False


@dataclass(frozen=True, kw_only=True, repr=False)
class Hybrid(Summary):
    """Put the evidence and a summary in the place of old messages."""

    summariser: Any = HybridRecord()
    apart: bool = False

    def using(self, summariser: Any) -> Self:
        """Return the policy with the words written by another summariser."""
        return replace(self, summariser=HybridRecord(summariser=summariser))
