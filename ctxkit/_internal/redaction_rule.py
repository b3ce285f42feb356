"""Redaction rules: a kind of secret, the function that finds it, and example texts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ctxkit._internal.visible_text import Span, VisibleText


class RedactionRule:
    """One kind of secret.

    In an example the secret is between `«` and `»`, and `{a20}` means 20 random characters of
    an alphabet: `a` letters and digits, `l` letters, `p` small letters, `s` small letters
    and digits, `u` capitals and digits, `h` hexadecimal, `d` digits, `t` base32, `c` base58,
    `b` base64, `w` base64 for URLs.

    Args:
        name: unique name of the kind.
        find: yields the spans of such secrets in a text.
        examples: texts with one secret each; the tests vary them in many ways.
        hint: a substring of every text with such a secret; in lower case where `is_caseless`.
        is_caseless: True where the text beside the secret may be in upper case, too.
        is_whole_line: True where the lines of the secret hold nothing else.
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
    """Return a compiled pattern; it is compiled at the first use of its rule."""
    return re.compile(pattern)
