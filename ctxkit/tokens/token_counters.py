"""Token counters: the protocol, look-up by name, estimates by length, incremental counts."""

from __future__ import annotations

import re
from functools import cache
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.session.messages import Attachment, Message, SizeOnly, Text, Thinking, ToolCall
from ctxkit.tokens.exact_counters import (
    ENCODINGS,
    anthropic_counter,
    can_count_exactly,
    exact_counter,
)
from ctxkit.tokens.message_token_counting import encode_arguments, to_compact_json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.messages import Part, Provenance


_UNITS: dict[str, LengthUnit] = {"chars": "characters", "bytes": "bytes", "utf16": "utf16"}
_BY_LENGTH = re.compile(r"(chars|bytes|utf16)/(\d+(?:\.\d+)?)")


def counter_names() -> list[str]:
    """Return the names for `get_counter`, which also takes any `chars/N`, `bytes/N`, `utf16/N`.

    Example:
        >>> from ctxkit import tokens
        >>> tokens.counter_names()
        ['exact', ..., 'anthropic', 'chars/4', 'pi', ...]
    """
    return ["exact", *ENCODINGS, "anthropic", "chars/4", *SYSTEM_ESTIMATES]


def get_counter(name: str) -> TokenCounter:
    """Return a token counter by its name.

    Args:
        name: `exact`, an encoding (`o200k_base`), `anthropic`, an estimate by length (`chars/4`,
            `bytes/3`, `utf16/4`), or a system's estimate (`pi`); see `counter_names`.

    Raises:
        BadArguments: there is no such counter.

    Example:
        >>> from ctxkit import tokens
        >>> tokens.get_counter("chars/4")("Hello, world")
        3
    """
    word = name.strip().lower()
    if word == "exact":
        return exact_counter()
    if word in ENCODINGS:
        return exact_counter(word)
    if word == "anthropic":
        return anthropic_counter()
    system = SYSTEM_ESTIMATES.get(word) or SYSTEM_ESTIMATES.get(word.replace("-", "_"))
    if system is not None:
        return system
    by_length = _BY_LENGTH.fullmatch(word)
    if by_length and float(by_length[2]) > 0:
        return estimated_counter(float(by_length[2]), unit=_UNITS[by_length[1]])
    raise BadArguments(
        f"No counter is called {name!r}; there are"
        f" {', '.join(counter_names())}.{did_you_mean(word, counter_names())}"
    )


def default_counter() -> TokenCounter:
    """Return the exact counter of o200k_base, or `chars/4` where its vocabulary is missing.

    Example:
        >>> from ctxkit import tokens
        >>> tokens.default_counter().name
        'o200k_base'
    """
    return exact_counter() if can_count_exactly() else estimated_counter()


# How real systems estimate tokens: the length of what is sent, in one of three units, divided by
# three or four. They differ in what counts (role and tool names, JSON or text, images, failed
# replies) and in what is rounded (each part, each message, the total). Each system is one
# `EstimatedCounter`, whose docstring names the source.

LengthUnit = Literal["characters", "bytes", "utf16"]


