"""What a reader of a session shows, as plain values: the messages of a call or of the whole
session.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, overload

from ctxkit.composition import layers, window
from ctxkit.display.markup import line, plain
from ctxkit.frames.occupancy import prompts
from ctxkit.messages import Edit, Image, Message, Sized, Text, Thinking, ToolCall
from ctxkit.sizes import sizes
from ctxkit.sizes.windows import window_of
from ctxkit.subjects import answered, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ctxkit.composition import Layers
    from ctxkit.messages import Source
    from ctxkit.session import Session
    from ctxkit.sizes import Sizes

TEXT_CHARS = 20_000
"""More of one message is not sent to the browser."""
AT_ONCE = 5_000
"""Entries of a session that are sized before it is shown; a longer one is sized behind."""


class ListLine(NamedTuple):
    """A message as one line of the list."""

    position: int
    """Its place in the list, from 0."""
    message: Message
    """As it was sent."""
    tokens: int | None
    """None: not known yet."""
    raw_tokens: int = 0
    """Its tokens before it was changed."""
    changed_by: str | None = None
    call: int | None = None
    """In a list of the whole session, the first call that it could go with."""

    @property
    def name(self) -> str:
        """The role, or the tool for a result; marked where it failed."""
        m = self.message
        return line(("✗ " if failed(m) else "") + (m.tool or m.role), 30)

    @property
    def label(self) -> str:
        """Place, size, role and first words, in columns; a mark where it was changed."""
        mark = " " if self.changed_by is None else "~"
        size = "" if self.tokens is None else f"{self.tokens:,}"
        words = line(first_words(self.message), 70)
        return f"{self.position:>4} {size:>7}{mark} {self.name:<20.20}  {words}"

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
    items: Sequence[ListLine]

    groups: tuple[tuple[str, int], ...]
    """Tokens of each part of the prompt, in the order of the context report; they sum up to the
    prompt. Empty where they are not worked out yet.
    """
    limit: int | None
    """The model's window, where the log or the price table names it."""

    @cached_property
    def largest(self) -> Sequence[ListLine]:
        """The messages, the largest first; as sent where no size is known yet."""
        if isinstance(self.items, UnsizedLines):
            return self.items
        return tuple(sorted(self.items, key=lambda i: (-(i.tokens or 0), i.position)))


class UnsizedLines(Sequence["ListLine"]):
    """The lines of messages whose sizes are not known yet; each is made when it is asked for."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, at: int) -> ListLine: ...
    @overload
    def __getitem__(self, at: slice) -> list[ListLine]: ...
    def __getitem__(self, at: int | slice) -> ListLine | list[ListLine]:
        rows = range(len(self._messages))[at]
        if isinstance(rows, int):
            return ListLine(rows, self._messages[rows], None)
        return [ListLine(i, self._messages[i], None) for i in rows]


class Scenes:
    """The scenes of a session; what takes long is worked out once, of a long one by `measure`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.prompts, self.source = prompts(session)
        self._sizes: Sizes | None = None
        self._layers: Layers | None = None
        if len(session.path) <= AT_ONCE:
            self.measure()

    def __len__(self) -> int:
        return len(self.session.calls)

    @property
    def measured(self) -> bool:
        """True where the size of each message is known."""
        return self._layers is not None

    def measure(self) -> None:
        """Work out the size of each message, which takes seconds where they are many."""
        sized = sizes(self.session) if self.session.behind is None else None
        made = layers(self.session, sized=sized)
        self._sizes, self._layers = sized, made

    def at(self, call: int | None) -> Scene:
        """Return what a call was sent; None: what would be sent next."""
        if call is None:
            model, limit = self.session.model, self.session.context_window
            return Scene(None, 0, model, None, None, self._sent(None), (), limit)
        at = self.session.call(call)
        model = at.message.model or self.session.model
        limit = window_of(self.session, model, at.message).tokens
        held = self._layers.groups if self._layers is not None else {}
        groups = tuple((name, tokens[at.index]) for name, tokens in held.items())
        shown = tuple(each for each in groups if each[1])
        size, sent = self.prompts[at.index], self._sent(at.index)
        return Scene(at.index, at.turn, model, size, self.source, sent, shown, limit)

    @cached_property
    def whole(self) -> tuple[ListLine, ...]:
        """Every message that was ever said or put in, with the first call that it could go with."""
        return tuple(self._whole())

    def asked(self, message: Message) -> ToolCall | None:
        """Return the call that a result answers, where it is known."""
        return self._answers.get(id(message))

    def files(self, message: Message) -> Iterator[str]:
        """Yield the files of a message: those of its calls, or of the call that it answers."""
        own = self.asked(message)
        for call in (own,) if own is not None else message.tool_calls:
            path = path_of(call)
            if path:
                yield line(path, 200)

    def _sent(self, index: int | None) -> Sequence[ListLine]:
        if self._sizes is None and self.session.behind is None:
            return UnsizedLines(self.session.view(index))
        held = window(self.session, index, sized=self._sizes)
        return tuple(
            ListLine(i, s.message, s.tokens, s.raw_tokens, s.changed_by)
            for i, s in enumerate(held.shown)
        )

    def _whole(self) -> Iterator[ListLine]:
        places, n = [c.position for c in self.session.calls], -1
        for position, entry in enumerate(self.session.path):
            by = (entry.method or entry.kind) if isinstance(entry, Edit) else None
            # a reply is what its own call said; all else goes with the next one
            call = bisect_left(places, position)
            for message in entry.inserted if isinstance(entry, Edit) else (entry,):
                n += 1
                size = None if self._sizes is None else self._sizes.of(message)
                at = min(call, len(places) - 1) if places else None
                yield ListLine(n, message, size, 0, by, at)

    def forget(self) -> None:
        """Make the whole list anew, now that sizes are known."""
        self.__dict__.pop("whole", None)

    @cached_property
    def _answers(self) -> Mapping[int, ToolCall]:
        return {id(m): c for m, c in answered(self.session.messages) if c is not None}


def failed(message: Message) -> bool:
    """True for a call or a tool that failed."""
    return message.is_error or message.error is not None


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
    return message.error or ""


def full_text(message: Message, limit: int = TEXT_CHARS) -> str:
    """All that a message holds as text to be read, cut to a bound that the last line then names."""
    blocks = [_block(part) for part in message.parts]
    if message.error:
        blocks.append(f"[failed]\n{message.error}")
    text = plain("\n\n".join(b for b in blocks if b))
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… the first {limit:,} of {len(text):,} characters"


def searched(message: Message) -> str:
    """What a search looks at: what was said and thought, calls with their arguments, failures."""
    calls = [f"{p.name} {_arguments(p)}" for p in message.tool_calls]
    return "\n".join(filter(None, [message.text, *calls, message.error]))


def _block(part: object) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Thinking):
        hidden = ""
        if part.hidden:
            hidden = f" (and {part.hidden:,} characters that only the provider can read)"
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
