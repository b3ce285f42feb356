"""Redaction rules for secrets of a published form: vendor keys and blocks of private keys."""

# The forms come from the vendors' manuals and were compared with the rules of gitleaks and of
# GitHub's secret scanning; the patterns were written here. Only patterns whose prefix is in the
# text are run, each in one pass.

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal import redaction_rules_by_context
from ctxkit._internal.redaction_rule_and_hidden_characters import RedactionRule, compile_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit._internal.redaction_rule_and_hidden_characters import (
        Span,
        TextWithoutHiddenCharacters,
    )


class _VendorKeyPattern(NamedTuple):
    """A form of keys: their prefix, their pattern, and an example (see `RedactionRule`)."""

    hint: str
    pattern: str
    example: str
    must_look_random: bool = False
    """True where the rest must look random, as words may follow (`sk-learn-compatible-api`)."""


def _keys_with_prefixes(
    body: str, *prefixes: str, example_body: str = "{a36}"
) -> tuple[_VendorKeyPattern, ...]:
    return tuple(
        _VendorKeyPattern(
            p, rf"{re.escape(p)}(?P<body>{body})", f"{p}{example_body}", must_look_random=True
        )
        for p in prefixes
    )


def _fixed_length_key(
    prefix: str, body: str, example_body: str, *, word: str = r"\w-"
) -> _VendorKeyPattern:
    """Return the form of keys of a fixed length, with no word character after them."""
    return _VendorKeyPattern(
        prefix, rf"{re.escape(prefix)}{body}(?![{word}])", f"{prefix}{example_body}"
    )


