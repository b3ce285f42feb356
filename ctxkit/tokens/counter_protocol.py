"""Token counter protocol, context budget, sizes of message parts, and incremental counts."""

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
"""Tokens of an image in counters of text: 4,800 characters, four per token, as in Pi's
`estimateTokens`.
"""

_json_encoder = msgspec.json.Encoder()
_sorted_json_encoder = msgspec.json.Encoder(order="sorted")


@runtime_checkable
class TokenCounter(Protocol):
    """A token counter: call it with a text; `message` and `total` count messages."""

    @property
    def name(self) -> str:
        """Its name in reports, and for `tokens.get_counter`."""

    @property
    def source(self) -> Provenance:
        """`derived` for an exact count by a named vocabulary, else `estimated`."""

    def __call__(self, text: str, /) -> int:
        """Return the tokens of a text."""

    def message(self, message: Message) -> int:
        """Return the tokens of one message."""

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of several messages: their sum, unless a system rounds only once."""


class ContextBudget(msgspec.Struct, frozen=True):
    """The tokens that a policy may fill: context window, reserve, and the counter of sizes.

    Raises:
        BadArguments: the limit is not positive, or the reserve is negative.

    Example:
        >>> import ctxkit as ck
        >>> budget = ck.ContextBudget(200_000, 20_000, ck.tokens.default_counter())
        >>> budget.prompt_limit
        180000
    """

    limit: int
    """The model's context window, in tokens: prompt and reply together."""
    reserve: int
    """Tokens of the limit that stay free for the reply."""
    counter: TokenCounter
    """The counter of all sizes that policies compare with the budget."""

    def __post_init__(self) -> None:
        if self.limit <= 0 or self.reserve < 0:
            raise BadArguments(
                "A context budget needs a limit above 0 and a reserve of 0 or more, not"
                f" {self.limit} and {self.reserve}."
            )

    @property
    def prompt_limit(self) -> int:
        """Tokens of the prompt: limit less reserve, never below zero."""
        return max(self.limit - self.reserve, 0)


def encode_arguments(call: ToolCall, *, ordered: bool = False) -> str:
    """Return the arguments of a tool call as compact JSON, or their raw text if they are no JSON.

    Args:
        call: the tool call.
        ordered: whether keys are sorted.
    """
    return call.raw if call.raw is not None else to_compact_json(call.arguments, ordered=ordered)


def to_compact_json(value: object, *, ordered: bool = False) -> str:
    """Encode a value as compact JSON without escaping non-ASCII characters.

    Values that JSON does not have are written as their `str()`.
    """
    return to_compact_json_bytes(value, ordered=ordered).decode("utf-8", "surrogatepass")


def to_compact_json_bytes(value: object, *, ordered: bool = False) -> bytes:
    """Encode a value as `to_compact_json` does, in UTF-8; a lone surrogate has three bytes."""
    try:
        return (_sorted_json_encoder if ordered else _json_encoder).encode(value)
    # lone surrogates, values without a JSON form, huge integers
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError):
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=ordered, default=str
        )
        return text.encode("utf-8", "surrogatepass")


def count_message_tokens(counter: Callable[[str], int], message: Message) -> int:
    """Return the sum of the tokens of a message's parts.

    Text and thinking count by their text; a tool call by its name and its compact JSON arguments;
    an image, sound or document as `IMAGE_TOKENS`; content of which only the size is recorded by its
    tokens, else one token per four characters. Hidden thinking without a text counts one token per
    four characters of its blob. Role names and delimiters are not counted.
    """
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:  # most messages
        return counter(parts[0].text)
    return sum([count_part_tokens(counter, part) for part in parts])


def count_part_tokens(counter: Callable[[str], int], part: Part) -> int:
    """Return the tokens of one part; see `count_message_tokens`."""
    if isinstance(part, Text):
        return counter(part.text)
    if isinstance(part, Thinking):
        return counter(part.text) if part.text else ceil(part.hidden / 4)
    if isinstance(part, ToolCall):
        return counter(part.name) + counter(encode_arguments(part))
    if isinstance(part, Image):
        return IMAGE_TOKENS
    return count_size_only_tokens(part)


