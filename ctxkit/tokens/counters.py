"""What a token counter is, how it weighs the parts of a message, and the room that a policy has."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.messages import Image, Sized, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.messages import Message, Part, Source

IMAGE_TOKENS = 1200
"""Weight of an image for counters of text: 4,800 characters at four a token, as Pi's
`estimateTokens` has it.
"""

_compact = msgspec.json.Encoder()
_sorted = msgspec.json.Encoder(order="sorted")


@runtime_checkable
class Counter(Protocol):
    """Anything that counts tokens: call it with a text, or ask it for a message or for several."""

    @property
    def name(self) -> str:
        """What the counter is called in reports, and what `tokens.named` knows it by."""

    @property
    def source(self) -> Source:
        """`derived` for an exact count by a named vocabulary, `estimated` for everything else."""

    def __call__(self, text: str, /) -> int:
        """Tokens of a text."""

    def message(self, message: Message) -> int:
        """Tokens of one message as it is sent."""

    def total(self, messages: Iterable[Message]) -> int:
        """Tokens of several messages; differs from the sum only where a system rounds once, at the
        end.
        """


class Room(msgspec.Struct, frozen=True):
    """All that a policy knows of the outside: the limit, what is held back of it, and the counter.

    Raises:
        BadArguments: the limit is not positive, or the reserve negative.
    """

    limit: int
    """Tokens that the model takes, prompt and reply together."""
    reserve: int
    """Tokens of it that stay free, for the reply."""
    counter: Counter

    def __post_init__(self) -> None:
        if self.limit <= 0 or self.reserve < 0:
            raise BadArguments(
                f"A room needs a limit above 0 and a reserve of 0 or more, not {self.limit} and"
                f" {self.reserve}."
            )

    @property
    def budget(self) -> int:
        """Tokens that the prompt may fill: limit less reserve, never below zero."""
        return max(self.limit - self.reserve, 0)


def arguments(call: ToolCall, *, ordered: bool = False) -> str:
    """Return the arguments of a tool call as compact JSON (keys sorted if `ordered`), or the text
    that came instead.
    """
    return call.raw if call.raw is not None else as_json(call.arguments, ordered=ordered)


def as_json(value: object, *, ordered: bool = False) -> str:
    """Return compact JSON with characters beyond ASCII left as they are; what is not JSON is
    written as its text.
    """
    return json_bytes(value, ordered=ordered).decode("utf-8", "surrogatepass")


def json_bytes(value: object, *, ordered: bool = False) -> bytes:
    """Return what `as_json` does, in UTF-8; lone surrogates are three bytes each."""
    try:
        return (_sorted if ordered else _compact).encode(value)
    except (
        UnicodeEncodeError,
        TypeError,
        ValueError,
        OverflowError,
    ):  # lone surrogates, odd objects, huge integers
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=ordered, default=str
        )
        return text.encode("utf-8", "surrogatepass")


def message_tokens(counter: Callable[[str], int], message: Message) -> int:
    """Return the tokens of a message's parts, each counted by itself.

    Text and thinking by their text; a tool call by its name and its compact JSON arguments; an
    image, sound or document by `IMAGE_TOKENS`; content of which only the size is known by its
    tokens, else by a token for each four characters. A blob of hidden thinking weighs a token for
    each four characters where no text stands in for it. Role names and delimiters are not counted.
    """
    return sum([part_tokens(counter, part) for part in message.parts])


def part_tokens(counter: Callable[[str], int], part: Part) -> int:
    """Return the tokens of one part, by the rules of `message_tokens`."""
    if isinstance(part, Text):
        return counter(part.text)
    if isinstance(part, Thinking):
        return counter(part.text) if part.text else ceil(part.hidden / 4)
    if isinstance(part, ToolCall):
        return counter(part.name) + counter(arguments(part))
    if isinstance(part, Image):
        return IMAGE_TOKENS
    return sized_tokens(part)


def sized_tokens(part: Sized) -> int:
    """Return the recorded tokens of content that the log does not hold, else a token for each four
    characters.
    """
    return part.tokens if part.tokens is not None else ceil((part.chars or 0) / 4)
