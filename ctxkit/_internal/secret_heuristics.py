"""Secrets known by their context (names, URLs, command options) and by how random they look.

A name alone is not enough. What stands on its right side must look like a secret (`looks`): a call,
an attribute, a subscript, a variable or a placeholder is code, and a word such as `required` is a
word. The telling words are looked for as plain texts, and only where one stands are patterns tried:
so a text is gone over in linear time.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

from ctxkit._internal.secret_rules import Rule, compile_once
from ctxkit._internal.visible_text import VisibleText

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ctxkit._internal.visible_text import Span


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
_VARIABLE_SYNTAX = re.compile(r"^(?:\$\{?[A-Za-z_]\w*\}?$|\$[({]|\{|%\w+%$|%[s(]|<|@\w+@$)")
_DOTTED = re.compile(r"^[A-Za-z_$]\w*(?:\?|!)?(?:(?:\.|::|->)[A-Za-z_]\w*)+$")
_IDENTIFIER = re.compile(r"^[A-Za-z_$]\w*$")
_PATH = re.compile(r"^(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w. -]*(?:[/\\][\w. -]*)*$")
_SYMBOL = re.compile(r"[^\w\s./:\\-]")
_UUID = re.compile(r"(?i)^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@lru_cache(4096)
def looks_random(value: str) -> bool:
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
    return any(not r.isdigit() and not looks_like_word(r) for r in runs)


def mixes_character_kinds(value: str) -> bool:
    """Say whether capitals, small letters, digits change at least at every fourth place."""
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" for c in value if c.isalnum()]
    return 4 * sum(a != b for a, b in pairwise(kinds)) >= len(kinds)


def looks_like_word(letters: str) -> bool:
    """Return True for letters that may be a word, a part of one or an acronym."""
    if len(letters) <= 5:
        return letters.lower() != "abcde"
    low = letters.lower()
    if len(low) > _LONGEST_WORD or _NO_WORD.search(low):
        return False
    if any(low[i : i + 5] in _ALPHABET for i in range(len(low) - 4)):
        return False
    return 0.15 <= sum(c in "aeiouy" for c in low) / len(low) <= 0.75


def looks_generated(value: str, *, quoted: bool = False, after: str = "") -> bool:
    """Return True for the value of a key or a token: at least 8 characters, random, and no code."""
    if len(value) < 8 or looks_like_code(value, quoted=quoted, after=after) or _is_path(value):
        return False
    return looks_random(value) or (value.isdigit() and len(value) >= 16)


def looks_like_password(value: str, *, quoted: bool = False, after: str = "") -> bool:
    """Return True for a value that may be a password: something a person chose, or a machine.

    Letters alone count where they are long (10 in quotes, else 12): `correcthorsebattery`, not
    `required`.
    """
    if len(value) < 6 or looks_like_code(value, quoted=quoted, after=after) or _is_path(value):
        return False
    if looks_random(value):
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


def looks_like_code(value: str, *, quoted: bool = False, after: str = "") -> bool:
    """Return True for a mask, a placeholder, a variable, a call, a subscript, an attribute.

    `after` is the character that follows.
    """
    if (
        _MASK.match(value)
        or _VARIABLE_SYNTAX.match(value)
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
        return not looks_random(re.split(r"\W+", value)[0])
    return False


def is_uuid(value: str) -> bool:
    """Return True for a UUID: an id of something, and a secret only beside a name that says so."""
    return bool(_UUID.match(value))


def is_placeholder(value: str) -> bool:
    """Return True for what a manual writes in the place of a secret."""
    return bool(_PLACEHOLDER.search(value)) and not looks_random(value)


def _is_path(value: str) -> bool:
    return bool(_PATH.match(value)) and not looks_random(value)


_PASSWORD_WORDS = (
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
    for word in _PASSWORD_WORDS
    if not word.isascii()
    for form in sorted(
        {
            json.dumps(word)[1:-1],
            json.dumps(json.dumps(word))[3:-3],
            word.encode("unicode_escape").decode(),
        }
    )
)
_TOKEN_WORDS = (
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
_UPPER_PREFIX = re.compile(r"(?<![A-Za-z_])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_$")
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
_SEED_WORDS = re.compile(r"[\\\"'`:= \t]{1,12}((?:[a-z]{3,8} ){11,23}[a-z]{3,8})\b")
"""The words that a wallet is made of (BIP 39)."""
_LONG = 80
"""Characters of a right side in which no other name is looked for."""
_NAMED = re.compile(r"(\$?)([A-Z0-9_]*)$")
"""What stands before the telling word in the name of a variable; a `$` where it is only used."""
_SET = re.compile(r"\bset[ \t]+(?:--\w{1,20}[ \t]+)?\S{0,60}$")
_FLAG = re.compile(r"(?<![\w-])--?[\w-]{0,60}$")
_ALONE = re.compile(r"(?:export |set |ENV |ARG |- )?[ \t]*[\w.-]*$")
_QUOTES = re.compile(r"[\"'`\\]")
_NON_SPACE = re.compile(r"\S*+")
_TAIL = re.compile(r"[\w.~+/%-]*+={0,2}")


def find_words(text: str, words: Iterable[str]) -> Iterator[tuple[int, str]]:
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
        hit = _VALUE.match(text, at + len(word)) if _word_counts_here(view, at, word) else None
        span = _secret_span_of_match(view, at, word, hit) if hit else None
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
    for at, word in find_words(view.low, words):
        hit = form.match(view.text, at + len(word))
        if hit and is_secret(hit[1]):
            yield hit.span(1)


def _find_cookies(view: VisibleText) -> Iterator[Span]:
    over = 0
    for at, word in find_words(view.low, ("cookie",)):
        hit = _COOKIES.match(view.text, at + len(word)) if at >= over else None
        over = hit.end() if hit else over
        for crumb in _CRUMB.finditer(view.text, *hit.span(1)) if hit else ():
            if looks_generated(crumb[2], quoted=True):
                yield crumb.span(2)


def is_secret_field(name: object, value: str) -> bool:
    """Return True for a text under a key that names a secret, where it looks like one."""
    if not isinstance(name, str) or not 2 <= len(name) <= 100 or not 6 <= len(value) <= 4096:
        return False
    name, value = VisibleText(name).text, VisibleText(value).text
    if "\n" in value or "\n" in name:
        return False
    view = VisibleText(f"{name}='{_QUOTES.sub('~', value)}'")
    spans = (span for word in _PASSWORD_WORDS + _TOKEN_WORDS for span in _find_beside(word, view))
    return any(start == len(name) + 2 for start, _ in spans)


def _secret_span_of_match(view: VisibleText, at: int, word: str, hit: re.Match[str]) -> Span | None:
    """Return the span of the secret that stands beside a telling word, or None."""
    text = view.text
    group = "bare" if hit["inside"] is None else "inside"
    start, end = hit.span(group)
    if (
        not hit["sep"].strip()
        and view.match_before(_FLAG, at, 80) is None
        and not _sql(hit, word)
        and not _is_variable_assignment(text, at, word, hit)
    ):
        return None  # a space tells only after a flag, and after the name of a variable
    if hit["sep"].strip() == ">" and not text.startswith("</", end):
        return None
    if hit["sep"].strip() == "|" and not (len(hit[group]) >= 12 and looks_random(hit[group])):
        return None  # what a shell does next
    if hit["sep"].strip() == "," and not (hit["close"] and re.search(r"\d", hit[group])):
        return None  # the next of a list of words
    secret = _is_drawn_secret if word in _TOKEN_WORDS else _is_chosen_secret
    return (start, _end_of_secret(text, hit, at, end)) if secret(text, hit, word, end) else None


def _is_variable_assignment(text: str, at: int, word: str, hit: re.Match[str]) -> bool:
    """Return True for `ENV API_TOKEN x1...` and `config set token x1...`, drawn by a machine."""
    begin = max(at - 60, 0)
    before = _NAMED.search(text, begin, at)
    name = (before[2] if before else "") + text[at : at + len(word)]
    value = hit["bare"] if hit["inside"] is None else hit["inside"]
    named = "_" in name and name.isupper() and not (before and before[1])
    named = named or bool(_SET.search(text, begin, at))
    return named and len(value) >= 16 and looks_generated(value)


def _sql(hit: re.Match[str], word: str) -> bool:
    """Return True for `PASSWORD 'x1'`, as SQL writes it."""
    return word in _SQL and hit["inside"] is not None and bool(re.search(r"\d", hit["inside"]))


def _word_counts_here(view: VisibleText, at: int, word: str) -> bool:
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
            text.startswith("KEY", at) and _UPPER_PREFIX.search(named) and not _OPEN.search(named)
        )
    return word != "token" or not _PUBLIC.search(before)


def _is_chosen_secret(text: str, hit: re.Match[str], word: str, end: int) -> bool:
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
    return looks_like_password(value, quoted=quoted, after=text[end : end + 1])


def _is_drawn_secret(text: str, hit: re.Match[str], word: str, end: int) -> bool:
    quoted = hit["inside"] is not None
    value = hit["inside"] if quoted else hit["bare"]
    if "sess" in word and is_uuid(value):
        return False
    return looks_generated(value, quoted=quoted, after=text[end : end + 1])


def _end_of_secret(text: str, hit: re.Match[str], at: int, end: int) -> int:
    """Return where a secret ends: in quotes at the quote, alone on its line with the word."""
    if hit["inside"] is not None:
        quote, line = text.find(hit["quote"], end, end + 4096), text.find("\n", end, end + 4096)
        return quote if quote >= 0 and (line < 0 or quote < line) else end
    rest = _TAIL.match(text, end)
    if hit["sep"] == "=":
        begin = max(text.rfind("\n", max(at - 120, 0), at) + 1, at - 120, 0)
        rest = _NON_SPACE.match(text, end) if _ALONE.fullmatch(text, begin, at) else rest
    return rest.end() if rest else end


def _credential(value: str) -> bool:
    """Return True for what stands in a header that can hold nothing but a credential."""
    if is_placeholder(value) or looks_like_code(value):
        return False
    long = (len(value) >= 20 and re.search(r"\d", value)) or re.search(r"\d{6}", value)
    return bool(long) or looks_random(value)


def _examples(word: str) -> tuple[str, ...]:
    """Return a secret beside a word in an assignment and behind a flag, or in a URL."""
    if word in _QUERIED:
        return (f"https://example.com/x?a=1&{word}=«{{a24}}»",)
    name = "api_key" if word == "key" else word
    return f"{name} = «{{a24}}»", f"run --{name} «{{a24}}»"


NAMED_SECRET_RULES = (
    *(
        Rule(f"beside {w}", partial(_find_beside, w), *_examples(w), hint=w, is_caseless=True)
        for w in _PASSWORD_WORDS + _TOKEN_WORDS
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
        partial(_find_after, ("bearer", "basic"), _SCHEME, looks_generated),
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
        partial(_find_after, _WEB, _ENCODED, looks_generated),
        "%22token%22%3A%22«{a32}»%22",
        hint="%3",
        is_caseless=True,
    ),
    Rule(
        "words of a wallet",
        partial(_find_after, _SEEDS, _SEED_WORDS, bool),
        f"seed phrase: «{' '.join(['{p5}'] * 12)}»",
        is_caseless=True,
    ),
    Rule(
        "cookie", _find_cookies, "Cookie: theme=dark; sid=«{a32}»", hint="cookie", is_caseless=True
    ),
)

_LOGIN = re.compile(
    r"://(?:(?P<user>[^\s:@/\"'<>?#]{0,200}+):(?P<password>[^\s@/\"'<>]{3,300}+)"
    r"|(?P<alone>[^\s:@/\"'<>?#]{16,300}+))@"
)
_MANUAL = frozenset(
    {"password", "passwd", "pass", "pwd", "secret", "token", "user", "username", "key", "pw", "xxx"}
)
"""What stands for a password in manuals."""
_NETRC = re.compile(
    r"(?i)[ \t\r\n]{1,20}+\S{1,200}+[ \t\r\n]{1,20}+(?:account[ \t]+\S{1,200}[ \t\r\n]{1,20})?"
    r"password[ \t\r\n]{1,20}+(\S{3,300})"
)
_PGPASS = (
    r"[ \t]{0,20}+[\w.*-]{1,200}+:(?:\d{2,5}|\*):[^:\s]{1,100}+:[^:\s]{1,100}+:"
    r"([^\s\\\"]{6,300})(?=\\+n|\\*\"?\r?(?:\n|$))"
)
_PGPASS_FORMS = [re.compile(newline + _PGPASS) for newline in (r"\n", r"\\n")]
"""A line of its own, and one within JSON."""
_COMMANDS = (
    "curl ",
    "wget ",
    "mysql",
    "sshpass ",
    "docker ",
    "podman ",
    "redis-cli ",
    "ldapsearch ",
    "http ",
    *("smbclient ", "zip ", "7z ", "7za ", "twine ", "az login ", "dotnet nuget ", "gem push "),
)
_ENTER = ("login ", "rootpw ", "convertto-securestring ")
"""Commands whose only argument is the secret."""
_ENTERED = re.compile(r"(?:--?\w{1,20}[ \t]+)?[\"']?([\w./+-]{16,500}=*)")
_ARGUMENTS = re.compile(r"[^\r\n|&;]{0,600}")
_OPTION = re.compile(
    r"[ \t](?:(?:-[uU]|--user|--proxy-user)[ =]?[\"']?[^\s:\"']{1,100}[:%]|-[pP] ?|-[akw]"
    r" |--key[ =])"
    r"[\"']?([^\s\"'@]{6,200})"
)


def _find_logins(view: VisibleText) -> Iterator[Span]:
    """Yield the passwords of URLs."""
    for at, _ in find_words(view.text, ("://",)):
        hit = _LOGIN.match(view.text, at)
        password = hit["password"] if hit else None
        if hit is None or password is None:
            continue
        is_named = password.lower() in _MANUAL or "[" in password or password == hit["user"]
        if not is_named and not looks_like_code(password) and not is_placeholder(password):
            yield hit.span("password")


def _find_tokens(view: VisibleText) -> Iterator[Span]:
    """Yield what stands in the place of user and password of a URL of the web."""
    for at, _ in find_words(view.low, ("http://", "https://")):
        hit = _LOGIN.match(view.text, view.low.index("://", at))
        if hit and hit["alone"] and looks_random(hit["alone"]):
            yield hit.span("alone")


def _find_netrc(view: VisibleText) -> Iterator[Span]:
    for start, word in find_words(view.low, ("login",)):
        hit = _NETRC.match(view.text, start + len(word))
        if (
            hit
            and not looks_like_code(hit[1])
            and not is_placeholder(hit[1])
            and hit[1].lower() not in _MANUAL
        ):
            yield hit.span(1)


def _find_entered(view: VisibleText) -> Iterator[Span]:
    for start, word in find_words(view.low, _ENTER):
        hit = _ENTERED.match(view.text, start + len(word))
        if hit and looks_generated(hit[1]):
            yield hit.span(1)


def _find_pgpass(view: VisibleText) -> Iterator[Span]:
    first = compile_once(_PGPASS).match(view.text)
    for hit in (first, *(m for form in _PGPASS_FORMS for m in form.finditer(view.text))):
        if hit and looks_like_password(hit[1]):
            yield hit.span(1)


def _find_options(view: VisibleText) -> Iterator[Span]:
    text, over = view.text, 0
    for at, word in sorted(find_words(text, _COMMANDS)):
        line = _ARGUMENTS.match(text, max(at + len(word) - 1, over))
        if at < over or line is None:
            continue
        over = line.end()
        for hit in _OPTION.finditer(text, *line.span()):
            if looks_like_password(hit[1]):
                yield hit.span(1)


ADDRESS_RULES = (
    Rule(
        "login of a URL",
        _find_logins,
        "mongodb+srv://root:«{a16}»@db/x",
        hint="://",
        is_caseless=True,
    ),
    Rule(
        "token of a URL",
        _find_tokens,
        "https://«{a40}»@github.com/x/y",
        hint="://",
        is_caseless=True,
    ),
    Rule(
        "netrc",
        _find_netrc,
        "machine x.org login bob password «{a12}»",
        hint="login",
        is_caseless=True,
    ),
    Rule("argument of a login", _find_entered, "npx convex login «{a40}»", is_caseless=True),
    Rule("pgpass", _find_pgpass, "db.x.org:5432:main:bob:«{a16}»", hint=":", is_whole_line=True),
    Rule("option of a command", _find_options, "curl -u bob:«{a16}» x.org"),
)
