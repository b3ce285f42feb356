"""The token counter protocol, the weights of message parts, characters, and incremental counts."""

from __future__ import annotations

import json
from math import ceil
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.session.messages import Image, SizeOnly, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.session.messages import Message, Part, Provenance


IMAGE_TOKENS = 1200
"""Weight of an image for counters of text: 4,800 characters at four a token, as Pi's
`estimateTokens` has it.
"""

_json_encoder = msgspec.json.Encoder()
_sorted_json_encoder = msgspec.json.Encoder(order="sorted")


@runtime_checkable
class TokenCounter(Protocol):
    """Anything that counts tokens: call it with a text, or ask it for a message or for several."""

    @property
    def name(self) -> str:
        """What the counter is called in reports, and what `tokens.get_counter` knows it by."""

    @property
    def source(self) -> Provenance:
        """`derived` for an exact count by a named vocabulary, `estimated` for everything else."""

    def __call__(self, text: str, /) -> int:
        """Tokens of a text."""

    def message(self, message: Message) -> int:
        """Tokens of one message as it is sent."""

    def total(self, messages: Iterable[Message]) -> int:
        """Tokens of several messages; differs from the sum only where a system rounds once, at the
        end.
        """


class ContextBudget(msgspec.Struct, frozen=True):
    """All that a policy knows of the outside: the limit, what is held back of it, and the counter.

    Raises:
        BadArguments: the limit is not positive, or the reserve negative.
    """

    limit: int
    """Tokens that the model takes, prompt and reply together."""
    reserve: int
    """Tokens of it that stay free, for the reply."""
    counter: TokenCounter

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


def arguments_json(call: ToolCall, *, ordered: bool = False) -> str:
    """Return the arguments of a tool call as compact JSON (keys sorted if `ordered`), or the text
    that came instead.
    """
    return call.raw if call.raw is not None else to_compact_json(call.arguments, ordered=ordered)


def to_compact_json(value: object, *, ordered: bool = False) -> str:
    """Return compact JSON with characters beyond ASCII left as they are; what is not JSON is
    written as its text.
    """
    return to_compact_json_bytes(value, ordered=ordered).decode("utf-8", "surrogatepass")


def to_compact_json_bytes(value: object, *, ordered: bool = False) -> bytes:
    """Return what `as_json` does, in UTF-8; lone surrogates are three bytes each."""
    try:
        return (_sorted_json_encoder if ordered else _json_encoder).encode(value)
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


def count_message_tokens(counter: Callable[[str], int], message: Message) -> int:
    """Return the tokens of a message's parts, each counted by itself.

    Text and thinking by their text; a tool call by its name and its compact JSON arguments; an
    image, sound or document by `IMAGE_TOKENS`; content of which only the size is known by its
    tokens, else by a token for each four characters. A blob of hidden thinking weighs a token for
    each four characters where no text stands in for it. Role names and delimiters are not counted.
    """
    return sum([count_part_tokens(counter, part) for part in message.parts])


def count_part_tokens(counter: Callable[[str], int], part: Part) -> int:
    """Return the tokens of one part, by the rules of `message_tokens`."""
    if isinstance(part, Text):
        return counter(part.text)
    if isinstance(part, Thinking):
        return counter(part.text) if part.text else ceil(part.hidden / 4)
    if isinstance(part, ToolCall):
        return counter(part.name) + counter(arguments_json(part))
    if isinstance(part, Image):
        return IMAGE_TOKENS
    return count_size_only_tokens(part)


def count_size_only_tokens(part: SizeOnly) -> int:
    """Return the recorded tokens of content that the log does not hold, else a token for each four
    characters.
    """
    return part.tokens if part.tokens is not None else ceil((part.chars or 0) / 4)


class SplittableCounter(Protocol):
    """A counter that knows where counts add up: all of `ctxkit.tokens` do."""

    def fresh(self, text: str) -> int:
        """Tokens of a text, not remembered."""

    def cut(self, text: str) -> int:
        """Return the last place at which counts add up, or 0."""


class IncrementalCounter:
    """The count of a text to which is appended: streamed output, or a log.

    Exact at each append. What lies before the last place at which counts add up is never counted
    again; only where a text has no such place (a run of white space, a script without ASCII) the
    open end is counted anew.

    Args:
        counter: from `tokens.exact_counter`; with an estimate or Claude 2's tokenizer the whole is
            counted at each append.
        text: what is there already.
    """

    def __init__(self, counter: SplittableCounter, text: str = "") -> None:
        self._counter = counter
        self._done = 0
        self._tail = ""
        self.tokens = 0
        """Tokens of everything appended so far."""
        if text:
            self.append(text)

    def append(self, text: str) -> int:
        """Add to the end and return the tokens of the whole."""
        tail = self._tail + text
        count, cut = self._counter.fresh, self._counter.cut(tail)
        if cut:
            self._done += count(tail[:cut])
            tail = tail[cut:]
        self._tail = tail
        self.tokens = self._done + (count(tail) if tail else 0)
        return self.tokens


def count_part_chars(part: Part) -> int:
    """Characters of one part: text as it stands, a tool call as its name and compact JSON
    arguments; 0 for an image.
    """
    kind = type(part)
    if kind is Text or kind is Thinking:
        return len(part.text)  # type: ignore[union-attr]
    if isinstance(part, ToolCall):
        return count_call_chars(part)
    if isinstance(part, SizeOnly):
        return part.chars or 0
    return 0


def count_call_chars(call: ToolCall) -> int:
    """Characters of a tool call: its name, and its arguments as compact JSON or as they came."""
    return len(call.name) + (
        len(call.raw) if call.raw is not None else count_json_chars(call.arguments)
    )


def count_json_chars(value: object) -> int:
    """Characters of a value as compact JSON."""
    raw = to_compact_json_bytes(value)
    return len(raw if raw.isascii() else raw.decode("utf-8", "surrogatepass"))


def estimate_part_tokens(part: Part) -> int:
    """The plain estimate of one part: a quarter of its characters, or the size that the log gives;
    images by weight.
    """
    if isinstance(part, SizeOnly) and part.tokens is not None:
        return part.tokens
    if isinstance(part, Image):
        return IMAGE_TOKENS
    return -(-count_part_chars(part) // 4)


def measure_message(message: Message) -> tuple[int, int]:
    """Return characters and plain estimate of a message: a quarter of its characters, rounded up
    once.

    The estimate equals ``tokens.get_counter("chars/4").message``; it is kept lean, as frames ask it
    of every message of many files, and walks the parts once for both numbers.
    """
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        chars = len(parts[0].text)
        return chars, -(-chars // 4)
    chars, known, counted = 0, 0, 0
    for part in parts:
        kind = type(part)
        if kind is Text or kind is Thinking:
            chars += len(part.text)  # type: ignore[union-attr]
        elif kind is ToolCall:
            chars += count_call_chars(part)  # type: ignore[arg-type]
        else:
            known += estimate_part_tokens(part) if (exact := _has_fixed_tokens(part)) else 0
            counted += count_part_chars(part) if exact else 0
            chars += count_part_chars(part)
    return chars, known - (-(chars - counted) // 4)


def estimate_message_tokens(message: Message) -> int:
    """The plain estimate of a message."""
    return measure_message(message)[1]


def _has_fixed_tokens(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, SizeOnly) and part.tokens is not None)
