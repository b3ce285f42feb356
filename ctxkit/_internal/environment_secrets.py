"""Secrets among the environment's variables, in all the forms in which a text can hold them."""

# Five kinds of secrets are redacted: values of the environment's secrets, also encoded
# (`get_environment_secrets`); keys of a vendor's published form and blocks of private keys
# (`redaction_rules_for_vendor_and_private_keys`); webhook addresses; and random-looking values
# beside a secret's name or in addresses (`redaction_rules_by_context`). Each kind is a rule of
# `RULES`. Rules match the text without escape sequences (`redaction_rule_and_hidden_characters`).

from __future__ import annotations

import base64
import html
import json
import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, quote_plus, unquote, urlsplit

from ctxkit._internal import redaction_rules_by_context, redaction_rules_for_vendor_and_private_keys
from ctxkit._internal.redaction_rule_and_hidden_characters import (
    TextWithoutHiddenCharacters,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MIN_CHARS = 6
"""Characters of the shortest value that counts as a secret; shorter ones are words and numbers."""
MIN_CHARS_IN_WORDS = 8
"""Characters of the shortest value that is found inside a word; a shorter one must be a word."""
_SECRET_NAME = re.compile(
    r"(?i)(?:^|_)(?:.*(?:PASSWORDS?|PASSWD|PASSPHRASE|PASSCODE|SECRETS?|APIKEYS?|CREDENTIALS?"
    r"|TOKEN)|PASS|PWD|KEYS?|PAT|JWT|AUTH|AUTHORIZATION|BEARER|COOKIE|DSN|SALT|MNEMONIC|SAS|SIGNATURE"
    r"|CONN(?:ECTION)?_?STR(?:ING)?)"
    r"(?:_?(?:\d+|BASE|PROD(?:UCTION)?|DEV|TEST|STAGING|LIVE|OLD|NEW|PRIMARY|SECONDARY|MAIN"
    r"|DEFAULT|ADMIN|ROOT|VALUE|BASE64|B64|HEX|PEM|JSON))*$"
)
_NO_SECRET_NAME = re.compile(
    r"(?i)^(?:OLD)?PWD$|^GPG_KEY$|(?:PUBLIC|PRIMARY|SORT|PARTITION|CACHE|FOREIGN)_KEYS?$|^.*KEYBOARD"
)
_MIXED_CHARS = re.compile(r"(?=.*[A-Za-z])(?=.*[^A-Za-z\s_./:-])")
"""A short value must contain letters and digits or signs."""
_SETTING_LINE = re.compile(r"[\"']?(?P<name>[\w.-]+)[\"']?\s*[:=]\s*[\"']?(?P<value>.*)")
_NO_SECRET_LINE = re.compile(r"-----|[#\[{]|//|(?=.{0,11}$)[A-Za-z ]*$")
"""Lines of a secret that are not secret: block edges, comments, sections, short words."""

_SECRET_WORD = re.compile("(?i)KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH")
"""Parts of a name that mark a secret anywhere in it; `_SECRET_NAME` has those at its end."""


def get_environment_secrets() -> list[str]:
    """Return the secrets of the environment in every form that they may have, the longest first.

    A value counts if its variable has the name of a secret and it is no ordinary word, number or
    path; if it has the form of a key; or if it is the password in a URL. Each is returned as it is
    and in the encoded `FORMS` (base64 at any position in the encoded bytes); values of several
    lines also line by line.
    """
    variables = os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001  a copy costs more than a text
    if variables != _latest.variables:
        secrets: set[str] = set()
        for name in os.environ:
            secrets.update(_secret_forms(name, os.environ.get(name, "")))
        _latest.secrets = sorted(secrets, key=len, reverse=True)
        _latest.variables = dict(variables)
    return list(_latest.secrets)


class _LatestEnvironment:
    """The environment at the last check, with its secrets, which each displayed text needs."""

    variables: ClassVar[dict[Any, Any]] = {}
    secrets: ClassVar[list[str]] = []


_latest = _LatestEnvironment


def get_environment_without_secrets() -> dict[str, str]:
    """Return the environment of a child process, without variables that may be secret.

    A variable is left out by its name, whatever its value, or by its value. A program reports a
    missing variable, so names are matched more broadly here than for the redaction of texts.
    """
    return {name: value for name, value in os.environ.items() if not _may_be_secret(name, value)}


def _may_be_secret(name: str, value: str) -> bool:
    if _SECRET_WORD.search(name) or _is_secret_name(name):
        return True
    return not name.upper().endswith("PATH") and bool(_find_keys_in_value(value))


def _is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)


