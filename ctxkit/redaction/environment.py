"""The secrets of the environment: by the names of variables and by their values."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, urlsplit

from ctxkit.redaction import looks, shapes

LEAST = 8
"""Characters that a value must have to count as a secret: shorter ones occur by chance."""
_NAME = re.compile(
    r"(?i)(?:^|_)(?:.*(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|APIKEY|CREDENTIALS?|TOKEN)|PASS|PWD"
    r"|KEY|PAT|JWT|AUTH|AUTHORIZATION|BEARER|COOKIE|DSN|SALT|MNEMONIC|SAS|SIGNATURE"
    r"|CONN(?:ECTION)?_?STR(?:ING)?)"
    r"(?:_?(?:\d+|BASE|PROD(?:UCTION)?|DEV|TEST|STAGING|LIVE|OLD|NEW|PRIMARY|SECONDARY|MAIN"
    r"|DEFAULT|ADMIN|ROOT|VALUE|BASE64|B64|HEX|PEM))*$"
)
_NEVER = re.compile(
    r"(?i)^(?:OLD)?PWD$|^GPG_KEY$|(?:PUBLIC|PRIMARY|SORT|PARTITION|CACHE|FOREIGN)_KEY$|^.*KEYBOARD"
)

_HINT = re.compile("(?i)KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH")
"""Words that say so in part of a name; with `_NAME` those that say so at its end alone."""


def secrets() -> list[str]:
    """Return the secrets of the environment in every form they may take, the longest first.

    A value counts where its variable is named like a secret and it is no ordinary word, number or
    path; where it has the form of a key; or where it is the password in a URL. Each is returned as
    it is and as base64 (at any place in the encoded bytes), hexadecimal, URL-encoded, escaped for
    JSON and HTML; several lines also line by line.
    """
    out: set[str] = set()
    for name in os.environ:
        out.update(_of(name, os.environ.get(name, "")))
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
def _of(name: str, value: str) -> frozenset[str]:
    """Return the forms of the secrets in one variable."""
    if len(value) < LEAST or len(value) > 100_000:
        return frozenset()
    plain: set[str] = set(_within(value))
    if _is_named(name) and _telling(value):
        plain.add(value)
        plain.update(_lines(value))
    return frozenset(f for p in plain for f in _forms(p) if len(f) >= LEAST)


def _telling(value: str) -> bool:
    """Return True for what is worth hiding under a telling name: no word, number, path, address."""
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
    if re.fullmatch(r"[A-Za-z]+(?:[-_.][A-Za-z]+)?", value):
        return len(value) > 16
    if re.fullmatch(r"[\d.:,-]+", value):
        return len(value) >= 12
    return not looks.code(value) and not looks.placeholder(value)


def _within(value: str) -> list[str]:
    """Return the keys that stand in a value of any variable, and the password of a URL."""
    out = [value[start:end] for start, end in shapes.spans(value)]
    password = urlsplit_password(value)
    if password and (looks.random(password) or looks.chosen(password)):
        out += [password, value]
    return [o for o in out if len(o) >= LEAST]


def urlsplit_password(value: str) -> str:
    """Return the password in a URL, decoded, or an empty text."""
    try:
        return unquote(urlsplit(value).password or "") if "://" in value else ""
    except ValueError:
        return ""


def _lines(value: str) -> list[str]:
    """Return the lines of a value of several that are secret by themselves."""
    lines = [line.strip() for line in re.split(r"\\n|\\r|[\r\n]+", value)]
    if len(lines) < 2:
        return []
    return [
        x
        for x in lines
        if len(x) >= 12 and " " not in x and not x.startswith("-----") and looks.random(x)
    ]


def _forms(value: str) -> set[str]:
    raw = value.encode("utf-8", "surrogateescape")
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    text = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        html.escape(value),
    }
    text |= {repr(value)[1:-1], value.replace("\n", "\\n"), value.replace("\\n", "\n")}
    return (
        text
        | quoted
        | {q.lower() for q in quoted if "%" in q}
        | {raw.hex(), raw.hex().upper()}
        | _base64(raw)
    )


def _base64(raw: bytes) -> set[str]:
    """Return base64 of bytes at each place in a group, without what depends on neighbours."""
    out = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    for before in range(3):
        start, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            out.add(encode(b"\0" * before + raw)[start:end].decode())
    return out
