"""What characters of wide scripts weigh where a system counts them as tokens of their own
(OpenClaw).
"""

from __future__ import annotations

import re

_KINDS: tuple[tuple[int, str], ...] = (
    (3, "\xb7\u3000-\u319f\u4e00-\u9fa5\uac00-\ud7af\uff01-\uff60"),
    (
        11,
        ("\u1100-\u11ff\u2e80-\u2fff\u31a0-\u4dff\u9fa6-\u9fff\ua000-\ua4ff\ua700-\ua707"
        "\ua960-\ua97f\ud7b0-\ud7ff\uf900-\ufaff"),
    ),
    (7, "\u02c7\u02c9-\u02cb\u02d9\u02ea\u02eb\u0305\u0323\ufe10-\ufe4f\uff61-\uffdc\uffe0-\uffe6"),
    (10, "\U0001d360-\U0001d371"),
    (
        14,
        ("\U00016fe0-\U00016fff\U0001aff0-\U0001afff\U0001b000-\U0001b16f\U0001f200-\U0001f2ff"
        "\U00020000-\U0002fa1f\U00030000-\U0003347f"),
    ),
)
"""Characters by script, and what one weighs beyond its units of UTF-16: common Chinese, Japanese
and Korean a token of four characters; rare ones, marks and supplementary planes two to four.
"""
_ANY = re.compile(f"[{''.join(chars for _, chars in _KINDS)}]")
_EACH = tuple((more, re.compile(f"[{chars}]")) for more, chars in _KINDS)


def beyond_units(text: str) -> int:
    """Return what a text weighs beyond its units of UTF-16.

    Read in `cjk-chars-*.mjs` (`WEIGHTED_CJK_RANGES`) of the npm package openclaw 2026.9.6.
    """
    if _ANY.search(text) is None:
        return 0
    return sum(more * len(found.findall(text)) for more, found in _EACH)
