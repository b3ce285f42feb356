"""Token estimates by length, as Pi, OpenClaw, Tyrum and others make them."""

from __future__ import annotations

import re
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.session.messages import Image, Message, SizeOnly, Text, Thinking, ToolCall
from ctxkit.tokens.counters import arguments_json, to_compact_json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.messages import Part, Provenance


LengthUnit = Literal["characters", "bytes", "utf16"]


class EstimatedCounter(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by length: the units of everything that is sent, divided and rounded.

    Raises:
        BadArguments: the divisor is not above zero.
    """

    name: str
    """What it is called in reports."""
    unit: LengthUnit = "characters"
    """`characters` (code points), `bytes` (of UTF-8) or `utf16` (what JavaScript and C# call the
    length).
    """
    divisor: float = 4.0
    """Units a token."""
    rounding: Literal["ceil", "floor"] = "ceil"
    scope: Literal["part", "message", "total"] = "message"
    """What is rounded: each part, each message, or once everything."""
    image: int | None = 4800
    """Units an image, sound or document weighs; None: the length of its JSON."""
    user_image: int | None = -1
    """The same in a message of the user; -1: as any other."""
    role: bool = False
    """Whether the name of the role counts."""
    tool_name: bool = True
    """Whether the name of a tool counts beside the arguments of its call."""
    parts_as_json: Literal["none", "other", "message"] = "none"
    """`other`: a part that is no plain text weighs what its JSON does; `message`: so does all but a
    single text.
    """
    go_json: bool = False
    """Arguments as Go writes them: keys sorted, `<`, `>` and `&` as six bytes each."""
    wide: bool = False
    """Whether characters of wide scripts weigh as `wide_scripts` says."""
    unsent: bool = False
    """Whether replies that failed count, though they are not sent again, with the calls that were
    not run.
    """

    def __post_init__(self) -> None:
        if not self.divisor > 0:
            raise BadArguments(f"An estimate needs a divisor above 0, not {self.divisor}.")

    @property
    def source(self) -> Provenance:
        """An estimate is always `estimated`."""
        return "estimated"

    def __call__(self, text: str, /) -> int:
        """Tokens of a text by itself."""
        return self._rounded(self.units(text))

    def fresh(self, text: str) -> int:
        """Tokens of a text by itself: an estimate remembers nothing."""
        return self(text)

    def cut(self, text: str) -> int:  # noqa: ARG002
        """Return 0: rounding leaves no place at which estimates add up."""
        return 0

    def units(self, text: str) -> int:
        """Length of a text in the unit."""
        if self.unit == "characters" or text.isascii():
            return len(text)
        if self.unit == "bytes":
            return len(text.encode("utf-8", "surrogatepass"))
        units = len(text.encode("utf-16-le", "surrogatepass")) // 2
        return units + wide_script_extra_units(text) if self.wide else units

    def message(self, message: Message) -> int:
        """Tokens of one message by itself."""
        return self._rounded(sum(self._weights(message)))

    def total(self, messages: Iterable[Message]) -> int:
        """Tokens of several messages, rounded where the system rounds."""
        if self.scope == "total":
            return self._rounded(sum(sum(self._weights(m)) for m in messages))
        return sum(map(self.message, messages))

    def _rounded(self, units: float) -> int:
        return (ceil if self.rounding == "ceil" else floor)(units / self.divisor)

    def _weights(self, message: Message) -> list[float]:
        """Units of a message's parts; with scope `part` already whole tokens."""
        if self.parts_as_json == "message" and not _single_text(message):
            weights: list[float] = [
                self._json([_to_ai_sdk_part(p, message) for p in message.parts])
                + _size_only_units(message, self.divisor)
            ]
        else:
            weights = [self._part(p, message) for p in message.parts]
            if self.unsent:
                weights += [self._part(call, message) for call in _calls_not_run(message)]
        if self.role:
            weights.append(len(_ROLES.get(message.role, message.role)))
        return (
            [self._rounded(w) * self.divisor for w in weights] if self.scope == "part" else weights
        )

    def _part(self, part: Part, message: Message) -> float:
        if isinstance(part, SizeOnly):
            return part.tokens * self.divisor if part.tokens is not None else part.chars or 0
        if isinstance(part, Image):
            weight = (
                self.image if self.user_image == -1 or message.role != "user" else self.user_image
            )
            return self._json(_to_ai_sdk_part(part, message)) if weight is None else weight
        if self.parts_as_json != "none" and not (isinstance(part, Text) and message.role != "tool"):
            return self._json(_to_ai_sdk_part(part, message))
        if isinstance(part, ToolCall):
            plain = part.raw is None and not self.go_json
            written = self._json(part.arguments) if plain else self.units(self._arguments(part))
            return written + (self.units(part.name) if self.tool_name else 0)
        return self.units(part.text)

    def _arguments(self, call: ToolCall) -> str:
        text = arguments_json(call, ordered=self.go_json)
        if self.go_json and call.raw is None:
            for sign, written in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
                text = text.replace(sign, written)
        return text

    def _json(self, value: Any) -> int:
        raw = to_compact_json_bytes(value)
        if raw.isascii() or self.unit == "bytes":
            return len(raw)
        return self.units(raw.decode("utf-8", "surrogatepass"))


_ROLES = {"summary": "assistant"}
"""pulse-coder keeps its summaries as assistant messages; no other system counts roles."""


def _single_text(message: Message) -> bool:
    return message.role != "tool" and len(message.parts) == 1 and isinstance(message.parts[0], Text)


def _size_only_units(message: Message, divisor: float) -> float:
    """Units of parts that are known by their size only, which no JSON shows."""
    sized = (p for p in message.parts if isinstance(p, SizeOnly))
    return sum(p.tokens * divisor if p.tokens is not None else p.chars or 0 for p in sized)


def _calls_not_run(message: Message) -> list[ToolCall]:
    """Return the calls of a failed reply, which a reader took out of its parts."""
    calls = message.details.get("calls_not_run") if message.details else None
    return [ToolCall(c["id"], c["name"], c["arguments"]) for c in calls or ()]


def _to_ai_sdk_part(part: Part, message: Message) -> dict[str, Any]:
    """A part as the AI SDK holds it, on which Tyrum and pulse-coder call `JSON.stringify`."""
    if isinstance(part, ToolCall):
        given = part.arguments if part.raw is None else part.raw
        return {"type": "tool-call", "toolCallId": part.id, "toolName": part.name, "input": given}
    if isinstance(part, Image):
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
"""Characters by script, and what one weighs beyond its units of UTF-16: common Chinese, Japanese
and Korean a token of four characters; rare ones, marks and supplementary planes two to four.
"""
_ANY_WIDE = re.compile(f"[{''.join(chars for _, chars in _WIDE_SCRIPT_WEIGHTS)}]")
_WIDE_BY_WEIGHT = tuple((more, re.compile(f"[{chars}]")) for more, chars in _WIDE_SCRIPT_WEIGHTS)


def wide_script_extra_units(text: str) -> int:
    """Return what a text weighs beyond its units of UTF-16.

    Read in `cjk-chars-*.mjs` (`WEIGHTED_CJK_RANGES`) of the npm package openclaw 2026.9.6.
    """
    if _ANY_WIDE.search(text) is None:
        return 0
    return sum(more * len(found.findall(text)) for more, found in _WIDE_BY_WEIGHT)


PI = EstimatedCounter(name="pi", unit="utf16", user_image=0, unsent=True)
"""Pi 0.58.3, `estimateTokens`: JavaScript length of text, thinking, tool name and compact JSON
arguments, divided by four, up for each message; an image weighs 4,800 characters in a tool's result
and nothing in a user's message. Failed and aborted replies count with their calls."""
PI_1 = EstimatedCounter(name="pi/1", unit="utf16", unsent=True)
"""Pi 1.5.2: an image in a user's message weighs 4,800 characters, too."""
OPENCLAW = EstimatedCounter(name="openclaw", unit="utf16", image=8000, wide=True, unsent=True)
"""OpenClaw 2026.9.6: as Pi, but an image weighs 8,000 characters and a wide script's characters
more.
"""
FASED = EstimatedCounter(name="fased", unit="utf16", user_image=0)
"""Fased counts as Pi does."""
AI = EstimatedCounter(name="ai", unit="bytes", go_json=True)
"""tiancaiamao/ai at 7bc6f19: Go's `len`, so bytes; arguments by `json.Marshal`; images 4,800; up
for each message.
"""
TYRUM = EstimatedCounter(
    name="tyrum", unit="utf16", scope="total", image=None, parts_as_json="other"
)
"""Tyrum: length of text parts, length of the JSON of all others, divided by four and rounded up
once, at the end.
"""
PULSE_CODER = EstimatedCounter(
    name="pulse_coder", unit="utf16", scope="total", image=None, role=True, parts_as_json="message"
)
"""pulse-coder: name of the role and the content (its JSON unless it is one string), by four, up
once, at the end.
"""
FUSERAFT = EstimatedCounter(name="fuseraft", unit="utf16", rounding="floor")
"""fuseraft's `TokenEstimator`: C# length divided by four, as integers."""
FUSERAFT_DENSE = EstimatedCounter(
    name="fuseraft/dense", unit="utf16", rounding="floor", divisor=3.0
)
"""The same for dense content (and for the guard before a turn): divided by three."""

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
    """Return an estimate by length; further settings are those of `Estimate`.

    Raises:
        BadArguments: the divisor is not above zero, or a setting does not exist.
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
