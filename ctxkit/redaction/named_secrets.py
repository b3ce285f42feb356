"""Secrets that a name beside them tells: assignments, JSON, YAML, flags, XML, headers of HTTP.

A name alone is not enough. What stands on its right side must look like a secret (`looks`): a call,
an attribute, a subscript, a variable or a placeholder is code, and a word such as `required` is a
word. The telling words are looked for as plain texts, and only where one stands are patterns tried:
so a text is gone over in linear time.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING

from ctxkit.redaction import looks
from ctxkit.redaction.secret_rule import Rule
from ctxkit.redaction.visible_text import VisibleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ctxkit.redaction.visible_text import Span

_CHOSEN = (
    "password",
    "passwort",
    "passwd",
    "passphrase",
    "passcode",
    "pass",
    "pwd",
    "pw",
    "identified by",
    *("psk", "sshpass", "dbpass", "keypass", "storepass", "userpass", "rootpass", "adminpass"),
    *("kennwort", "wachtwoord", "mot de passe", "contraseña", "contrasena", "senha"),
    *("пароль", "密码", "密碼", "パスワード"),
)
"""Words for what a person chooses: words count there, too."""
_ESCAPED_WORDS = tuple(
    form
    for word in _CHOSEN
    if not word.isascii()
    for form in sorted(
        {
            json.dumps(word)[1:-1],
            json.dumps(json.dumps(word))[3:-3],
            word.encode("unicode_escape").decode(),
        }
    )
)
_DRAWN = (
    *(
        "secret",
        "secretstring",
        "token",
        "credential",
        "credentials",
        "apikey",
        "api key",
        "accesskey",
        "accountkey",
        "key",
        "auth",
    ),
    *(
        "bearer",
        "jwt",
        "pat",
        "authorization",
        "sharedaccesssignature",
        "dsn",
        "salt",
        "private",
        "sig",
        "code",
    ),
    *(
        "sessionid",
        "session_id",
        "session-id",
        "sessid",
        "connect.sid",
        "x-amz-signature",
        "x-goog-signature",
    ),
)
"""Words for what a machine draws."""
_SQL = ("password", "identified by")
"""Words after which SQL writes a password without a sign between."""
_APART = frozenset({"psk", "pass", "pwd", "pw", "auth", "jwt", "pat", "dsn", "salt", "private"})
"""Words that count only where no letter stands before them."""
_QUERIED = frozenset({"sig", "code"})
"""Words that count in the query of a URL only."""
_KEY = re.compile(
    r"(?:api|app(?:lication)?|access|account|private|secret|sign(?:ing|ature)|encrypt(?:ion)?"
    r"|decrypt(?:ion)?|master|shared|auth|service|admin|client|consumer|session|subscription"
    r"|license|webhook|write|integration|deploy|instrumentation|jwt|hmac|aes|openai|anthropic"
    r"|gemini|google|mistral|cohere|groq|azure|aws|stripe|github|gitlab|slack|twilio|sendgrid|mailgun|datadog"
    r"|cloudflare|algolia|sentry|functions?|storage|[?&])[ _-]?$"
)
"""What stands before `key` where that is a secret."""
_VARIABLE = re.compile(r"(?<![A-Za-z_])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_$")
_OPEN = re.compile(
    r"(?:PUBLIC|PRIMARY|SORT|PARTITION|CACHE|FOREIGN|OBJECT|S3|IDEMPOTENCY|GROUP|ROW|MAP|DEDUP"
    r"|GPG|BUILD|RESTORE|HASH|RANGE|REGISTRY|ROUTING|BUCKET|SHARD|CONFIG|TAG|LOOKUP|UNIQUE)_$"
)
"""What stands before `KEY` in the name of a variable where that is no secret."""
_PUBLIC = re.compile(
    r"(?:next|page|pagination|continuation|cancellation|request|sync|publickey|change|resume)"
    r"[ _-]?$"
)
"""What stands before `token` where that is none."""
_VALUE = re.compile(
    r"(?i)(?:[_-]?(?:base|prod(?:uction)?|dev|test|staging|live|old|new|primary|secondary"
    r"|value|\d{1,2})){0,2}"
    r"(?![A-Za-z0-9_])(?P<close>\\*[\"'`]\]?|\*\*)?"
    r"(?:[ \t]*:[ \t]*(?:Final|Optional\[str\]|&?(?:'static )?(?:Secret)?str(?:ing)?"
    r"(?:[ \t]*\|[ \t]*None)?)(?=[ \t]*=))?"
    r"(?:[ \t](?:is[ \t])?(?:generated|created|set)(?:[ \t]for[ \t][\w@.-]{1,60})?(?=[ \t]*:))?"
    r"(?P<sep>[ \t]{0,8}(?::=|=>|===?|=|:(?!:)|>|\||,(?=[ \t]{0,4}\\*[\"'`]))[ \t]{0,8}"
    r"|,?[ \t\r\n]{1,40}\\*[\"']?value\\*[\"']?[ \t]{0,4}[:=][ \t]{0,4}"
    r"|[ \t]+is[ \t:]{1,3}|[ \t]{1,40})"
    r"(?:(?:bearer|basic|token|bot|apikey)[ \t]+)?"
    r"(?:[rbfu]{0,2}(?P<quote>\\*[\"'`])(?:(?:bearer|basic|token|bot)[ \t]+)?"
    r"(?P<inside>[^\"'`\r\n\\]{6,512}+)"
    r"|(?P<bare>[^\s\"'`<>&;,(){}\[\]|\\=][^\s\"'`<>&;,(){}\[\]|\\=]{5,511}+={0,2}))"
)
_SCHEME = re.compile(r"[ \t]+([\w.~+/-]{12,512}+={0,2})")
_HEADER = re.compile(
    r"(?i)\\*[\"'`]?[ \t]{0,4}[:=,][ \t]{0,4}\\*[\"'`]?"
    r"(?:(?:bearer|basic|token|bot|apikey|key)[ \t]+)?"
    r"([\w.~+/-]{6,4096}+={0,2})(?![\w(\[=])"
)
_COOKIES = re.compile(r"\\*[\"'`]?[ \t]{0,4}[:=,][ \t]{0,4}\\*[\"'`]?([^\r\n\"'`]{8,4096}+)")
_CRUMB = re.compile(r"([\w.-]{1,100})=([^;\s]{8,2000})")
_WEB = ("password", "passwd", "secret", "token", "apikey", "api_key", "access_key", "private_key")
_ENCODED = re.compile(
    r"(?i)(?:%22|%27)?(?:%20|\+)?%3[ad](?:%20|\+)?(?:%22|%27)?([\w.~+/-]{8,512}+)"
)
"""What stands beside a name in JSON that is encoded for a URL."""
_SEEDS = ("mnemonic", "seed phrase", "seed_phrase", "recovery phrase", "recovery_phrase")
_WORDS = re.compile(r"[\\\"'`:= \t]{1,12}((?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b")
"""The words that a wallet is made of (BIP 39)."""
_LONG = 80
"""Characters of a right side in which no other name is looked for."""
_NAMED = re.compile(r"(\$?)([A-Z0-9_]*)$")
"""What stands before the telling word in the name of a variable; a `$` where it is only used."""
_SET = re.compile(r"\bset[ \t]+(?:--\w{1,20}[ \t]+)?\S{0,60}$")
_FLAG = re.compile(r"(?<![\w-])--?[\w-]{0,60}$")
_ALONE = re.compile(r"(?:export |set |ENV |ARG |- )?[ \t]*[\w.-]*$")
_QUOTES = re.compile(r"[\"'`\\]")
_WORD = re.compile(r"\S*+")
_TAIL = re.compile(r"[\w.~+/%-]*+={0,2}")


def places(text: str, words: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield where words stand in a text, word by word."""
    for word in words:
        at = text.find(word)
        while at >= 0:
            yield at, word
            at = text.find(word, at + len(word))