_DASHED = r"[A-Za-z0-9_-]{10,}+"
_DOTTED = r"[A-Za-z0-9_.-]{16,}+"
VENDOR_KEYS: tuple[_VendorKeyPattern, ...] = (
    *_keys_with_prefixes(
        _DASHED,
        *(
            "sk-",
            "rk-",
            "csk-",
            "xai-",
            "pplx-",
            "nvapi-",
            "tvly-",
            "hf_",
            "api_org_",
            "gsk_",
            "r8_",
            "jina_",
        ),  # models
        *("lsv2_pt_", "lsv2_sk_", "pcsk_", "tgp_v1_", "fw_", "wandb_v1_", "AQVN"),
        *(
            "ghp_",
            "gho_",
            "ghu_",
            "ghs_",
            "ghr_",
            "github_pat_",
            "GR1348941",
        ),  # code hosts and registries
        *(
            "glpat-",
            "gldt-",
            "glrt-",
            "glcbt-",
            "glptt-",
            "glft-",
            "glimt-",
            "glagent-",
            "glsoat-",
            "gloas-",
        ),
        *(
            "ATATT3",
            "ATCTT3",
            "ATBB",
            "npm_",
            "pypi-",
            "rubygems_",
            "oy2",
            "dckr_pat_",
            "dckr_oat_",
            "AKCp",
        ),
        *("sgp_", "PMAK-", "fio-u-", "figd_", "figr_", "cio", "sl.", "CLOJARS_"),
        *(
            "AIza",
            "GOCSPX-",
            "LTAI",
            "AKID",
            "dapi",
            "doo_v1_",
            "dop_v1_",
            "dor_v1_",
            "sbp_",
            "sb_secret_",
        ),  # clouds
        *(
            "nfp_",
            "vcp_",
            "vci_",
            "vck_",
            "HRKU-",
            "tskey-",
            "pul-",
            "pnu_",
            "sha256~",
            "fo1_",
            "rnd_",
            "tk-us-",
        ),
        *("pscale_tkn_", "pscale_pw_", "pscale_oauth_", "sm_pat_"),
        *(
            "sk_live_",
            "sk_test_",
            "rk_live_",
            "rk_test_",
            "pk_live_",
            "pk_test_",
            "whsec_",
        ),  # payments and shops
        *(
            "shpat_",
            "shpca_",
            "shppa_",
            "shpss_",
            "sq0atp-",
            "sq0csp-",
            "EAAA",
            "FLWSECK",
            "shippo_live_",
            "EZAK",
        ),
        *(
            "xapp-",
            "xwfp-",
            "lin_api_",
            "lin_oauth_",
            "ntn_",
            "secret_",
            "duffel_live_",
            "tfp_",
            "rdme_",
        ),  # work
        *(
            "NRAK-",
            "NRII-",
            "NRJS-",
            "NRRA-",
            "glsa_",
            "sntryu_",
            "xkeysib-",
            "xsmtpsib-",
            "key-",
            "re_",
            "ico-",
        ),
        *("AGE-SECRET-KEY-1", "AGE-SECRET-KEY-PQ-1", "p8e-", "cflt", "phx_", "phc_", "sk_"),
    ),
    *_keys_with_prefixes(
        _DOTTED,
        "hvs.",
        "hvb.",
        "hvr.",
        "ya29.",
        "dp.pt.",
        "dp.st.",
        "dp.ct.",
        "dp.sa.",
        "dp.scim.",
        "dp.audit.",
    ),
    *_keys_with_prefixes(
        r"[A-Za-z0-9_+/=.-]{16,}+",
        "sntrys_",
        "glc_",
        "ops_",
        "FlyV1 ",
        "dt0c01.",
        "SG.",
        "1//0",
        "v1.0-",
    ),
    *_keys_with_prefixes(
        r"[A-Z0-9]{16}(?![A-Za-z0-9_])", "AKIA", "ASIA", "ABIA", "ACCA", example_body="{t15}7"
    ),
    *(
        _VendorKeyPattern(
            f"xox{kind}-",
            rf"xox{kind}-(?:\d{{6,}}|\d-)[\w-]{{3,}}+",
            f"xox{kind}-{{d12}}-{{d12}}-{{a24}}",
        )
        for kind in "abceoprs"
    ),  # Slack
    _fixed_length_key("hf_", "(?P<exact>[A-Za-z]{34})", "{l34}"),
    *(_fixed_length_key(h, r"(?P<exact>[\w-]{20})", "{a20}") for h in ("glpat-", "glrt-", "gldt-")),
    *(_fixed_length_key(h, "(?=[A-Z]*[2-7])[A-Z2-7]{16}", "{t15}7") for h in ("AKIA", "ASIA")),
    _fixed_length_key("sess-", "(?P<exact>[A-Za-z0-9]{40})", "{a40}"),  # OpenAI's sessions
    _fixed_length_key("pa-", r"(?P<exact>[\w-]{43})", "{a43}"),  # Voyage
    _fixed_length_key("BSA", r"(?P<exact>[\w-]{27})", "{a27}"),  # Brave
    _fixed_length_key("fc-", "[0-9a-f]{32}", "{h32}", word="0-9a-z-"),  # Firecrawl
    _fixed_length_key("e2b_", "[0-9a-f]{40}", "{h40}", word="0-9a-z"),  # E2B
    _fixed_length_key("llx-", "(?P<exact>[A-Za-z0-9]{48})", "{a48}"),  # LlamaIndex
    _fixed_length_key("SK", "[0-9a-f]{32}", "{h32}", word="0-9a-z"),  # Twilio
    _VendorKeyPattern("xprv", r"xprv[1-9A-HJ-NP-Za-km-z]{100,}+", "xprv9{c107}"),  # BIP 32
    _VendorKeyPattern("xoxe.xox", r"xoxe\.xox[bp]-[\w-]{16,}+", "xoxe.xoxp-1-{a40}"),
    _VendorKeyPattern("xoxd-", r"xoxd-[\w%+/=-]{16,}+", "xoxd-{a40}%3D"),
    _VendorKeyPattern(
        "eyJ",  # JSON Web Token, RFC 7519
        r"(?<![_-])eyJ[\w-]{6,}+\.eyJ[\w-]{6,}+\.[\w-]*+",
        "eyJ{a20}.eyJ{a30}.{w43}",
    ),
    _VendorKeyPattern(
        "eyJ",  # encrypted ones, RFC 7516
        r"(?<![_-])eyJ[\w-]{6,}+\.(?:[\w-]*+\.){3}[\w-]{6,}+",
        "eyJ{a20}.{w40}.{w16}.{w60}.{w22}",
    ),
    _VendorKeyPattern("EAA", r"EAA[A-Za-z0-9]{60,}+", "EAA{a90}"),  # Meta
    _VendorKeyPattern(
        "A3-",  # 1Password
        r"A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}\b",
        "A3-{u6}-{u11}-{u5}-{u5}-{u5}",
    ),
    _VendorKeyPattern("pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{32,}+", "pat{a14}.{h64}"),  # Airtable
    _VendorKeyPattern(
        "AAAAAAAAAA", r"A{20,22}[B-Za-z0-9%][A-Za-z0-9%]{60,}+", "A" * 22 + "B{a80}"
    ),  # X
    _VendorKeyPattern(
        "access-",  # Plaid
        r"access-(?:sandbox|development|production)-[0-9a-f-]{36}",
        "access-sandbox-{h8}-{h4}-{h4}-{h4}-{h12}",
    ),
    *(
        _VendorKeyPattern(h, re.escape(h) + r"[./A-Za-z0-9$=,+-]{20,}+", h + "12${a53}")
        for h in ("$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$apr1$", "$argon2")
    ),  # password hashes, crypt(5)
)


