"""What a value looks like: drawn by a machine, chosen by a person, or a word, a path, code."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

_CHUNK = re.compile(r"[A-Za-z0-9]+")
_RUN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_TURN = re.compile(r"(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
_NO_WORD = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}|[aeiou]{5}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_LONGEST_WORD = 16
"""Letters of the longest English words that names are made of."""
_PLACEHOLDER = re.compile(
    r"(?i)your|example|placeholder|change[_-]?(?:me|it)|redacted|xxxx|dummy|\.\.\."
)
_TELLS = re.compile(
    r"(?i)pass|pwd|secret|token|credential|key|auth|prompt|input|getenv|environ|config|setting"
)
_MASK = re.compile(r"^(?:[*•.xX#-]{3}|\[redacted|\[REDACTED)")
_VARIABLE = re.compile(r"^(?:\$\{?[A-Za-z_]\w*\}?$|\$[({]|\{|%\w+%$|%[s(]|<|@\w+@$)")
_DOTTED = re.compile(r"^[A-Za-z_$]\w*(?:\?|!)?(?:(?:\.|::|->)[A-Za-z_]\w*)+$")
_IDENTIFIER = re.compile(r"^[A-Za-z_$]\w*$")
_PATH = re.compile(r"^(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w. -]*(?:[/\\][\w. -]*)*$")
_SYMBOL = re.compile(r"[^\w\s./:\\-]")
_UUID = re.compile(r"(?i)^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@lru_cache(4096)
def random(value: str) -> bool:
    """Return True for a value that no words make up: a machine drew it.

    Judged piece by piece between its punctuation: letters and digits that take turns, a long number
    between letters, capitals without words, letters that no word has in a row. It stands for a
    measure of entropy, which short keys and long names share.
    """
    return any(map(_random_chunk, _CHUNK.findall(value[:400])))


def _random_chunk(chunk: str) -> bool:
    if chunk.isdigit():
        return False
    runs, turns = _RUN.findall(chunk), len(_TURN.findall(chunk))
    if (
        turns >= 3
        or (turns == 2 and len(chunk) >= 16)
        or any(r.isdigit() and len(r) > 6 for r in runs)
    ):
        return True
    if len(runs) >= 4 and len(chunk) < (3.5 if len(chunk) >= 24 else 3) * len(runs):
        return True
    return any(not r.isdigit() and not word(r) for r in runs)


def mixed(value: str) -> bool:
    """Say whether capitals, small letters, digits change at least at every fourth place."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" for c in value if c.isalnum()]
    return 4 * sum(a != b for a, b in pairwise(kinds)) >= len(kinds)


def word(letters: str) -> bool:
    """Return True for letters that may be a word, a part of one or an acronym."""
    if len(letters) <= 5:
        return letters.lower() != "abcde"
    low = letters.lower()
    if len(low) > _LONGEST_WORD or _NO_WORD.search(low):
        return False
    if any(low[i : i + 5] in _ALPHABET for i in range(len(low) - 4)):
        return False
    return 0.15 <= sum(c in "aeiouy" for c in low) / len(low) <= 0.75


def machine_made(value: str, *, quoted: bool = False, after: str = "") -> bool:
    """Return True for the value of a key or a token: at least 8 characters, random, and no code."""
    if len(value) < 8 or code(value, quoted=quoted, after=after) or _path(value):
        return False
    return random(value) or (value.isdigit() and len(value) >= 16)


def chosen(value: str, *, quoted: bool = False, after: str = "") -> bool:
    """Return True for a value that may be a password: something a person chose, or a machine.

    Letters alone count where they are long (10 in quotes, else 12): `correcthorsebattery`, not
    `required`.
    """
    if len(value) < 6 or code(value, quoted=quoted, after=after) or _path(value):
        return False
    if random(value):
        return True
    if _PLACEHOLDER.search(value) or (
        _TELLS.search(value) and not re.search(r"\d{3}|[^\w. -]", value)
    ):
        return False
    if " " in value.strip():
        return bool(re.search(r"\d", value)) and bool(_SYMBOL.search(value)) and len(value) <= 64
    if re.search(r"\d", value):
        return bool(re.search(r"[A-Za-z]|^\d+$", value))
    if _SYMBOL.search(value):
        return len(value) >= 8
    return len(value) >= (10 if quoted else 12) and bool(
        re.fullmatch(r"[^\W_]+(?:-[^\W_]+)*", value)
    )


def code(value: str, *, quoted: bool = False, after: str = "") -> bool:
    """Return True for a mask, a placeholder, a variable, a call, a subscript, an attribute.

    `after` is the character that follows.
    """
    if (
        _MASK.match(value)
        or _VARIABLE.match(value)
        or "${" in value
        or "{{" in value
        or "***" in value
    ):
        return True
    if quoted:
        return bool(re.fullmatch(r"[^{}]*\{[\w.\[\]'\"()]*\}[^{}]*", value))
    if after[:1] in ("(", "[") and (_DOTTED.match(value) or _IDENTIFIER.match(value)):
        return True
    if _DOTTED.match(value):
        return not random(re.split(r"\W+", value)[0])
    return False


def uuid(value: str) -> bool:
    """Return True for a UUID: an id of something, and a secret only beside a name that says so."""
    return bool(_UUID.match(value))


def placeholder(value: str) -> bool:
    """Return True for what a manual writes in the place of a secret."""
    return bool(_PLACEHOLDER.search(value)) and not random(value)


def _path(value: str) -> bool:
    return bool(_PATH.match(value)) and not random(value)
