"""How much of a tool's output enters a session, and from what size on it goes to a file instead."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.display.markup import line
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.setting import Typed
from ctxkit.texts import trims

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.policies.setting import Natural

_OF_RULES = {
    "max_lines": "lines",
    "max_chars": "chars",
    "max_bytes": "bytes",
    "truncate_mode": "mode",
    "large_output_threshold": "spill",
}
"""Settings of rules (ai's `toolOutput`) that are limits of a live session."""


@dataclass(frozen=True, kw_only=True)
class OutputLimits(Typed):
    """Limits of one output (the defaults of ai's `tool_output.go`); 0: none."""

    lines: Natural = 2000
    chars: Natural = 204_800
    bytes: Natural = 51_200
    """Of UTF-8."""
    mode: Literal["head", "head_tail", "middle"] = "head_tail"
    """`head`; `head_tail` keeps both ends of the lines; `middle` of characters and bytes, too."""
    spill: Natural = 204_800
    """Characters above which all of it goes to a file."""

    @classmethod
    def of(cls, rules: Rules, words: str = "") -> OutputLimits:
        """Return the limits that rules and words set, the words first.

        Args:
            rules: ai's have them among their settings.
            words: such as `lines=500,spill=20000,mode=head`.

        Raises:
            BadArguments: a word is none, or a limit cannot be.
        """
        told: dict[str, Any] = {
            name: rules.parameters[key]
            for key, name in _OF_RULES.items()
            if key in rules.parameters
        }
        return replace(cls(**told), **_parsed(words))

    def cut(self, text: str) -> str:
        """Return as much of an output as may be kept, with a last line that says what went."""
        return trims.output(
            text, max_lines=self.lines, max_chars=self.chars, max_bytes=self.bytes, mode=self.mode
        )


def _parsed(words: str) -> dict[str, Any]:
    known = [f.name for f in fields(OutputLimits)]
    told: dict[str, Any] = {}
    for word in filter(None, (w.strip() for w in words.split(","))):
        name, _, value = word.partition("=")
        if name not in known or not value:
            raise BadArguments(
                f"{line(word, 60)!r} is no limit of outputs: write NAME=NUMBER, with a name of"
                f" {', '.join(known)}.{did_you_mean(name, known)}"
            )
        told[name] = int(value) if value.isdecimal() and len(value) < 16 else value
    return told