@lru_cache(2048)
def _secret_forms(name: str, value: str) -> frozenset[str]:
    """Return the forms of the secrets in one variable."""
    if not MIN_CHARS <= len(value) <= 100_000:
        return frozenset()
    plain: set[str] = set(_find_keys_in_value(value))
    if _is_secret_name(name):
        plain.update(v for v in (value, value.strip()) if _is_worth_hiding(v))
    if _is_secret_name(name) or "PRIVATE KEY-----" in value:
        plain.update(_secret_lines(value))
    forms = {f for p in plain for encode in FORMS.values() for f in encode(p)}
    long_forms = {f for f in forms if len(f) >= MIN_CHARS_IN_WORDS or f in plain}
    return frozenset(
        TextWithoutHiddenCharacters(f).text for f in long_forms
    )  # rules match the visible text


def _is_path_of_a_file(value: str) -> bool:
    # A secret may begin as a path does: `Path` raises where the user after `~` is unknown, and
    # where the name is longer than the system's limit.
    return os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111


def _is_worth_hiding(value: str) -> bool:
    """Return whether a value under a secret's name is no mere word, number, path or address."""
    if len(value) < MIN_CHARS:
        return False
    if value.startswith(("/", "~", "./")) and _is_path_of_a_file(value):
        return False
    is_plain_url = "://" in value and not _get_url_password(value)
    if is_plain_url and not redaction_rules_by_context.looks_random(value.partition("://")[2]):
        return False
    if redaction_rules_by_context.looks_random(value) or redaction_rules_by_context.looks_generated(
        value, quoted=True
    ):
        return True
    if len(value) < MIN_CHARS_IN_WORDS and not _MIXED_CHARS.match(value):
        return False
    if re.fullmatch(r"[A-Za-z]+(?:[-_.][A-Za-z]+)?", value):
        return len(value) > 16
    if re.fullmatch(r"[\d.:,-]+", value):
        return len(value) >= 12
    return not redaction_rules_by_context.looks_like_code(
        value
    ) and not redaction_rules_by_context.is_placeholder(value)


def _find_keys_in_value(value: str) -> list[str]:
    """Return the keys in a variable's value, and the password of a URL with the URL itself."""
    view = TextWithoutHiddenCharacters(value)
    keys = [
        view.text[start:end]
        for start, end in redaction_rules_for_vendor_and_private_keys.find_vendor_keys(view)
    ]
    password = _get_url_password(value)
    if password and (
        redaction_rules_by_context.looks_random(password)
        or redaction_rules_by_context.looks_like_password(password)
    ):
        keys += [password, value]
    return [key for key in keys if len(key) >= MIN_CHARS_IN_WORDS]


def _get_url_password(value: str) -> str:
    """Return the decoded password in a URL; empty where it has none."""
    try:
        return unquote(urlsplit(value).password or "") if "://" in value else ""
    except ValueError:
        return ""


def _secret_lines(value: str) -> Iterator[str]:
    """Yield the lines of a multi-line value that are secrets by themselves."""
    lines = [line.strip() for line in re.split(r"\\n|\\r|[\r\n]+", value)]
    for line in lines if len(lines) > 1 else ():
        setting = _SETTING_LINE.match(line)
        text = setting["value"].rstrip("\"',;") if setting else line
        if setting is None:
            is_secret = len(text) >= MIN_CHARS_IN_WORDS
        else:
            is_secret = _is_secret_name(setting["name"]) or (
                len(text) >= 12 and redaction_rules_by_context.looks_random(text)
            )
        if is_secret and not _NO_SECRET_LINE.match(text) and _is_worth_hiding(text):
            yield text


FORMS: dict[str, Callable[[str], set[str]]] = {
    "plain": lambda v: {v, repr(v)[1:-1], v.replace("\n", "\\n"), v.replace("\\n", "\n")},
    "JSON": lambda v: {json.dumps(v, ensure_ascii=a)[1:-1] for a in (True, False)},
    "HTML": lambda v: {html.escape(v)},
    "URL": lambda v: _url_forms(_to_bytes(v)),
    "hexadecimal": lambda v: {_to_bytes(v).hex(), _to_bytes(v).hex().upper()},
    "base64": lambda v: _base64_forms(_to_bytes(v)),
}
"""The encodings in which a secret of the environment may occur, with their functions."""


def _to_bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _url_forms(raw: bytes) -> set[str]:
    quoted = {quote(raw, safe=""), quote(raw), quote_plus(raw)}
    return quoted | {q.lower() for q in quoted if "%" in q}


def _base64_forms(raw: bytes) -> set[str]:
    """Return base64 of bytes at each offset in a group of three, without characters that depend on
    the bytes around them.
    """
    out = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    for before in range(3):
        start, end = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            out.add(encode(b"\0" * before + raw)[start:end].decode())
    return out