class EstimatedCounter(msgspec.Struct, frozen=True, kw_only=True):
    """Estimates tokens by length: units of the message parts, divided and rounded.

    Raises:
        BadArguments: the divisor is not above zero.

    Example:
        >>> from ctxkit.tokens import EstimatedCounter
        >>> counter = EstimatedCounter(name="bytes/3", unit="bytes", divisor=3)
        >>> counter("Hello, world")
        4
    """

    name: str
    """Its name in reports."""
    unit: LengthUnit = "characters"
    """`characters` (code points), `bytes` (of UTF-8) or `utf16` (code units, the length of strings
    in JavaScript and C#).
    """
    divisor: float = 4.0
    """Units per token."""
    rounding: Literal["ceil", "floor"] = "ceil"
    """Whether fractions of a token are rounded up or down."""
    scope: Literal["part", "message", "total"] = "message"
    """Whether each part, each message, or the total is rounded."""
    image: int | None = 4800
    """Units of an image, sound or document; None: the length of its JSON."""
    user_image: int | None = -1
    """The same in a user's message; -1: as in any other."""
    role: bool = False
    """Whether the name of the role counts."""
    tool_name: bool = True
    """Whether the tool's name counts in addition to the arguments of a call."""
    parts_as_json: Literal["none", "other", "message"] = "none"
    """`other`: parts that are no plain text count by their JSON; `message`: all parts do, except a
    single text.
    """
    go_json: bool = False
    """Whether arguments are encoded as by Go: keys sorted; `<`, `>` and `&` as six bytes each."""
    wide: bool = False
    """Whether characters of wide scripts count more; see `count_wide_script_extra_units`."""
    unsent: bool = False
    """Whether failed replies count with their calls, although they are not sent again."""

    def __post_init__(self) -> None:
        if not self.divisor > 0:
            raise BadArguments(f"An estimate needs a divisor above 0, not {self.divisor}.")

    @property
    def source(self) -> Provenance:
        """`estimated`, always."""
        return "estimated"

    def __call__(self, text: str, /) -> int:
        """Return the tokens of a text by itself."""
        return self._to_tokens(self.units(text))

    def count_uncached(self, text: str) -> int:
        """Return the tokens of a text by itself; an estimate stores no counts."""
        return self(text)

    def find_split(self, text: str) -> int:  # noqa: ARG002
        """Return 0: because of rounding there is no position at which estimates add up."""
        return 0

    def units(self, text: str) -> int:
        """Return the length of a text in the unit."""
        if self.unit == "characters" or text.isascii():
            return len(text)
        if self.unit == "bytes":
            return len(text.encode("utf-8", "surrogatepass"))
        # two bytes per code unit; a lone surrogate is one unit
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        return units + count_wide_script_extra_units(text) if self.wide else units

    def message(self, message: Message) -> int:
        """Return the tokens of one message by itself."""
        parts = message.parts
        if len(parts) == 1 and type(parts[0]) is Text and self._counts_text_alone(message):
            return self._to_tokens(self.units(parts[0].text))
        return self._to_tokens(sum(self._part_units(message)))

    def total(self, messages: Iterable[Message]) -> int:
        """Return the tokens of several messages, rounded as the system rounds."""
        if self.scope == "total":
            return self._to_tokens(sum(sum(self._part_units(m)) for m in messages))
        return sum(map(self.message, messages))

    def _counts_text_alone(self, message: Message) -> bool:
        """Return True where a message with one text has the units of that text."""
        is_plain = self.scope != "part" and self.parts_as_json == "none" and not self.role
        return is_plain and not (self.unsent and message.details)

    def _to_tokens(self, units: float) -> int:
        return (ceil if self.rounding == "ceil" else floor)(units / self.divisor)

    def _part_units(self, message: Message) -> list[float]:
        """Return the units of each part; with scope `part` rounded to whole tokens."""
        if self.parts_as_json == "message" and not _is_single_text(message):
            weights: list[float] = [
                self._json_units([_to_ai_sdk_part(p, message) for p in message.parts])
                + _size_only_units(message, self.divisor)
            ]
        else:
            weights = [self._units_of(p, message) for p in message.parts]
            if self.unsent:
                weights += [self._units_of(call, message) for call in _calls_not_run(message)]
        if self.role:
            weights.append(len(_ROLES.get(message.role, message.role)))
        return (
            [self._to_tokens(w) * self.divisor for w in weights]
            if self.scope == "part"
            else weights
        )

    def _units_of(self, part: Part, message: Message) -> float:
        if isinstance(part, SizeOnly):
            return part.tokens * self.divisor if part.tokens is not None else part.chars or 0
        if isinstance(part, Attachment):
            is_own = message.role == "user" and self.user_image != -1
            units = self.user_image if is_own else self.image
            return self._json_units(_to_ai_sdk_part(part, message)) if units is None else units
        if self.parts_as_json != "none" and not (isinstance(part, Text) and message.role != "tool"):
            return self._json_units(_to_ai_sdk_part(part, message))
        if isinstance(part, ToolCall):
            name = self.units(part.name) if self.tool_name else 0
            if part.raw is None and not self.go_json:
                return self._json_units(part.arguments) + name
            return self.units(self._arguments_text(part)) + name
        return self.units(part.text)

    def _arguments_text(self, call: ToolCall) -> str:
        text = encode_arguments(call, ordered=self.go_json)
        if self.go_json and call.raw is None:
            for char, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
                text = text.replace(char, escape)
        return text

    def _json_units(self, value: Any) -> int:
        raw = to_compact_json_bytes(value)
        if raw.isascii() or self.unit == "bytes":
            return len(raw)
        return self.units(raw.decode("utf-8", "surrogatepass"))


