"""The many ways to write a model's name, and the row of the price table that is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAKER_NAMES = (
    "anthropic",
    "openai",
    "openai-codex",
    "deepseek",
    "google",
    "gemini",
    "xai",
    "x-ai",
    "mistral",
)
_MORE_MAKER_NAMES = ("mistralai", "moonshot", "moonshotai", "moonshot-ai", "zai", "z-ai", "minimax")
_PLATFORMS = (
    "azure",
    "azure_ai",
    "bedrock",
    "amazon-bedrock",
    "vertex_ai",
    "vertex",
    "google-vertex",
    "openrouter",
)
_RESELLERS = frozenset((*_MAKER_NAMES, *_MORE_MAKER_NAMES, *_PLATFORMS, "litellm_proxy"))
"""Prefixes that may be dropped from a name: makers, and platforms that sell at the
maker's price.
"""
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest|default)$")
_BEDROCK = re.compile(r"^(?:[a-z]{2,6}(?:-gov)?\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?$")
_MAKERS = {
    "kimi-": "moonshot/",
    "grok-": "xai/",
    "glm-": "zai/",
    "deepseek-": "deepseek/",
    "mistral-": "mistral/",
    "devstral-": "mistral/",
    "codestral-": "mistral/",
    "minimax-": "minimax/",
    "gemini-": "gemini/",
}
"""The table lists these families under their makers only."""
MILLION = "[1m]"
"""What Claude Code adds to a name where the window has a million tokens."""


def candidates(name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the rows under which a model may stand, the surest first, each with the rule to be told
    of or None.
    """
    seen = dict.fromkeys(_spellings(name))
    yield from ((n, None) for n in seen)
    for n in seen:
        yield from ((maker + n, None) for family, maker in _MAKERS.items() if n.startswith(family))
        if n.startswith("claude-"):
            yield f"anthropic.{n}-v1:0", "platform"
            yield f"anthropic.{n}-v2:0", "platform"
            yield "vertex_ai/" + re.sub(r"-(20\d{6})$", r"@\1", n), "platform"


def _spellings(name: str) -> Iterator[str]:
    bare = name
    while True:
        yield bare
        prefix, _, rest = bare.partition("/")
        if not rest or prefix not in _RESELLERS:
            break
        bare = rest
    on_bedrock = _BEDROCK.match(bare)
    if on_bedrock:
        bare = on_bedrock[1]
        yield bare
    if bare.startswith("claude-"):
        bare = bare.replace(".", "-").replace("@", "-")
        yield bare
    undated = _DATE.sub("", bare)
    yield undated
