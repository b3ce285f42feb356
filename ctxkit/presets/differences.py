"""Where a system's document and its program part ways, and which way a preset goes."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """One point at which a document and a program differ, or at which a preset cannot follow."""

    topic: str
    document: str
    program: str
    default: str
    """What the preset does."""
    quirks: str = "as the default"
    """What it does with `quirks=True`."""


LAST_CALL = Difference(
    "size that triggers",
    "tokens of the context",
    "prompt and reply of the last call together",
    "the prompt of the coming call",
)
"""Of systems that go by the usage that the last reply brought."""
LARGER = Difference("a summary larger than what it replaces", "not said", "is taken", "is refused")
"""Of systems that do not look at the size of what was written."""
MEMORY_TOOL = Difference(
    "memory tool",
    "the model is warned to save what matters before",
    "a message at nine tenths of the threshold",
    "none",
)
"""Of Inspect's three ways."""
