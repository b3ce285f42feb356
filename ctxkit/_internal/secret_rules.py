"""A rule of redaction: one kind of secret, how it is found, and texts that hold one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit._internal.visible_text import Span, VisibleText


class Rule:
    """One kind of secret.

    In an example `«»` stand around the secret, and `{a20}` stands for 20 characters drawn at random
    out of an alphabet: `a` letters and digits, `l` letters, `p` small letters, `s` small letters
    and digits, `u` capitals and digits, `h` hexadecimal, `d` digits, `t` base32, `c` base58,
    `b` base64, `w` base64 for URLs.

    Args:
        name: what it finds; no other rule has that name.
        find: yields where such secrets stand in a text.
        examples: texts with one secret each; the tests try each in many ways.
        hint: what every text with such a secret holds; in lower case where `is_caseless`.
        is_caseless: True where what stands beside the secret may be written in capitals, too.
        is_whole_line: True where nothing else may stand on the lines of the secret.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[VisibleText], Iterator[Span]],
        *examples: str,
        hint: str = "",
        is_caseless: bool = False,
        is_whole_line: bool = False,
    ) -> None:
        self.name, self.find, self.examples, self.hint = name, find, examples, hint
        self.is_caseless, self.is_whole_line = is_caseless, is_whole_line


@lru_cache(512)
def compile_once(pattern: str) -> re.Pattern[str]:
    """Return a pattern, compiled when its rule first needs it."""
    return re.compile(pattern)