def count_size_only_tokens(part: SizeOnly) -> int:
    """Return the recorded tokens of content that is not in the log, else a quarter of its
    characters.
    """
    return part.tokens if part.tokens is not None else ceil((part.chars or 0) / 4)


class SplittableCounter(Protocol):
    """A counter that gives positions at which counts add up, as all of `ctxkit.tokens` do."""

    def count_uncached(self, text: str) -> int:
        """Return the tokens of a text without storing the count."""

    def find_split(self, text: str) -> int:
        """Return the last position at which counts add up, or 0."""


class IncrementalCounter:
    """The token count of a text that grows, such as streamed output or a log.

    The count is exact at each append. Text before the last position at which counts add up is never
    counted again; only the tail after it is. Where a text has no such position (a run of white
    space, a script without ASCII), the whole tail is counted at each append.

    Args:
        counter: from `tokens.exact_counter`; with an estimate or Claude 2's tokenizer the whole
            text is counted at each append.
        text: the beginning of the text.
    """

    def __init__(self, counter: SplittableCounter, text: str = "") -> None:
        self._counter = counter
        self._head_tokens = 0
        self._tail = ""
        self.tokens = 0
        """Tokens of everything appended so far."""
        if text:
            self.append(text)

    def append(self, text: str) -> int:
        """Append a text; return the tokens of the whole."""
        tail = self._tail + text
        count, split = self._counter.count_uncached, self._counter.find_split(tail)
        if split:  # later text does not change the count before it
            self._head_tokens += count(tail[:split])
            tail = tail[split:]
        self._tail = tail
        self.tokens = self._head_tokens + (count(tail) if tail else 0)
        return self.tokens


def count_part_chars(part: Part) -> int:
    """Return the characters of a part: of a text, of a call's name and compact JSON arguments, or
    as recorded; 0 for an image.
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
    """Return the characters of a tool call: its name, and its arguments as JSON or raw text."""
    arguments = len(call.raw) if call.raw is not None else count_json_chars(call.arguments)
    return len(call.name) + arguments


def count_json_chars(value: object) -> int:
    """Return the characters of a value as compact JSON."""
    raw = to_compact_json_bytes(value)
    return len(raw if raw.isascii() else raw.decode("utf-8", "surrogatepass"))


def estimate_part_tokens(part: Part) -> int:
    """Estimate the tokens of a part: recorded, `IMAGE_TOKENS`, or a quarter of its characters."""
    if isinstance(part, SizeOnly) and part.tokens is not None:
        return part.tokens
    if isinstance(part, Image):
        return IMAGE_TOKENS
    return -(-count_part_chars(part) // 4)


def measure_message(message: Message) -> tuple[int, int]:
    """Return the characters of a message and its estimated tokens, a quarter of them rounded up.

    The estimate equals ``tokens.get_counter("chars/4").message``. Frames need both numbers for each
    message of many files, so this function makes one pass over the parts.

    Args:
        message: any message; images count `IMAGE_TOKENS` and no characters.

    Returns:
        (characters, tokens).
    """
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        chars = len(parts[0].text)
        return chars, -(-chars // 4)
    chars, fixed_tokens, fixed_chars = 0, 0, 0
    # `fixed`: tokens of parts that do not follow from their characters
    for part in parts:
        kind = type(part)
        if kind is Text or kind is Thinking:
            chars += len(part.text)  # type: ignore[union-attr]
        elif kind is ToolCall:
            chars += count_call_chars(part)  # type: ignore[arg-type]
        else:
            part_chars = count_part_chars(part)
            chars += part_chars
            if isinstance(part, Image) or (isinstance(part, SizeOnly) and part.tokens is not None):
                fixed_tokens += estimate_part_tokens(part)
                fixed_chars += part_chars
    return chars, fixed_tokens - (-(chars - fixed_chars) // 4)


def estimate_message_tokens(message: Message) -> int:
    """Estimate the tokens of a message; see `measure_message`."""
    return measure_message(message)[1]