def _find_beside(word: str, view: VisibleText) -> Iterator[Span]:
    """Yield the values that stand beside a telling word."""
    text, low, at = view.text, view.low, view.low.find(word)
    while at >= 0:
        hit = _VALUE.match(text, at + len(word)) if _counts(view, at, word) else None
        span = _beside(view, at, word, hit) if hit else None
        if span:
            yield span
        long = hit is not None and hit.end() - hit.start() > _LONG
        at = low.find(word, hit.end() if hit and (span or long) else at + len(word))


def _find_beside_escaped(view: VisibleText) -> Iterator[Span]:
    """Yield the values beside words of other alphabets, as JSON writes them in ASCII."""
    for word in _ESCAPED_WORDS:
        yield from _find_beside(word, view)


def _find_after(
    words: tuple[str, ...],
    form: re.Pattern[str],
    is_secret: Callable[[str], bool],
    view: VisibleText,
) -> Iterator[Span]:
    """Yield what stands after words in a form."""
    for at, word in places(view.low, words):
        hit = form.match(view.text, at + len(word))
        if hit and is_secret(hit[1]):
            yield hit.span(1)


def _find_cookies(view: VisibleText) -> Iterator[Span]:
    over = 0
    for at, word in places(view.low, ("cookie",)):
        hit = _COOKIES.match(view.text, at + len(word)) if at >= over else None
        over = hit.end() if hit else over
        for crumb in _CRUMB.finditer(view.text, *hit.span(1)) if hit else ():
            if looks.machine_made(crumb[2], quoted=True):
                yield crumb.span(2)


