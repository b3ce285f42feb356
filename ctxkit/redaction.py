"""Keys and tokens taken out of text before it is kept, shown or said in an error."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = "[redacted]"
_NAMES = re.compile(r"(?i)KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL")
_LEAST = 8
"""Characters that a value of the environment must have to count as a secret: shorter ones occur by chance."""
_KEYS = re.compile(
    r"\b(?:[sr]k-[\w-]{12,}|[spr]k_(?:live|test)_\w{8,}|gsk_\w{16,}|xai-\w{16,}|hf_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_\w{8,}|github_pat_\w{8,}|glpat-[\w-]{12,}|xox[a-z]-[\w-]{8,}|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|AIza[\w-]{20,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{0,8000}?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_HEADERS = re.compile(
    r"(?i)\b(authorization[\"']?[:=] ?[\"']?(?:bearer|basic|token) |x-api-key[\"']?: ?[\"']?)([\w.~+/=-]{6,})"
    r"|\b(bearer |api[_-]?key[=:] ?|password=|passwd=|token=|secret=)(?=\S*\d|\S{20})([\w.~+/=-]{8,})"
)
_HINTS = ("sk-", "rk-", "k_", "xai-", "hf_", "gh", "glpat-", "xox", "AKIA", "ASIA", "AIza", "eyJ", "PRIVATE KEY")


def redact(text: str) -> str:
    """Return text without what has the shape of a key, and without the values of the environment's secrets."""
    return _without(text, secrets())


def _without(text: str, known: Sequence[str]) -> str:
    for value in known:
        if value in text:
            text = text.replace(value, MARK)
    if any(hint in text for hint in _HINTS):
        text = _KEYS.sub(MARK, text)
    return _HEADERS.sub(lambda found: f"{found[1] or found[3]}{MARK}", text)


def redacted(value: Any, known: Sequence[str] | None = None) -> Any:
    """Return a JSON value with every text in it redacted; `known` are the secrets of the environment."""
    known = secrets() if known is None else known
    if isinstance(value, str):
        return _without(value, known)
    if isinstance(value, dict):
        return {k: redacted(v, known) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(v, known) for v in value]
    return value


def secrets() -> list[str]:
    """Return the values of environment variables that are named like secrets, the longest first."""
    named = (os.environ.get(name, "") for name in os.environ if _telling(name))  # values cost: only those asked
    return sorted({v for v in named if len(v) >= _LEAST and not _path(v)}, key=len, reverse=True)


@lru_cache(4096)
def _telling(name: str) -> bool:
    """Return True for the name of a variable that holds a secret."""
    return _NAMES.search(name) is not None


def _path(value: str) -> bool:
    """Return True for a value that is the path of a file: it is no secret, and outputs are full of them."""
    return value.startswith(("/", "~", "./")) and os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111  cheap, and no Path is needed