class _InfixKeyPattern(NamedTuple):
    """A form of keys with a fixed text inside: the patterns before it and from it on."""

    hint: str
    before: str
    pattern: str
    example: str


INFIX_KEYS = (
    _InfixKeyPattern(  # Telegram's bots
        ":AA",
        r"(?:(?<![A-Za-z0-9])|(?<=bot))\d{8,11}$",
        r":AA[\w-]{30,36}(?![\w-])",
        "{d9}:AA{w33}",
    ),
    _InfixKeyPattern(
        "-us", r"(?<![0-9a-z])\d{0,8}[0-9a-f]{32}$", r"-us\d{1,2}\b", "{h32}-us14"
    ),  # Mailchimp
    _InfixKeyPattern(  # client secrets of Entra
        "Q~", r"(?<![\w~.])\d{0,8}[\w~.]{3}\d$", r"Q~[\w~.-]{31,34}(?![\w~.-])", "{a3}8Q~{a33}"
    ),
    _InfixKeyPattern(  # Terraform
        ".atlasv1.", r"[A-Za-z0-9]{14}$", r"\.atlasv1\.[\w-]{50,}+", "{a14}.atlasv1.{a60}"
    ),
)
_BOT_TOKEN = re.compile(r"\.[\w-]{6}\.[\w-]{27,40}(?![\w-])")
_BOT_ID = re.compile(r"(?<![\w-])\d{0,8}[MNO][\w-]{23,27}$")
_NUMBER_BEFORE_KEY = re.compile(r"(?<![\w-])\d{1,12}$")
_SHORT_WORD = re.compile(r"(?<![\w-])\w{0,11}\d$")
"""A short word that ends in a digit may come before a key; in a long run any text occurs."""
_AWS_PAIR = re.compile(r"[A-Z0-9]{16}[\"']?[,;:|\t ]{1,3}[\"']?([A-Za-z0-9/+]{40})(?![\w/+=])")
"""An AWS key id with the secret key beside it, as in a CSV of the AWS console."""