def telling(name: object, value: str) -> bool:
    """Return True for a text under a key that names a secret, where it looks like one."""
    if not isinstance(name, str) or not 2 <= len(name) <= 100 or not 6 <= len(value) <= 4096:
        return False
    name, value = VisibleText(name).text, VisibleText(value).text
    if "\n" in value or "\n" in name:
        return False
    view = VisibleText(f"{name}='{_QUOTES.sub('~', value)}'")
    spans = (span for word in _CHOSEN + _DRAWN for span in _find_beside(word, view))
    return any(start == len(name) + 2 for start, _ in spans)


def _beside(view: VisibleText, at: int, word: str, hit: re.Match[str]) -> Span | None:
    """Return the span of the secret that stands beside a telling word, or None."""
    text = view.text
    group = "bare" if hit["inside"] is None else "inside"
    start, end = hit.span(group)
    if (
        not hit["sep"].strip()
        and view.match_before(_FLAG, at, 80) is None
        and not _sql(hit, word)
        and not _listed(text, at, word, hit)
    ):
        return None  # a space tells only after a flag, and after the name of a variable
    if hit["sep"].strip() == ">" and not text.startswith("</", end):
        return None
    if hit["sep"].strip() == "|" and not (len(hit[group]) >= 12 and looks.random(hit[group])):
        return None  # what a shell does next
    if hit["sep"].strip() == "," and not (hit["close"] and re.search(r"\d", hit[group])):
        return None  # the next of a list of words
    secret = _drawn if word in _DRAWN else _chosen
    return (start, _end(text, hit, at, end)) if secret(text, hit, word, end) else None


def _listed(text: str, at: int, word: str, hit: re.Match[str]) -> bool:
    """Return True for `ENV API_TOKEN x1...` and `config set token x1...`, drawn by a machine."""
    begin = max(at - 60, 0)
    before = _NAMED.search(text, begin, at)
    name = (before[2] if before else "") + text[at : at + len(word)]
    value = hit["bare"] if hit["inside"] is None else hit["inside"]
    named = "_" in name and name.isupper() and not (before and before[1])
    named = named or bool(_SET.search(text, begin, at))
    return named and len(value) >= 16 and looks.machine_made(value)


def _sql(hit: re.Match[str], word: str) -> bool:
    """Return True for `PASSWORD 'x1'`, as SQL writes it."""
    return word in _SQL and hit["inside"] is not None and bool(re.search(r"\d", hit["inside"]))


