"""Saving to memory what a compaction is about to take: when, and what the model is asked."""

from __future__ import annotations

from dataclasses import dataclass

from ctxkit.errors import BadArguments

QUIET = "NO_REPLY"
"""What a model answers that has nothing to save (Fased's word)."""


@dataclass(frozen=True, kw_only=True)
class MemoryFlush:
    """A call beside the conversation to write to memory; it never holds a compaction back."""

    below: int | None = None
    """Due at so many tokens below the window, once between two compactions (Fased); None: at each
    compaction, over the messages that it takes (Tyrum)."""
    writes: int | None = None
    """Notes that are written at most; None: all that the model asks for."""
    message_chars: int | None = None
    """Characters of each message that the model sees; None: the conversation as it stands."""
    seconds: float = 120.0
    """How long it may take."""
    turn_share: float | None = None
    """The same as a share of the turn's own limit in seconds, where it has one."""
    prompt: str = (
        "The context will soon be compacted. Save what must outlive it, and nothing else, with"
        " save_memory: decisions, demands, facts and names that were found out. If there is"
        f" nothing to save, answer {QUIET}."
    )
    """What the model is told."""

    def __post_init__(self) -> None:
        if not self.seconds > 0 or (self.writes is not None and self.writes < 1):
            raise BadArguments(
                f"A memory flush needs more than 0 seconds and at least 1 write; got {self}."
            )

    def due(self, tokens: int, window: int) -> bool:
        """Return True where a context of so many tokens has reached the threshold."""
        return self.below is not None and window > self.below and tokens >= window - self.below

    @property
    def told(self) -> str:
        """What the model is told; a prompt of the user's own gets the word for nothing to save."""
        if QUIET in self.prompt:
            return self.prompt
        return f"{self.prompt}\n\nIf there is nothing to save, answer {QUIET}."
