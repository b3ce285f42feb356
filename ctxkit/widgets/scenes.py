"""What an explorer shows at a call, as plain values: its messages with their sizes, the text of one
of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit.composition import layers, report, window
from ctxkit.frames.costs import Costs
from ctxkit.frames.occupancy import prompts
from ctxkit.markup import line, plain
from ctxkit.messages import Image, Sized, Text, Thinking, ToolCall
from ctxkit.sizes import sizes

if TYPE_CHECKING:
    from ctxkit.messages import Message, Source
    from ctxkit.session import Session

TEXT_CHARS = 20_000
"""More of one message is not sent to the browser."""
PAGE = 100
"""Messages on one page of the list."""


@dataclass(frozen=True)
class ListLine:
    """A message as one line of the list."""

    position: int
    """Its place in the prompt, from 0."""
    message: Message
    """As it was sent."""
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed."""
    changed_by: str | None

    @property
    def name(self) -> str:
        """The role, or the tool for a result; marked where it failed."""
        m = self.message
        return line(("✗ " if m.is_error else "") + (m.tool or m.role), 30)

    @property
    def label(self) -> str:
        """Place, size, role and first words, in columns; a mark where it was changed."""
        mark = " " if self.changed_by is None else "~"
        words = line(first_words(self.message), 70)
        return f"{self.position:>4} {self.tokens:>7,}{mark} {self.name:<20.20}  {words}"

    @property
    def change(self) -> str:
        """What was done to it, in words; empty where it was sent as it was said."""
        if self.changed_by is None:
            return ""
        was = f", {self.raw_tokens:,} tokens before" if self.raw_tokens else ""
        return line(f"by {self.changed_by}{was}", 100)


@dataclass(frozen=True)
class Scene:
    """All that is shown of one call; `call` is None where the session has none."""

    call: int | None
    turn: int
    model: str | None
    tokens: int | None
    source: Source | None
    items: tuple[ListLine, ...]

    groups: tuple[tuple[str, int], ...]
    """Tokens of each part of the prompt, in the order of the context report; they sum up to the
    prompt.
    """
    limit: int | None
    """The model's window, where the log or the price table names it."""

    @cached_property
    def largest(self) -> tuple[ListLine, ...]:
        """The messages, the largest first."""
        return tuple(sorted(self.items, key=lambda i: (-i.tokens, i.position)))

    def page(self, number: int, *, by_size: bool) -> tuple[ListLine, ...]:
        """Return one page of the list."""
        return (self.largest if by_size else self.items)[number * PAGE : (number + 1) * PAGE]

    @property
    def pages(self) -> int:
        """How many pages the list has, at least one."""
        return max(1, -(-len(self.items) // PAGE))


class Scenes:
    """The scenes of a session; sizes are worked out once."""

    def __init__(self, session: Session) -> None:
        self.session, self.layers = session, layers(session)
        self._sizes = sizes(session) if session.behind is None else None
        self.prompts, self.source = prompts(session)
        self.costs = Costs()

    def __len__(self) -> int:
        return len(self.session.calls)

    def at(self, call: int | None) -> Scene:
        """Return what a call was sent; None: what would be sent next."""
        index = None if call is None else self.session.call(call).index
        held = window(self.session, index, sized=self._sizes)
        items = tuple(
            ListLine(i, s.message, s.tokens, s.raw_tokens, s.changed_by)
            for i, s in enumerate(held.shown)
        )
        if call is None:
            groups = tuple(report(self.session, None).groups().items())
            return Scene(
                None, 0, self.session.model, None, None, items, groups, self.session.context_window
            )
        at = self.session.call(call)
        model = at.message.model or self.session.model
        limit, _ = self.costs.limit(self.session, at.message, model)
        groups = tuple(
            (name, tokens[at.index])
            for name, tokens in self.layers.groups.items()
            if tokens[at.index]
        )
        return Scene(
            at.index, at.turn, model, self.prompts[at.index], self.source, items, groups, limit
        )


def first_words(message: Message) -> str:
    """The beginning of a message, for a list."""
    for part in message.parts:
        if isinstance(part, (Text, Thinking)) and part.text.strip():
            return part.text[:400]
        if isinstance(part, ToolCall):
            return f"{part.name} {_arguments(part)[:300]}"
        if isinstance(part, Image):
            return f"[{part.kind}: {part.media_type}]"
        if isinstance(part, Sized):
            return f"[{part.kind}: only its size is known]"
    return ""


def full_text(message: Message, limit: int = TEXT_CHARS) -> str:
    """All that a message holds as text to be read, cut to a bound that the last line then names."""
    blocks = [_block(part) for part in message.parts]
    text = plain("\n\n".join(b for b in blocks if b))
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… the first {limit:,} of {len(text):,} characters"


def _block(part: object) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Thinking):
        hidden = (
            f" (and {part.hidden:,} characters that only the provider can read)"
            if part.hidden
            else ""
        )
        return f"[thinking{hidden}]\n{part.text}"
    if isinstance(part, ToolCall):
        return f"[calls {part.name}]\n{_arguments(part, indent=1)}"
    if isinstance(part, Image):
        return f"[{part.kind}: {part.media_type}, {len(part.data):,} characters of base64]"
    if isinstance(part, Sized):
        return f"[{part.kind}: the log gives only its size]"
    return ""


def _arguments(part: ToolCall, indent: int | None = None) -> str:
    if part.raw is not None:
        return part.raw
    return json.dumps(part.arguments, indent=indent, ensure_ascii=False, default=str)
