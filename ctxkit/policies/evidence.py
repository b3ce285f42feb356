"""Evidence in the place of old messages, read off the record: files, commands with exit status,
open failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ctxkit.errors import ModelError
from ctxkit.messages import Message
from ctxkit.policies.summarisers import Extractive
from ctxkit.policies.summary import Summary
from ctxkit.texts import contents, reconstructions, summary_passages

if TYPE_CHECKING:
    from ctxkit.policies.summarisers import Passage


@dataclass(frozen=True, kw_only=True)
class EvidenceRecord:
    """Writes what the record proves of a passage, and of all before it."""

    name = "evidence"

    def __call__(self, passage: Passage) -> str:
        """Return the evidence."""
        return reconstructions.evidence_before(passage.history, passage.before)


@dataclass(frozen=True, kw_only=True)
class HybridRecord:
    """Writes the evidence first, then another summariser's words; the evidence alone where those
    fail.
    """

    summariser: Any = field(default_factory=Extractive)
    """Writes the words: ``(passage) -> text``."""
    name = "hybrid"

    def __call__(self, passage: Passage) -> str:
        """Return evidence and words."""
        proved = EvidenceRecord()(passage)
        try:
            said = self.summariser(passage)
        except (ModelError, OSError, ValueError, RuntimeError) as error:
            return f"{proved}\n\n[no narrative: {contents.one_line(str(error), 200)}]"
        text = (
            summary_passages.plain(said)
            if isinstance(said, Message)
            else said
            if isinstance(said, str)
            else ""
        )
        return f"{proved}\n\n---\n\n{text}" if text.strip() else proved


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