def find_vendor_keys(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    """Yield the spans of keys of a published form."""
    for rule in SECRET_PATTERN_RULES:
        yield from rule.find(view)


def _find_vendor_key(key: _VendorKeyPattern, view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    text, hint = view.text, key.hint
    at = text.find(hint)
    while at >= 0:
        hit = view.match(compile_once(key.pattern), at) if _is_start(view, at, hint) else None
        if hit and _is_key(key, hit):
            yield hit.start("body") if " " in hint else at, hit.end()  # streams end words there
        at = text.find(hint, hit.end() if hit else at + len(hint))


def _is_key(key: _VendorKeyPattern, hit: re.Match[str]) -> bool:
    """Return whether a match is a key; the rest after a prefix must not be a word."""
    exact = hit.groupdict().get("exact")
    if exact is not None:
        return redaction_rules_by_context.has_alternating_character_kinds(exact)
    return not key.must_look_random or _is_random_body(key.hint, hit["body"])


def _find_infix_key(key: _InfixKeyPattern, view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    at = view.text.find(key.hint)
    while at >= 0:
        hit = view.match(compile_once(key.pattern), at)
        start = view.match_before(compile_once(key.before), at, 40) if hit else None
        if hit and start is not None:
            yield start, hit.end()
        at = view.text.find(key.hint, at + len(key.hint))


def _find_bot_token(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    """Yield the tokens of Discord's bots."""
    for hit in _BOT_TOKEN.finditer(view.text):
        start = view.match_before(_BOT_ID, hit.start(), 40)
        if start is not None:
            yield start, hit.end()


def _find_aws_pair(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    for hint in ("AKIA", "ASIA"):
        for pair in _AWS_PAIR.finditer(view.text) if hint in view.text else ():
            if view.text[pair.start() - 4 : pair.start()] == hint:
                yield pair.span(1)


def _is_start(view: TextWithoutHiddenCharacters, at: int, hint: str) -> bool:
    """Return True where a key may begin: not within a word, but after a number, the escape of a
    character, or an escape sequence.
    """
    before = view.text[at - 1 : at]
    if not (before.isascii() and before.isalnum()) or view.is_boundary(at):
        return True
    form = _NUMBER_BEFORE_KEY if hint.isalnum() else _SHORT_WORD
    return before.isdigit() and bool(form.search(view.text, max(at - 16, 0), at))


def _is_random_body(prefix: str, body: str) -> bool:
    """Return whether the rest of a key looks random; after a short prefix it must be longer."""
    min_chars = 14 if len(prefix) <= 3 and prefix not in ("sk-", "hf_") else 10
    if len(prefix) <= 3 and prefix not in ("sk-", "hf_", "SG.") and not re.search(r"\d", body):
        return False
    return len(body) >= min_chars and redaction_rules_by_context.looks_random(body)


def _make_example(key: _VendorKeyPattern) -> str:
    word, space, body = key.example.rpartition(" ")
    return f"{word}{space}«{body}»"


SECRET_PATTERN_RULES = (
    *(
        RedactionRule(
            f"key {k.hint} {i}", partial(_find_vendor_key, k), _make_example(k), hint=k.hint
        )
        for i, k in enumerate(VENDOR_KEYS)
    ),
    *(
        RedactionRule(f"key {k.hint}", partial(_find_infix_key, k), f"«{k.example}»", hint=k.hint)
        for k in INFIX_KEYS
    ),
    RedactionRule("key of a Discord bot", _find_bot_token, "«M{a23}.{a6}.{a27}»", hint="."),
    RedactionRule("AWS pair", _find_aws_pair, "AKIA{t16},«{b40}»", hint="IA"),
)

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_LINE_BREAKS = re.compile(r"(?:\\+[nr]|[\r\n])+")
_LINE_PREFIX = re.compile(r"^[ \t]*(?:\d+[ \t:|]+|[>|#*+-]+[ \t]*)?[\"']?")
"""Text before a line that is quoted, numbered or indented."""
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]*[\"',]*[ \t]*$")
_HEADER = re.compile(r"[A-Z][\w-]{1,30}: ")
_PUTTY = re.compile(
    r"Private-Lines: \d{1,3}(?:\\+[nr]|[\r\n])+((?:[A-Za-z0-9+/=]{16,}+(?:\\+[nr]|[\r\n])*)+)"
)
_OPEN_PUTTY = re.compile(r"Private-Lines:[ \d]*+(?:\\++[nr]?|[\r\nA-Za-z0-9+/=])*")
_JWK = re.compile(r"\"(?:d|p|q|dp|dq|qi|k)\\*\"\s{0,4}:\s{0,4}\\*\"([\w-]{22,}+)")
_MIN_FIRST_LINE = 32
"""Characters of the first line of a block without an end; words have fewer."""
_BEFORE_LINE = r"[ \t]*+(?:\d++[ \t:|]++|[>|#*-]++[ \t]*+)?"
_LINE = re.compile(_BEFORE_LINE + r"(?P<body>[A-Za-z0-9+/]{16,}+={0,2})[ \t\r]*+(?:\\++r?)?$")
"""A line that may belong to a block."""
_SHORT_LINE = re.compile(r"[ \t]*+[A-Za-z0-9+/=]{1,15}[ \t\r]*+(?:\\++r?)?$")
"""The last line of a block: its rest, or a checksum."""
_OPEN_LINE = re.compile(r"[ \t]*+(?:[A-Za-z0-9+/=]*+\r?|-.*)$")
"""A line that may continue as a line of a block or its end."""
_BOUNDARY = re.compile(r"[ \t]*+-{4,5} ?(?:BEGIN|END) ")
"""The first and the last line of a block of any kind."""
_FULL_ROW = re.compile(rf"\n{_BEFORE_LINE}[A-Za-z0-9+/]{{64}}")
_FULL_ROW_IN_JSON = (
    re.compile(rf"\\n{_BEFORE_LINE}[A-Za-z0-9+/]{{64}}"),
    re.compile(r"\"[A-Za-z0-9+/]{64}[A-Za-z0-9+/=]{0,8}\\"),
)
_FULL_LINES = (64, 70)
"""Characters of a full line of a block, in all programs."""
_MAX_LINE = 120
"""Characters of a line with the text before it."""
_MAX_LINES = 100
"""Lines of the longest private key (RSA of 8,192 bits has 99); more lines are other data."""
_OTHER_DATA = re.compile(
    "iVBORw0KGgo|/9j/|R0lGOD|UklGR|UEsDB|H4sI|JVBERi0|PD94bWw|PHN2Zy|AAAAB3NzaC1"
)
"""First characters of images, archives, pages and public SSH keys in base64."""


# A line of a private key block has 64 or 70 characters of base64. Where a text has neither the
# beginning nor the end of the block, lines of these lengths count as those of a private key, unless
# the text around them shows a certificate, a public key or an image.
def _find_blocks(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    """Yield the blocks of private keys; a BEGIN line alone does not count."""
    text, at = view.text, view.text.find("-----BEGIN ")
    while at >= 0:
        begin = _BEGIN.match(text, at)
        next_start = at + 11
        if begin:
            end = _end_of_whole_block(text, begin.end()) or _end_of_truncated_block(
                text, begin.end()
            )
            if end:
                yield at, end
                next_start = end
        at = text.find("-----BEGIN ", next_start)


def _find_putty_keys(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    yield from (hit.span(1) for hit in _PUTTY.finditer(view.text))


def _find_web_keys(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    """Yield the private parameters of JSON Web Keys (RFC 7517)."""
    yield from (hit.span(1) for hit in _JWK.finditer(view.text))


def _end_of_whole_block(text: str, start: int) -> int | None:
    """Return the end of a block with an END line and nothing but a key before it; else None."""
    dashes = text.find("-----", start)
    end = _END.match(text, dashes) if dashes >= 0 else None
    if end is None:
        return None
    lines = _LINE_BREAKS.split(text[start:dashes])
    body = [_LINE_PREFIX.sub("", line) for line in lines]
    has_key = any(len(line.strip()) > 3 for line in body)
    return end.end() if has_key and all(map(_is_key_line, body)) else None


def _is_key_line(line: str) -> bool:
    return bool(
        _BASE64_LINE.match(line)
        or _HEADER.match(line)
        or all(map(_BASE64_LINE.match, line.split()))
    )


def _end_of_truncated_block(text: str, start: int) -> int | None:
    """Return the end of the lines of a key without an END line; None where there is no line."""
    end, at = None, start
    while gap := _LINE_BREAKS.match(text, at):
        after = _LINE_BREAKS.search(text, gap.end())
        stop = after.start() if after else len(text)
        line = _LINE_PREFIX.sub("", text[gap.end() : stop])
        if _BASE64_LINE.match(line) and (len(line) >= _MIN_FIRST_LINE or end is not None):
            end = stop
        elif not (_HEADER.match(line) and end is None):
            break
        at = stop
    return end


def _find_key_lines(view: TextWithoutHiddenCharacters) -> Iterator[Span]:
    """Yield runs of key lines whose block does not begin in the text.

    State: the current run of full lines, and the text before it. A line of another kind ends the
    run; the text around decides whether it is a private key. One pass over the lines.
    """
    text, before = view.text, ""
    if not _may_have_key_lines(text):
        return
    run: list[re.Match[str]] = []
    run_end = 0
    for start, end in _iter_lines(text):
        if start == end:
            continue
        hit = _LINE.match(text, start, end) if end - start <= _MAX_LINE else None
        if hit:
            run.append(hit)
            run_end = end
        elif run and _SHORT_LINE.match(text, start, end):
            run_end = end
        elif run or not _HEADER.match(text, start, end):
            after = text[start : start + _MAX_LINE].lstrip(" \t>|#*+")
            if run and _is_private(run, before, after):
                yield run[0].start("body"), run_end if _END.match(after) else run[-1].end("body")
            before, run = text[max(start, end - 60) : end], []
    if run and _is_private(run, before, ""):
        yield run[0].start("body"), run[-1].end("body")


def _may_have_key_lines(text: str) -> bool:
    """Return False where a quick check excludes key lines in a text."""
    forms = _FULL_ROW_IN_JSON if "\\n" in text else ()
    return (
        "-----END " in text
        or bool(_FULL_ROW.match("\n" + text[:_MAX_LINE]))
        or any(form.search(text) for form in (_FULL_ROW, *forms))
    )


def _iter_lines(text: str) -> Iterator[Span]:
    """Yield the spans of lines of a text; escaped ends of line in JSON count, too."""
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
    """Return whether lines of base64 are those of a private key.

    Args:
        run: the lines.
        before: the line before them, without headers of a block; empty: there is none.
        after: the line that follows.
    """
    bodies = [hit["body"] for hit in run]
    # a diff has a plus before each line
    bodies = [b[1:] if b[0] == "+" and len(b) - 1 in _FULL_LINES else b for b in bodies]
    first = bodies[0]
    if _END.match(after):
        return redaction_rules_by_context.looks_random(first)
    if _BOUNDARY.search(before) or _BOUNDARY.match(after) or _OTHER_DATA.match(first):
        return False
    size = len(first)
    is_block = len(run) <= _MAX_LINES and size in _FULL_LINES and len(bodies[-1]) <= size
    return (
        is_block
        and all(len(b) == size for b in bodies[:-1])
        and all(map(_is_random_base64, bodies))
    )


def _is_random_base64(body: str) -> bool:
    """Return whether base64 is random: no hexadecimal checksum, no path and no long name."""
    return (
        body != body.lower()
        and body != body.upper()
        and redaction_rules_by_context.has_alternating_character_kinds(body)
    )


def find_unfinished_key_block(text: str) -> int | None:
    """Return the start of a block that is still open at the end of the text; None without one."""
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
    lines = [_LINE_PREFIX.sub("", line) for line in _LINE_BREAKS.split(text[begin.end() :])[:-1]]
    is_key = all(
        not x.strip() or _HEADER.match(x) or (len(x) >= 16 and _BASE64_LINE.match(x)) for x in lines
    )
    return at if is_key else _find_open_lines(text)


def _find_open_lines(text: str) -> int | None:
    """Return the start of the lines at the end of the text that may become those of a key."""
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


KEY_BLOCK_RULES = (
    RedactionRule(
        "block of a private key",
        _find_blocks,
        "«-----BEGIN RSA PRIVATE KEY-----\n{b64}\n{b64}\n{b20}==\n-----END RSA PRIVATE KEY-----»",
        "«-----BEGIN OPENSSH PRIVATE KEY-----\n{b70}\n{b70}»",
        hint="-----BEGIN ",
    ),
    RedactionRule(
        "lines of a block",
        _find_key_lines,
        "«{b64}»",
        "«{b70}\n{b70}\n{b24}»",
        "«{b64}\n{b20}==»\n-----END PRIVATE KEY-----",
        is_whole_line=True,
    ),
    RedactionRule(
        "PuTTY key",
        _find_putty_keys,
        "Private-Lines: 2\n«{b64}\n{b40}»\nPrivate-MAC: 0",
        hint="Private-Lines:",
    ),
    RedactionRule(
        "JSON Web Key",
        _find_web_keys,
        '{"kty": "OKP", "crv": "Ed25519", "d": "«{w43}»"}',
        hint="kty",
    ),
)
