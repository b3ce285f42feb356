"""Keys and tokens taken out of text before it is kept, shown, sent or said in an error.

Five things go: values of the environment's secrets, also encoded (`environment`); what has the
published form of a vendor's key (`shapes`); addresses of webhooks (`webhooks`); blocks of private
keys, and lines of them (`key_blocks`); and what stands beside a telling name or in a telling place
and looks like a secret (`named_secrets`, `addresses`). Each kind is a rule of
`secret_spans.RULES`. Rules match the text as it is seen, without escape sequences
(`visible_text`); all are found as spans, so a stream can be cut where nothing is open
(`redacted_streams`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.faces import listed
from ctxkit.redaction.environment import secrets
from ctxkit.redaction.named_secrets import telling
from ctxkit.redaction.secret_spans import MARK, find_spans, mask_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MARK", "redact", "redacted", "secrets"]
__dir__ = listed(__all__)


def redact(text: str) -> str:
    """Return text without keys, and without the values of the environment's secrets."""
    return mask_spans(text, find_spans(text, secrets()))


def redacted(value: Any, known: Sequence[str] | None = None) -> Any:
    """Return a JSON value with every text and every key of an object in it redacted.

    A text that stands under a telling key (`{"password": ...}`) is judged as one that stands beside
    it.

    Args:
        value: texts, numbers, lists and objects.
        known: what `secrets()` gave, where many values are redacted one after the other.
    """
    known = secrets() if known is None else known
    if isinstance(value, str):
        return mask_spans(value, find_spans(value, known))
    if isinstance(value, dict):
        return {
            redacted(k, known): MARK if isinstance(v, str) and telling(k, v) else redacted(v, known)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redacted(v, known) for v in value]
    return value
