"""Examples of rules with drawn secrets, and the ways in which a text comes."""

from __future__ import annotations

import re
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

ALPHABETS = {
    "a": ascii_letters + digits,
    "l": ascii_letters,
    "p": ascii_lowercase,
    "s": ascii_lowercase + digits,
    "u": ascii_uppercase + digits,
    "h": "0123456789abcdef",
    "d": digits,
    "t": ascii_uppercase + "234567",
    "c": "".join(sorted({*ascii_letters, *digits} - {*"0OIl"})),
    "b": ascii_letters + digits + "+/",
    "w": ascii_letters + digits + "-_",
}
_DRAWN = re.compile(r"\{([a-z])(\d+)\}")


class Example(NamedTuple):
    """A text with one secret: what comes before it, the secret, what comes after it."""

    before: str
    secret: str
    after: str

    @property
    def text(self) -> str:
        return self.before + self.secret + self.after


def drawn_example(template: str, seed: int) -> Example:
    """Return an example of a rule with its random characters drawn."""
    random = Random(seed)

    def draw(hit: re.Match[str]) -> str:
        return "".join(random.choice(ALPHABETS[hit[1]]) for _ in range(int(hit[2])))

    return Example(*re.split("[«»]", _DRAWN.sub(draw, template)))


def split(text: str, between: str) -> str:
    """Return a text with something in the middle of its longest line."""
    longest = max(text.split("\n"), key=len)
    at = text.index(longest) + len(longest) // 2
    return text[:at] + between + text[at:]


def coloured(before: str, after: str):
    """Return a way that puts escape sequences around the secret."""
    return lambda e: e.before + before + e.secret + after + e.after


WAYS = {
    "plain": lambda e: e.text,
    "coloured by SGR": coloured("\x1b[31m", "\x1b[0m"),
    "coloured by grep": coloured("\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"),
    "coloured as a whole": lambda e: f"\x1b[38;5;203m{e.text}\x1b[39m",
    "coloured by tput": coloured("\x1b[1m", "\x1b(B\x1b[m"),
    "coloured in front by 8-bit CSI": lambda e: f"\x9b32m{e.text}\x9bm",
    "coloured, as JSON writes it": coloured(r"\u001b[31m", r"\u001b[0m"),
    "coloured, as a shell writes it": coloured(r"\033[0;31m", r"\e[0m"),
    "in a link": lambda e: f"\x1b]8;;https://example.com\x1b\\{e.text}\x1b]8;;\x1b\\",
    "behind a coloured digit": lambda e: f"\x1b[1m7\x1b[0m{e.text}",
    "behind a coloured word": lambda e: f"\x1b[1mINFO\x1b[0m{e.text}",
    "split by an escape": lambda e: e.before + split(e.secret, "\x1b[0m\x1b[1m") + e.after,
    "split by grep": lambda e: e.before + split(e.secret, "\x1b[m\x1b[K") + e.after,
    "split by a space of no width": lambda e: e.before + split(e.secret, "\u200b") + e.after,
    "split by a soft hyphen": lambda e: e.before + split(e.secret, "\xad") + e.after,
    "behind a byte order mark": lambda e: f"\ufeff{e.text}",
}
"""How an example may come: each way keeps the letters of the secret."""