_ROLES = {"summary": "assistant"}
"""pulse-coder stores summaries as assistant messages; no other system counts roles."""


def _is_single_text(message: Message) -> bool:
    return message.role != "tool" and len(message.parts) == 1 and isinstance(message.parts[0], Text)


def _size_only_units(message: Message, divisor: float) -> float:
    """Return the units of parts of which only the size is recorded; their JSON does not count."""
    parts = (p for p in message.parts if isinstance(p, SizeOnly))
    return sum(p.tokens * divisor if p.tokens is not None else p.chars or 0 for p in parts)


def _calls_not_run(message: Message) -> list[ToolCall]:
    """Return the calls of a failed reply, which readers move from its parts to its details."""
    calls = message.details.get("calls_not_run") if message.details else None
    return [ToolCall(c["id"], c["name"], c["arguments"]) for c in calls or ()]


def _to_ai_sdk_part(part: Part, message: Message) -> dict[str, Any]:
    """Return a part in the form of the AI SDK: Tyrum and pulse-coder count its JSON's length."""
    if isinstance(part, ToolCall):
        value = part.arguments if part.raw is None else part.raw
        return {"type": "tool-call", "toolCallId": part.id, "toolName": part.name, "input": value}
    if isinstance(part, Attachment):
        return {"type": "image", "image": part.data or part.url or "", "mediaType": part.media_type}
    if isinstance(part, Thinking):
        return {"type": "reasoning", "text": part.text}
    if isinstance(part, SizeOnly):
        return {"type": part.kind}
    if message.role == "tool":
        output = {"type": "text", "value": part.text}
        return {
            "type": "tool-result",
            "toolCallId": message.call_id,
            "toolName": message.tool,
            "output": output,
        }
    return {"type": "text", "text": part.text}


_WIDE_SCRIPT_WEIGHTS: tuple[tuple[int, str], ...] = (
    (3, "\xb7\u3000-\u319f\u4e00-\u9fa5\uac00-\ud7af\uff01-\uff60"),
    (
        11,
        (
            "\u1100-\u11ff\u2e80-\u2fff\u31a0-\u4dff\u9fa6-\u9fff\ua000-\ua4ff\ua700-\ua707"
            "\ua960-\ua97f\ud7b0-\ud7ff\uf900-\ufaff"
        ),
    ),
    (7, "\u02c7\u02c9-\u02cb\u02d9\u02ea\u02eb\u0305\u0323\ufe10-\ufe4f\uff61-\uffdc\uffe0-\uffe6"),
    (10, "\U0001d360-\U0001d371"),
    (
        14,
        (
            "\U00016fe0-\U00016fff\U0001aff0-\U0001afff\U0001b000-\U0001b16f\U0001f200-\U0001f2ff"
            "\U00020000-\U0002fa1f\U00030000-\U0003347f"
        ),
    ),
)
"""Additional units per character, beyond its UTF-16 code units, by ranges of characters: common
Chinese, Japanese and Korean count four units (one token); rare ones, marks and supplementary planes
two to four tokens.
"""


@cache
def _compile_wide_scripts() -> tuple[re.Pattern[str], tuple[tuple[int, re.Pattern[str]], ...]]:
    """Return a pattern of all wide characters, and one a weight; compiling takes 13 ms."""
    any_wide = re.compile(f"[{''.join(chars for _, chars in _WIDE_SCRIPT_WEIGHTS)}]")
    return any_wide, tuple((n, re.compile(f"[{chars}]")) for n, chars in _WIDE_SCRIPT_WEIGHTS)


def count_wide_script_extra_units(text: str) -> int:
    """Return the units of a text's wide characters beyond its UTF-16 code units, as in OpenClaw.

    Source: `cjk-chars-*.mjs` (`WEIGHTED_CJK_RANGES`) of the npm package openclaw 2026.9.6.
    """
    any_wide, wide_by_weight = _compile_wide_scripts()
    if any_wide.search(text) is None:
        return 0
    return sum(extra * len(chars.findall(text)) for extra, chars in wide_by_weight)


