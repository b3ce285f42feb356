"""Blocks of private keys: PEM (RFC 7468) and PGP armour (RFC 9580), whole, cut off, or some lines.

A line of a block has 64 or 70 characters of base64, whatever program wrote it. Where neither the
beginning nor the end of the block is there, lines of these lengths count as those of a private key,
unless what stands around them says that they are a certificate, a public key or a picture.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.redaction import looks
from ctxkit.redaction.secret_rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.redaction.visible_text import Span, VisibleText

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
_OPEN_PUTTY = re.compile(r"Private-Lines:[ \d]*+(?:\\++[nr]?|[\r\nA-Za-z0-9+/=])*+")
_JWK = re.compile(r"\"(?:d|p|q|dp|dq|qi|k)\\*\"\s{0,4}:\s{0,4}\\*\"([\w-]{22,}+)")
_MIN_FIRST_LINE = 32
"""Characters that the first line of a block without an end must have: a word has fewer."""
_BEFORE_LINE = r"[ \t]*+(?:\d++[ \t:|]++|[>|#*-]++[ \t]*+)?"
_LINE = re.compile(_BEFORE_LINE + r"(?P<body>[A-Za-z0-9+/]{16,}+={0,2})[ \t\r]*+(?:\\++r?)?$")
"""A line that may belong to a block."""
_SHORT_LINE = re.compile(r"[ \t]*+[A-Za-z0-9+/=]{1,15}[ \t\r]*+(?:\\++r?)?$")
"""What may end a block: the rest of it, a checksum."""
_OPEN_LINE = re.compile(r"[ \t]*+(?:[A-Za-z0-9+/=]*+\r?|-.*)$")
"""What may yet become a line of a block, or its end."""
_BOUNDARY = re.compile(r"[ \t]*+-{4,5} ?(?:BEGIN|END) ")
"""The first and the last line of a block of any kind."""
_FULL_ROW = re.compile(rf"\n{_BEFORE_LINE}[A-Za-z0-9+/]{{64}}")
_FULL_ROW_IN_JSON = (
    re.compile(rf"\\n{_BEFORE_LINE}[A-Za-z0-9+/]{{64}}"),
    re.compile(r"\"[A-Za-z0-9+/]{64}[A-Za-z0-9+/=]{0,8}\\"),
)
_FULL_LINES = (64, 70)
"""Characters of a line as programs break it."""
_MAX_LINE = 120
"""Characters of a line with what stands before it."""
_MAX_LINES = 100
"""Lines of a private key: RSA of 8,192 bits has 99. What is longer is data of another kind."""
_DATA = re.compile("iVBORw0KGgo|/9j/|R0lGOD|UklGR|UEsDB|H4sI|JVBERi0|PD94bWw|PHN2Zy|AAAAB3NzaC1")
"""How pictures, archives, pages and public SSH keys begin in base64."""


def _find_blocks(view: VisibleText) -> Iterator[Span]:
    """Yield the blocks of private keys; a BEGIN line that nothing like a key follows is none."""
    text, at = view.text, view.text.find("-----BEGIN ")
    while at >= 0:
        begin = _BEGIN.match(text, at)
        over = at + 11
        if begin:
            end = _end_of_whole_block(text, begin.end()) or _end_of_cut_block(text, begin.end())
            if end:
                yield at, end
                over = end
        at = text.find("-----BEGIN ", over)


def _find_putty_keys(view: VisibleText) -> Iterator[Span]:
    yield from (hit.span(1) for hit in _PUTTY.finditer(view.text))


def _find_web_keys(view: VisibleText) -> Iterator[Span]:
    """Yield what is private in JSON Web Keys (RFC 7517)."""
    yield from (hit.span(1) for hit in _JWK.finditer(view.text))


def _end_of_whole_block(text: str, start: int) -> int | None:
    """Return where a block ends whose END line comes next and that holds nothing but a key."""
    dashes = text.find("-----", start)
    end = _END.match(text, dashes) if dashes >= 0 else None
    if end is None:
        return None
    lines = _BREAK.split(text[start:dashes])
    body = [_LEAD.sub("", line) for line in lines]
    has_key = any(len(line.strip()) > 3 for line in body)
    return end.end() if has_key and all(map(_is_body, body)) else None


def _is_body(line: str) -> bool:
    return bool(_BODY.match(line) or _HEADER.match(line) or all(map(_BODY.match, line.split())))


def _end_of_cut_block(text: str, start: int) -> int | None:
    """Return where the lines of a key end that has no END line."""
    end, at = None, start
    while gap := _BREAK.match(text, at):
        after = _BREAK.search(text, gap.end())
        stop = after.start() if after else len(text)
        line = _LEAD.sub("", text[gap.end() : stop])
        if _BODY.match(line) and (len(line) >= _MIN_FIRST_LINE or end is not None):
            end = stop
        elif not (_HEADER.match(line) and end is None):
            break
        at = stop
    return end


def _find_lines(view: VisibleText) -> Iterator[Span]:
    """Yield lines of blocks that do not begin in the text."""
    text, before = view.text, ""
    if not _has_lines(text):
        return
    run: list[re.Match[str]] = []
    over = 0
    for start, end in _lines(text):
        if start == end:
            continue
        hit = _LINE.match(text, start, end) if end - start <= _MAX_LINE else None
        if hit:
            run.append(hit)
            over = end
        elif run and _SHORT_LINE.match(text, start, end):
            over = end
        elif run or not _HEADER.match(text, start, end):
            after = text[start : start + _MAX_LINE].lstrip(" \t>|#*+")
            if run and _is_private(run, before, after):
                yield run[0].start("body"), over if _END.match(after) else run[-1].end("body")
            before, run = text[max(start, end - 60) : end], []
    if run and _is_private(run, before, ""):
        yield run[0].start("body"), run[-1].end("body")


def _has_lines(text: str) -> bool:
    """Return False where a quick look tells that no lines of a block are in a text."""
    forms = _FULL_ROW_IN_JSON if "\\n" in text else ()
    return (
        "-----END " in text
        or bool(_FULL_ROW.match("\n" + text[:_MAX_LINE]))
        or any(form.search(text) for form in (_FULL_ROW, *forms))
    )


def _lines(text: str) -> Iterator[Span]:
    """Yield the lines of a text; of a text in JSON those that it breaks by an escape, too."""
    at = 0
    for row in text.split("\n"):
        if "\\n" not in row:
            yield at, at + len(row)
        else:
            start, *pieces = at, *row.split("\\n")
            for i, piece in enumerate(pieces):
                begin = piece.rfind('"') + 1 if i == 0 else 0
                end = piece.find('"', begin) if i == len(pieces) - 1 else -1
                yield start + begin, start + (end if end >= 0 else len(piece))
                start += len(piece) + 2
        at += len(row) + 1


def _is_private(run: Sequence[re.Match[str]], before: str, after: str) -> bool:
    """Return True for lines of base64 that are those of a private key.

    Args:
        run: the lines.
        before: the line before them, without headers of a block; empty: there is none.
        after: the line that follows.
    """
    given = (hit["body"] for hit in run)  # a difference marks its lines by a plus
    bodies = [b[1:] if b[0] == "+" and len(b) - 1 in _FULL_LINES else b for b in given]
    first = bodies[0]
    if _END.match(after):
        return looks.random(first)
    if _BOUNDARY.search(before) or _BOUNDARY.match(after) or _DATA.match(first):
        return False
    size = len(first)
    is_block = len(run) <= _MAX_LINES and size in _FULL_LINES and len(bodies[-1]) <= size
    return is_block and all(len(b) == size for b in bodies[:-1]) and all(map(_is_drawn, bodies))


def _is_drawn(body: str) -> bool:
    """Return True for base64 that is no checksum in hexadecimal, no path and no long name."""
    return body != body.lower() and body != body.upper() and looks.mixed(body)


def find_open_block(text: str) -> int | None:
    """Return where a block begins that is still open at the end of the text, or None."""
    putty = text.rfind("Private-Lines:")
    if putty >= 0 and _OPEN_PUTTY.fullmatch(text, putty):
        return putty
    at = text.rfind("-----BEGIN ")
    if at < 0 or _END.search(text, at):
        return _find_open_lines(text)
    begin = _BEGIN.match(text, at)
    if begin is None:
        is_open = len(text) - at < 60 and "\n" not in text[at:]
        return at if is_open else _find_open_lines(text)
    lines = [_LEAD.sub("", line) for line in _BREAK.split(text[begin.end() :])[:-1]]
    is_key = all(
        not x.strip() or _HEADER.match(x) or (len(x) >= 16 and _BODY.match(x)) for x in lines
    )
    return at if is_key else _find_open_lines(text)


def _find_open_lines(text: str) -> int | None:
    """Return where lines begin that reach to the end of the text and may yet be those of a key."""
    *rows, last = text.rsplit("\n", 2 * _MAX_LINES)
    if not _OPEN_LINE.match(last):
        return None
    at, start = len(text) - len(last), None
    for row in reversed(rows):
        at -= len(row) + 1
        if _LINE.match(row):
            start = at
        elif row.strip() and not _SHORT_LINE.match(row):
            break
    return start


RULES = (
    Rule(
        "block of a private key",
        _find_blocks,
        "«-----BEGIN RSA PRIVATE KEY-----\n{b64}\n{b64}\n{b20}==\n-----END RSA PRIVATE KEY-----»",
        "«-----BEGIN OPENSSH PRIVATE KEY-----\n{b70}\n{b70}»",
        hint="-----BEGIN ",
    ),
    Rule(
        "lines of a block",
        _find_lines,
        "«{b64}»",
        "«{b70}\n{b70}\n{b24}»",
        "«{b64}\n{b20}==»\n-----END PRIVATE KEY-----",
        is_whole_line=True,
    ),
    Rule(
        "PuTTY key",
        _find_putty_keys,
        "Private-Lines: 2\n«{b64}\n{b40}»\nPrivate-MAC: 0",
        hint="Private-Lines:",
    ),
    Rule(
        "JSON Web Key",
        _find_web_keys,
        '{"kty": "OKP", "crv": "Ed25519", "d": "«{w43}»"}',
        hint="kty",
    ),
)
