"""Redact secrets in texts, JSON values and streams; secrets of the environment.

Five things go: values of the environment's secrets, also encoded (`environment`); what has the
published form of a vendor's key (`shapes`); addresses of webhooks (`webhooks`); blocks of private
keys, and lines of them (`key_blocks`); and what stands beside a telling name or in a telling place
and looks like a secret (`named_secrets`, `addresses`). Each kind is a rule of
`secret_spans.RULES`. Rules match the text as it is seen, without escape sequences
(`visible_text`); all are found as spans, so a stream can be cut where nothing is open
(`redacted_streams`).
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

from ctxkit._internal import secret_heuristics, secret_patterns, webhook_secrets
from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.lazy import public_dir
from ctxkit._internal.secret_heuristics import is_secret_field
from ctxkit._internal.visible_text import VisibleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit._internal.visible_text import Span


__all__ = ["REDACTION_MARK", "environment_secrets", "redact", "redact_json"]
__dir__ = public_dir(__all__)


def redact(text: str) -> str:
    """Return text without keys, and without the values of the environment's secrets."""
    return mask_spans(text, find_spans(text, environment_secrets()))


def redact_json(value: Any, secrets: Sequence[str] | None = None) -> Any:
    """Return a JSON value with every text and every key of an object in it redacted.

    A text that stands under a telling key (`{"password": ...}`) is judged as one that stands beside
    it.

    Args:
        value: texts, numbers, lists and objects.
        secrets: what `secrets()` gave, where many values are redacted one after the other.
    """
    secrets = environment_secrets() if secrets is None else secrets
    if isinstance(value, str):
        return mask_spans(value, find_spans(value, secrets))
    if isinstance(value, dict):
        return {
            redact_json(k, secrets): REDACTION_MARK
            if isinstance(v, str) and is_secret_field(k, v)
            else redact_json(v, secrets)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact_json(v, secrets) for v in value]
    return value


_CONTEXT_CHARS = 400
"""Characters already given out that are looked at again: the name that tells what comes next."""
_LONGEST = 4_096
"""Characters of a word without an end that are held back at most."""
_BLOCK = 16_384
"""Characters of a block of a private key that are held back while its end is waited for."""
_OPEN_QUOTED_SECRET = re.compile(
    r"(?i)(?:pass|pwd|secret|token|key|auth|credential)[\w-]{0,30}\W{0,8}[\"'`][^\"'`\n]{0,300}\Z"
)
"""A telling name and a quote that is open: what stands in it may hold spaces."""
_OPEN_SEED_PHRASE = re.compile(
    r"(?i)(?:mnemonic|(?:seed|recovery)[ _]phrase)[\\\"'`:= \t]{1,12}(?:[a-z]{3,8}"
    r" ){0,24}[a-z]{0,8}\Z"
)
"""The words of a wallet, as far as they have come."""
_REST_OF_WORD = re.compile(r"[\w+/=.~%-]*")


class StreamRedactor:
    """Redacts pieces: `feed` gives out what is settled, `flush` the rest at the end of the text.

    The pieces given out are together what `redact` makes of the whole, except within words longer
    than 4,096 characters and blocks longer than 16,384. The last word is always held back, so a
    piece is shown one word late.

    Args:
        known: secrets of the environment; None: asked for now.
    """

    def __init__(self, secrets: Sequence[str] | None = None) -> None:
        self._known = environment_secrets() if secrets is None else secrets
        self._broken = [v for v in self._known if any(map(str.isspace, v))]
        self._text = ""
        self._given = 0
        """How many characters of the text are given out."""
        self._inside = False
        """A secret reached the end of what was given out by force: the rest of the word is its."""

    def feed(self, piece: str) -> str:
        """Take a piece; return what may be shown by now."""
        self._text += piece
        return self._upto(self._settled())

    def flush(self) -> str:
        """Return what was held back: the text is over."""
        return self._upto(len(self._text))

    def _settled(self) -> int:
        """Return up to where nothing that comes can change what is a secret."""
        start = _last_word(self._text)
        if len(self._text) - start > _LONGEST:
            return len(self._text)
        view = VisibleText(self._text)
        text, near = view.text, max(len(view.text) - 400, 0)
        ends = [
            hit.start()
            for form in (_OPEN_QUOTED_SECRET, _OPEN_SEED_PHRASE)
            if (hit := form.search(text, near))
        ]
        block = secret_patterns.find_open_block(text)
        ends += [block] if block is not None and len(text) - block <= _BLOCK else []
        ends += [len(text) - n for v in self._broken if (n := _count_started(text, v))]
        return max(min([start, *map(view.origin, ends)]), self._given)

    def _upto(self, end: int) -> str:
        out, at = [], self._given
        if self._inside and at < len(self._text):
            word = _REST_OF_WORD.match(self._text, at)
            at = min(word.end(), end) if word else at
            self._inside = at == len(self._text)
        if end <= at:
            self._given = max(at, self._given)
            return ""
        forced = end - at >= _LONGEST
        for start, stop in find_spans(self._text, self._known):
            if stop <= at or start >= end:
                continue
            out += [self._text[at : max(start, at)], REDACTION_MARK]
            at = stop
            self._inside = forced and stop == len(self._text)
        out.append(self._text[at:end])
        self._given = max(at, end)
        self._cut()
        return "".join(out)

    def _cut(self) -> None:
        """Forget what is given out and tells nothing any more."""
        end = max(self._given - _CONTEXT_CHARS, 0)
        gone = _last_word(self._text[:end]) or (end if end > _LONGEST else 0)
        self._text, self._given = self._text[gone:], self._given - gone


