"""Blocks of private keys: PEM (RFC 7468) and PGP armour (RFC 9580), whole or cut off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BREAK = re.compile(r"(?:\\+[nr]|[\r\n])+")
_LEAD = re.compile(r"^[ \t]*(?:\d+[ \t:|]+|[>|#*+-]+[ \t]*)?[\"']?")
"""What stands before a line that is quoted, numbered or indented."""
_BODY = re.compile(r"[A-Za-z0-9+/=]*[\"',]*[ \t]*$")
_HEADER = re.compile(r"[A-Z][\w-]{1,30}: ")
_PUTTY = re.compile(
    r"Private-Lines: \d{1,3}(?:\\+[nr]|[\r\n])+((?:[A-Za-z0-9+/=]{16,}+(?:\\+[nr]|[\r\n])*)+)"
)
_PUTTED = re.compile(r"Private-Lines:[ \d]*+(?:\\++[nr]?|[\r\nA-Za-z0-9+/=])*+")
_JWK = re.compile(r"\"(?:d|p|q|dp|dq|qi|k)\\*\"\s{0,4}:\s{0,4}\\*\"([\w-]{22,}+)")
_LEAST = 32
"""Characters that the first line of a block without an end must have: a word has fewer."""


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the blocks of private keys; a BEGIN line that nothing like a key follows is none."""
    at = text.find("-----BEGIN ")
    while at >= 0:
        begin = _BEGIN.match(text, at)
        over = at + 11
        if begin:
            end = _whole(text, begin.end()) or _cut(text, begin.end())
            if end:
                yield at, end
                over = end
        at = text.find("-----BEGIN ", over)
    yield from _others(text)


def _others(text: str) -> Iterator[tuple[int, int]]:
    """Yield private keys in PuTTY's files and in JSON Web Keys (RFC 7517)."""
    for form, hint in ((_PUTTY, "Private-Lines:"), (_JWK, "kty")):
        if hint in text:
            yield from (hit.span(1) for hit in form.finditer(text))


def _whole(text: str, start: int) -> int | None:
    """Return where a block ends whose END line comes next and that holds nothing but a key."""
    dashes = text.find("-----", start)
    end = _END.match(text, dashes) if dashes >= 0 else None
    if end is None:
        return None
    lines = _BREAK.split(text[start:dashes])
    body = [_LEAD.sub("", line) for line in lines]
    held = any(len(line.strip()) > 3 for line in body)
    return end.end() if held and all(map(_keyed, body)) else None


def _keyed(line: str) -> bool:
    return bool(_BODY.match(line) or _HEADER.match(line) or all(map(_BODY.match, line.split())))


def _cut(text: str, start: int) -> int | None:
    """Return where the lines of a key end that has no END line."""
    end, at = None, start
    while gap := _BREAK.match(text, at):
        after = _BREAK.search(text, gap.end())
        stop = after.start() if after else len(text)
        line = _LEAD.sub("", text[gap.end() : stop])
        if _BODY.match(line) and (len(line) >= _LEAST or end is not None):
            end = stop
        elif not (_HEADER.match(line) and end is None):
            break
        at = stop
    return end


def unfinished(text: str) -> int | None:
    """Return where a block begins that is still open at the end of the text, or None."""
    putty = text.rfind("Private-Lines:")
    if putty >= 0 and _PUTTED.fullmatch(text, putty):
        return putty
    at = text.rfind("-----BEGIN ")
    if at < 0 or _END.search(text, at):
        return None
    begin = _BEGIN.match(text, at)
    if begin is None:
        return at if len(text) - at < 60 and "\n" not in text[at:] else None
    lines = [_LEAD.sub("", line) for line in _BREAK.split(text[begin.end() :])[:-1]]
    keyed = all(
        not x.strip() or _HEADER.match(x) or (len(x) >= 16 and _BODY.match(x)) for x in lines
    )
    return at if keyed else None
