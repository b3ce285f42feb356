"""What a message adds to the window: its parts by group, named where a group has members."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.composition.sections import sections
from ctxkit.display.markup import line
from ctxkit.messages import LOST, Image, Text, Thinking, ToolCall
from ctxkit.sizes.sharing import by_weight
from ctxkit.tokens.lengths import part_chars, part_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.messages import Message, Part

SYSTEM, TOOLS, MEMORY, SUMMARY = "system prompt", "tool schemas", "memory", "summaries"
USER, INJECTED, SAID, THOUGHT, ASKED = (
    "user",
    "injected",
    "assistant text",
    "thinking",
    "tool calls",
)
RESULTS, IMAGES, AUDIO, DOCUMENTS, UNSEEN = (
    "tool results",
    "images",
    "audio",
    "documents",
    "not in the log",
)
BEFORE = "lost with the log's head"
"""A conversation's beginning that is not in its file."""
LATER = "not in the log, since"
"""What a prompt holds beside its messages and beyond what it began with."""
GONE = "dropped without a mark"
"""What the log shows and the prompt no longer held: no tokens, but a size before."""
GROUPS = (
    SYSTEM,
    TOOLS,
    MEMORY,
    SUMMARY,
    USER,
    INJECTED,
    SAID,
    THOUGHT,
    ASKED,
    RESULTS,
    IMAGES,
    AUDIO,
    DOCUMENTS,
    UNSEEN,
    BEFORE,
    LATER,
    GONE,
)
"""All groups, in the order in which they are shown."""
_BINARY = {"image": IMAGES, "audio": AUDIO, "document": DOCUMENTS}
_INJECTED = frozenset({"wrapper", "injected", "custom", "hook", "reminder", "attachment"})


class GroupedPiece(NamedTuple):
    """A piece of a message: where it counts, and how much of the message it is."""

    group: str
    name: str
    """The section, the tool; empty where the group has no members."""
    chars: int
    weight: int
    """The plain estimate, by which the size of the message is shared among its pieces."""
    raw_chars: int = 0
    """Characters of what it was made from, where those are more; else 0."""

    def raw(self, tokens: int) -> int:
        """Return the tokens that it would have uncut, by its characters."""
        return max(tokens, tokens * self.raw_chars // max(self.chars, 1))


def pieces(message: Message) -> list[GroupedPiece]:
    """Return what a message adds, piece by piece."""
    if message.sections:
        return [_section(message, *each) for each in message.sections]
    return [piece for part in message.parts for piece in _pieces(message, part)]


def shares(message: Message, tokens: int) -> list[tuple[GroupedPiece, int]]:
    """Return the pieces of a message, each with its share of all of the message's tokens."""
    found = pieces(message)
    if not found and tokens:  # only its size is known
        found = [GroupedPiece(*_group(message, Text("")), 0, 1)]
    return list(zip(found, share(tokens, [p.weight for p in found]), strict=True))


def _pieces(message: Message, part: Part) -> Iterator[GroupedPiece]:
    if message.role == "system" and isinstance(part, Text):
        for name, text in sections(part.text):
            group = MEMORY if "memor" in name.lower() else SYSTEM
            yield GroupedPiece(group, name, len(text), -(-len(text) // 4))
    else:
        group, name = _group(message, part)
        yield GroupedPiece(group, name, part_chars(part), part_tokens(part))


def _section(message: Message, name: str, text: str, raw_chars: int) -> GroupedPiece:
    """Return a section that the message names itself."""
    group = MEMORY if name == "memory" else SYSTEM if message.role == "system" else INJECTED
    raw = raw_chars if raw_chars > len(text) else 0
    return GroupedPiece(group, line(name, 60), len(text), max(-(-len(text) // 4), 1), raw)


def _group(message: Message, part: Part) -> tuple[str, str]:
    if isinstance(part, Image):
        return _BINARY[part.kind], ""
    if isinstance(part, ToolCall):
        return ASKED, part.name
    if message.role == "tool":
        return RESULTS, message.tool or "unknown tool"
    if isinstance(part, Thinking):
        return THOUGHT, ""
    return _spoken(message)


def _spoken(message: Message) -> tuple[str, str]:
    if message.kind == LOST:
        return BEFORE, ""
    if message.role == "summary" or message.kind == "branch_summary":
        return SUMMARY, ""
    if "memor" in message.kind:
        return MEMORY, message.kind
    if message.role == "system":
        return SYSTEM, message.kind or "preamble"
    if message.role == "assistant":
        return SAID, ""
    return (INJECTED, message.kind) if message.kind in _INJECTED else (USER, "")


def share(total: int, weights: Sequence[int]) -> list[int]:
    """Share a whole number by weights, with no rest: the largest remainders are rounded up."""
    if not any(weights):
        return [total if i == 0 else 0 for i in range(len(weights))]
    return by_weight(total, weights)