def _last_word(text: str) -> int:
    """Return where the last word of a text begins, with the spaces after it on its line."""
    end = len(text.rstrip(" \t"))
    return max(text.rfind(c, 0, end) for c in " \t\n\r") + 1


def _count_started(text: str, value: str) -> int:
    """Return how many characters at the end of a text are the beginning of a value."""
    for n in range(min(len(value) - 1, len(text)), 0, -1):
        if text.endswith(value[:n]):
            return n
    return 0


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


def environment_secrets() -> list[str]:
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


def environment_without_secrets() -> dict[str, str]:
    """Return the environment for a program that is started: without what may be a secret.

    A variable goes by its name, whatever it holds, or by its value. What a program lacks it says,
    so a name counts here wherever in it the word stands, while text loses only what is secret.
    """
    return {name: value for name, value in os.environ.items() if not _may_be_secret(name, value)}


def _may_be_secret(name: str, value: str) -> bool:
    if _HINT.search(name) or _is_named(name):
        return True
    return not name.upper().endswith("PATH") and bool(_find_keys_in_value(value))


def _is_named(name: str) -> bool:
    return bool(_NAME.search(name)) and not _NEVER.search(name)


@lru_cache(2048)
def _forms_of(name: str, value: str) -> frozenset[str]:
    """Return the forms of the secrets in one variable."""
    if not MIN_CHARS <= len(value) <= 100_000:
        return frozenset()
    plain: set[str] = set(_find_keys_in_value(value))
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
        and not get_url_password(value)
        and not secret_heuristics.looks_random(value.partition("://")[2])
    ):
        return False
    if secret_heuristics.looks_random(value) or secret_heuristics.looks_generated(
        value, quoted=True
    ):
        return True
    if len(value) < MIN_CHARS_IN_WORDS and not _MIXED.match(value):
        return False
    if re.fullmatch(r"[A-Za-z]+(?:[-_.][A-Za-z]+)?", value):
        return len(value) > 16
    if re.fullmatch(r"[\d.:,-]+", value):
        return len(value) >= 12
    return not secret_heuristics.looks_like_code(value) and not secret_heuristics.is_placeholder(
        value
    )


def _find_keys_in_value(value: str) -> list[str]:
    """Return the keys that stand in a value of any variable, and the password of a URL."""
    view = VisibleText(value)
    out = [view.text[start:end] for start, end in secret_patterns.find_keys(view)]
    password = get_url_password(value)
    if password and (
        secret_heuristics.looks_random(password) or secret_heuristics.looks_like_password(password)
    ):
        out += [password, value]
    return [o for o in out if len(o) >= MIN_CHARS_IN_WORDS]


def get_url_password(value: str) -> str:
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
            is_secret = _is_named(setting["name"]) or (
                len(own) >= 12 and secret_heuristics.looks_random(own)
            )
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


REDACTION_MARK = "[redacted]"
RULES = (
    *secret_patterns.KEY_BLOCK_RULES,
    *secret_patterns.SECRET_PATTERN_RULES,
    *webhook_secrets.WEBHOOK_RULES,
    *secret_heuristics.NAMED_SECRET_RULES,
    *secret_heuristics.ADDRESS_RULES,
)
"""Every rule by which a secret is known that does not stand in the environment."""


_CASED = [(r.hint, r.find) for r in RULES if not r.is_caseless]
_CASELESS = [(r.hint, r.find) for r in RULES if r.is_caseless]


def find_spans(shown: str, secrets: Sequence[str]) -> list[Span]:
    """Return the spans of secrets in order, none over another; `secrets` are the environment's."""
    view = VisibleText(shown)
    spans = list(_find_known(view, secrets))
    for text, rules in ((view.text, _CASED), (view.low, _CASELESS)):
        for hint, find in rules:
            if hint in text:
                spans.extend(find(view))
    if view.is_changed:
        spans = [view.original_span(span) for span in spans]
        spans.extend(_find_in_strings(shown, view.strings, secrets))
    return _merged(sorted(spans))


def _find_in_strings(shown: str, strings: Sequence[Span], secrets: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of secrets in the strings of escape sequences, such as addresses of links."""
    starts: list[int] = []
    pieces: list[str] = []
    size = 0
    for start, end in strings:
        starts.append(size)
        pieces.append(shown[start:end])
        size += end - start + 1
    for a, b in find_spans("\n".join(pieces), secrets) if pieces else ():
        i = bisect_right(starts, a) - 1
        start, end = strings[i]
        yield start + a - starts[i], min(start + b - starts[i], end)


def _find_known(view: VisibleText, known: Sequence[str]) -> Iterator[Span]:
    text = view.text
    for value in known:
        at = text.find(value)
        while at >= 0:
            end = at + len(value)
            if len(value) >= MIN_CHARS_IN_WORDS or (view.is_edge(at) and view.is_edge(end)):
                yield at, end
            at = text.find(value, end)


def _merged(spans: list[Span]) -> list[Span]:
    out: list[Span] = []
    for start, end in spans:
        if out and start < out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((start, end))
    return out


def mask_spans(text: str, spans: Sequence[Span]) -> str:
    """Return the text with a mark in the place of each span."""
    if not spans:
        return text
    out, at = [], 0
    for start, end in spans:
        out += [text[at:start], REDACTION_MARK]
        at = end
    return "".join([*out, text[at:]])


FAILURE_CHARS = 300
"""Characters of an error that are kept and shown."""


def failure_text(error: object) -> str:
    """Return an error as it is kept and shown: one line, bounded, without keys."""
    return sanitize_line(redact(str(error)[:20_000]), FAILURE_CHARS)
