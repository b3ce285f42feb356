"""The secrets of the environment: by the names of variables and by their values."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus, unquote, urlsplit

from ctxkit.redaction import looks, shapes
from ctxkit.redaction.visible_text import VisibleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIN_CHARS = 6
"""Characters that a value must have to count as a secret: shorter ones are words and numbers."""
MIN_CHARS_IN_WORDS = 8
"""Characters from which on a value is found within a word; a shorter one must stand by itself."""
_NAME = re.compile(
    r"(?i)(?:^|_)(?:.*(?:PASSWORDS?|PASSWD|PASSPHRASE|PASSCODE|SECRETS?|APIKEYS?|CREDENTIALS?"
    r"|TOKEN)|PASS|PWD|KEYS?|PAT|JWT|AUTH|AUTHORIZATION|BEARER|COOKIE|DSN|SALT|MNEMONIC|SAS|SIGNATURE"
    r"|CONN(?:ECTION)?_?STR(?:ING)?)"
    r"(?:_?(?:\d+|BASE|PROD(?:UCTION)?|DEV|TEST|STAGING|LIVE|OLD|NEW|PRIMARY|SECONDARY|MAIN"
    r"|DEFAULT|ADMIN|ROOT|VALUE|BASE64|B64|HEX|PEM|JSON))*$"
)
_NEVER = re.compile(
    r"(?i)^(?:OLD)?PWD$|^GPG_KEY$|(?:PUBLIC|PRIMARY|SORT|PARTITION|CACHE|FOREIGN)_KEYS?$|^.*KEYBOARD"
)
_MIXED = re.compile(r"(?=.*[A-Za-z])(?=.*[^A-Za-z\s_./:-])")
"""A short value must mix letters with digits or signs."""
_SETTING = re.compile(r"[\"']?(?P<name>[\w.-]+)[\"']?\s*[:=]\s*[\"']?(?P<value>.*)")
_NO_LINE = re.compile(r"-----|[#\[{]|//|(?=.{0,11}$)[A-Za-z ]*$")
"""What is no secret among the lines of one: edges of blocks, comments, sections, short words."""

_HINT = re.compile("(?i)KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH")
"""Words that say so in part of a name; with `_NAME` those that say so at its end alone."""


def secrets() -> list[str]:
    """Return the secrets of the environment in every form they may take, the longest first.

    A value counts where its variable is named like a secret and it is no ordinary word, number or
    path; where it has the form of a key; or where it is the password in a URL. Each is returned as
    it is and in the encoded `FORMS` (as base64 at any place in the encoded bytes); several lines
    also line by line.
    """
    out: set[str] = set()
    for name in os.environ:
        out.update(_forms_of(name, os.environ.get(name, "")))
    return sorted(out, key=len, reverse=True)


def without_keys() -> dict[str, str]:
    """Return the environment for a program that is started: without what may be a secret.

    A variable goes by its name, whatever it holds, or by its value. What a program lacks it says,
    so a name counts here wherever in it the word stands, while text loses only what is secret.
    """
    return {name: value for name, value in os.environ.items() if not _may_be(name, value)}


def _may_be(name: str, value: str) -> bool:
    if _HINT.search(name) or _is_named(name):
        return True
    return not name.upper().endswith("PATH") and bool(_within(value))


def _is_named(name: str) -> bool:
    return bool(_NAME.search(name)) and not _NEVER.search(name)


@lru_cache(2048)
def _forms_of(name: str, value: str) -> frozenset[str]:
    """Return the forms of the secrets in one variable."""
    if not MIN_CHARS <= len(value) <= 100_000:
        return frozenset()
    plain: set[str] = set(_within(value))
    if _is_named(name):
        plain.update(v for v in (value, value.strip()) if _is_worth_hiding(v))
    if _is_named(name) or "PRIVATE KEY-----" in value:
        plain.update(_secret_lines(value))
    forms = {f for p in plain for encode in FORMS.values() for f in encode(p)}
    long = {f for f in forms if len(f) >= MIN_CHARS_IN_WORDS or f in plain}
    return frozenset(VisibleText(f).text for f in long)  # so it is looked for in visible text


def _is_worth_hiding(value: str) -> bool:
    """Return True for what is a secret under such a name: no word, number, path, address."""
    if len(value) < MIN_CHARS:
        return False
    if value.startswith(("/", "~", "./")) and Path(value).expanduser().exists():
        return False
    if (
        "://" in value
        and not urlsplit_password(value)
        and not looks.random(value.partition("://")[2])
    ):
        return False
    if looks.random(value) or looks.machine_made(value, quoted=True):
        return True
    if len(value) < MIN_CHARS_IN_WORDS and not _MIXED.match(value):
        return False
    if re.fullmatch(r"[A-Za-z]+(?:[-_.][A-Za-z]+)?", value):
        return len(value) > 16
    if re.fullmatch(r"[\d.:,-]+", value):
        return len(value) >= 12
    return not looks.code(value) and not looks.placeholder(value)


def _within(value: str) -> list[str]:
    """Return the keys that stand in a value of any variable, and the password of a URL."""
    view = VisibleText(value)
    out = [view.text[start:end] for start, end in shapes.find_keys(view)]
    password = urlsplit_password(value)
    if password and (looks.random(password) or looks.chosen(password)):
        out += [password, value]
    return [o for o in out if len(o) >= MIN_CHARS_IN_WORDS]


def urlsplit_password(value: str) -> str:
    """Return the password in a URL, decoded, or an empty text."""
    try:
        return unquote(urlsplit(value).password or "") if "://" in value else ""
    except ValueError:
        return ""


def _secret_lines(value: str) -> Iterator[str]:
    """Yield the lines of a value of several that are secret by themselves."""
    lines = [line.strip() for line in re.split(r"\\n|\\r|[\r\n]+", value)]
    for line in lines if len(lines) > 1 else ():
        setting = _SETTING.match(line)
        own = setting["value"].rstrip("\"',;") if setting else line
        if setting is None:
            is_secret = len(own) >= MIN_CHARS_IN_WORDS
        else:
            is_secret = _is_named(setting["name"]) or (len(own) >= 12 and looks.random(own))
        if is_secret and not _NO_LINE.match(own) and _is_worth_hiding(own):
            yield own


FORMS: dict[str, Callable[[str], set[str]]] = {
    "plain": lambda v: {v, repr(v)[1:-1], v.replace("\n", "\\n"), v.replace("\\n", "\n")},
    "JSON": lambda v: {json.dumps(v, ensure_ascii=a)[1:-1] for a in (True, False)},
    "HTML": lambda v: {html.escape(v)},
    "URL": lambda v: _quoted(_bytes(v)),
    "hexadecimal": lambda v: {_bytes(v).hex(), _bytes(v).hex().upper()},
    "base64": lambda v: _base64(_bytes(v)),
}
"""How a secret of the environment may be written."""


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _quoted(raw: bytes) -> set[str]:
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    return quoted | {q.lower() for q in quoted if "%" in q}


def _base64(raw: bytes) -> set[str]:
    """Return base64 of bytes at each place in a group, without what depends on neighbours."""
    out = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    for before in range(3):
        start, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            out.add(encode(b"\0" * before + raw)[start:end].decode())
    return out