def _counts(view: VisibleText, at: int, word: str) -> bool:
    text, before = view.text, view.low[max(at - 24, 0) : at]
    if word in _APART:
        return not before[-1:].isalpha() or word == "private" or view.is_cut(at)
    if word in _QUERIED:
        return before[-1:] in ("?", "&")
    if word == "key":
        if _KEY.search(before):
            return True
        named = text[max(at - 60, 0) : at]
        return bool(
            text.startswith("KEY", at) and _VARIABLE.search(named) and not _OPEN.search(named)
        )
    return word != "token" or not _PUBLIC.search(before)


def _chosen(text: str, hit: re.Match[str], word: str, end: int) -> bool:
    quoted, sep = hit["inside"] is not None, hit["sep"].strip()
    value = hit["inside"] if quoted else hit["bare"]
    if word == "pwd" and value.startswith(("/", "~")):
        return False  # the folder one is in
    if not quoted and sep == "is" and not re.search(r"\d", value):
        return False
    if not quoted and sep == ":" and not re.search(r"\d", value):  # prose goes on after a word
        line = text[end : end + 200].split("\n", 1)[0]
        if line.strip(" \t\r,}]\"'"):
            return False
    return looks.chosen(value, quoted=quoted, after=text[end : end + 1])


def _drawn(text: str, hit: re.Match[str], word: str, end: int) -> bool:
    quoted = hit["inside"] is not None
    value = hit["inside"] if quoted else hit["bare"]
    if "sess" in word and looks.uuid(value):
        return False
    return looks.machine_made(value, quoted=quoted, after=text[end : end + 1])


def _end(text: str, hit: re.Match[str], at: int, end: int) -> int:
    """Return where a secret ends: in quotes at the quote, alone on its line with the word."""
    if hit["inside"] is not None:
        quote, line = text.find(hit["quote"], end, end + 4096), text.find("\n", end, end + 4096)
        return quote if quote >= 0 and (line < 0 or quote < line) else end
    rest = _TAIL.match(text, end)
    if hit["sep"] == "=":
        begin = max(text.rfind("\n", max(at - 120, 0), at) + 1, at - 120, 0)
        rest = _WORD.match(text, end) if _ALONE.fullmatch(text, begin, at) else rest
    return rest.end() if rest else end


def _credential(value: str) -> bool:
    """Return True for what stands in a header that can hold nothing but a credential."""
    if looks.placeholder(value) or looks.code(value):
        return False
    long = (len(value) >= 20 and re.search(r"\d", value)) or re.search(r"\d{6}", value)
    return bool(long) or looks.random(value)


def _examples(word: str) -> tuple[str, ...]:
    """Return a secret beside a word in an assignment and behind a flag, or in a URL."""
    if word in _QUERIED:
        return (f"https://example.com/x?a=1&{word}=«{{a24}}»",)
    name = "api_key" if word == "key" else word
    return f"{name} = «{{a24}}»", f"run --{name} «{{a24}}»"


RULES = (
    *(
        Rule(f"beside {w}", partial(_find_beside, w), *_examples(w), hint=w, is_caseless=True)
        for w in _CHOSEN + _DRAWN
    ),
    Rule(
        "beside words of other alphabets",
        _find_beside_escaped,
        *(_examples(w)[0] for w in _ESCAPED_WORDS),
        hint="\\",
        is_caseless=True,
    ),
    Rule(
        "HTTP scheme",
        partial(_find_after, ("bearer", "basic"), _SCHEME, looks.machine_made),
        "sent with Bearer «{a40}»",
        is_caseless=True,
    ),
    Rule(
        "Authorization header",
        partial(_find_after, ("authorization",), _HEADER, _credential),
        "Authorization: ApiKey «{a40}»",
        hint="authorization",
        is_caseless=True,
    ),
    Rule(
        "encoded for a URL",
        partial(_find_after, _WEB, _ENCODED, looks.machine_made),
        "%22token%22%3A%22«{a32}»%22",
        hint="%3",
        is_caseless=True,
    ),
    Rule(
        "words of a wallet",
        partial(_find_after, _SEEDS, _WORDS, bool),
        f"seed phrase: «{' '.join(['{p5}'] * 12)}»",
        is_caseless=True,
    ),
    Rule(
        "cookie", _find_cookies, "Cookie: theme=dark; sid=«{a32}»", hint="cookie", is_caseless=True
    ),
)