PI = EstimatedCounter(name="pi", unit="utf16", user_image=0, unsent=True)
"""Pi 0.58.3, `estimateTokens`: JavaScript length of text, thinking, tool name and compact JSON
arguments, divided by four, each message rounded up; an image counts 4,800 characters in a tool
result and nothing in a user's message. Failed and aborted replies count with their calls.
"""
PI_1 = EstimatedCounter(name="pi/1", unit="utf16", unsent=True)
"""Pi 1.5.2: as Pi 0.58.3, but an image in a user's message counts 4,800 characters, too."""
OPENCLAW = EstimatedCounter(name="openclaw", unit="utf16", image=8000, wide=True, unsent=True)
"""OpenClaw 2026.9.6: as Pi, but an image counts 8,000 characters and wide characters more."""
FASED = EstimatedCounter(name="fased", unit="utf16", user_image=0)
"""Fased counts as Pi does."""
AI = EstimatedCounter(name="ai", unit="bytes", go_json=True)
"""tiancaiamao/ai at 7bc6f19: bytes (Go's `len`); arguments by `json.Marshal`; images 4,800; each
message rounded up.
"""
TYRUM = EstimatedCounter(
    name="tyrum", unit="utf16", scope="total", image=None, parts_as_json="other"
)
"""Tyrum: length of text parts and of the JSON of all others, divided by four; the total is rounded
up.
"""
PULSE_CODER = EstimatedCounter(
    name="pulse_coder", unit="utf16", scope="total", image=None, role=True, parts_as_json="message"
)
"""pulse-coder: name of the role and the content (its JSON unless it is one string), divided by
four; the total is rounded up.
"""
FUSERAFT = EstimatedCounter(name="fuseraft", unit="utf16", rounding="floor")
"""fuseraft's `TokenEstimator`: C# length divided by four, each message rounded down."""
FUSERAFT_DENSE = EstimatedCounter(
    name="fuseraft/dense", unit="utf16", rounding="floor", divisor=3.0
)
"""fuseraft's estimate of dense content (and of its guard before a turn): divided by three."""

SYSTEM_ESTIMATES = {
    e.name: e for e in (PI, PI_1, OPENCLAW, FASED, AI, TYRUM, PULSE_CODER, FUSERAFT, FUSERAFT_DENSE)
}
"""The estimates of real systems by name."""


def estimated_counter(
    divisor: float = 4.0,
    *,
    unit: LengthUnit = "characters",
    name: str | None = None,
    **settings: Any,
) -> EstimatedCounter:
    """Build a token estimate by length.

    Args:
        divisor: units per token.
        unit: `characters`, `bytes` or `utf16`.
        name: its name in reports; None: unit and divisor, such as `chars/4`.
        **settings: further fields of `EstimatedCounter`.

    Raises:
        BadArguments: the divisor is not above zero, or a setting does not exist.

    Example:
        >>> from ctxkit import tokens
        >>> counter = tokens.estimated_counter(3, unit="bytes")
        >>> counter.name, counter("Hello, world")
        ('bytes/3', 4)
    """
    try:
        return EstimatedCounter(
            name=name or f"{_PREFIX[unit]}/{divisor:g}", unit=unit, divisor=divisor, **settings
        )
    except (TypeError, KeyError) as error:
        raise BadArguments(
            f"An estimate has no such setting ({error}); it has"
            f" {', '.join(EstimatedCounter.__struct_fields__)}."
        ) from None


_PREFIX = {"characters": "chars", "bytes": "bytes", "utf16": "utf16"}


@runtime_checkable
class TokenCounter(Protocol):
    """A token counter: call it with a text; `message` and `total` count messages.

    Example:
        >>> from ctxkit import tokens
        >>> isinstance(tokens.get_counter("chars/4"), tokens.TokenCounter)
        True
    """

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
        limit, reserve = self.limit, self.reserve
        return limit - reserve if limit > reserve else 0  # asked at each search of a trigger


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

    Example:
        >>> from ctxkit import tokens
        >>> counter = tokens.IncrementalCounter(tokens.exact_counter(), "Hello")
        >>> counter.append(", world"), counter.tokens
        (3, 3)
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
