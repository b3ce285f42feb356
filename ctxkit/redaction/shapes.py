"""Keys that vendors mark by a prefix or a form of their own, each with where it is published.

The forms are facts, restated from the vendors' manuals and compared with the rules of gitleaks and
of GitHub's secret scanning; the patterns were written here. A prefix is cheap to look for, so only
the patterns whose prefix stands in the text are run, and each goes over it once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.redaction import looks

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shape(NamedTuple):
    """Keys of one form: a text that they begin with, and the pattern."""

    hint: str
    pattern: str
    judged: bool = False
    """True where words may follow (`sk-learn-compatible-api`): what follows must look random."""


def _prefixed(body: str, *prefixes: str) -> tuple[Shape, ...]:
    return tuple(Shape(p, rf"{re.escape(p)}(?P<body>{body})", judged=True) for p in prefixes)


_DASHED = r"[A-Za-z0-9_-]{10,}+"
_DOTTED = r"[A-Za-z0-9_.-]{16,}+"
SHAPES: tuple[Shape, ...] = (
    *_prefixed(
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
    *_prefixed(
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
    *_prefixed(
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
    *_prefixed(r"[A-Z0-9]{16}(?![A-Za-z0-9_])", "AKIA", "ASIA", "ABIA", "ACCA"),
    *(
        Shape(f"xox{kind}-", rf"xox{kind}-(?:\d{{6,}}|\d-)[\w-]{{3,}}+") for kind in "abceoprs"
    ),  # Slack
    Shape("hf_", r"hf_(?P<exact>[A-Za-z]{34})(?![\w-])"),
    *(Shape(h, rf"{h}(?P<exact>[\w-]{{20}})(?![\w-])") for h in ("glpat-", "glrt-", "gldt-")),
    Shape("AKIA", r"AKIA(?=[A-Z]*[2-7])[A-Z2-7]{16}(?![\w-])"),
    Shape("ASIA", r"ASIA(?=[A-Z]*[2-7])[A-Z2-7]{16}(?![\w-])"),
    Shape("sess-", r"sess-(?P<exact>[A-Za-z0-9]{40})(?![\w-])"),  # OpenAI's sessions
    Shape("pa-", r"pa-(?P<exact>[\w-]{43})(?![\w-])"),  # Voyage
    Shape("BSA", r"BSA(?P<exact>[\w-]{27})(?![\w-])"),  # Brave
    Shape("fc-", r"fc-[0-9a-f]{32}(?![0-9a-z-])"),  # Firecrawl
    Shape("e2b_", r"e2b_[0-9a-f]{40}(?![0-9a-z])"),  # E2B
    Shape("llx-", r"llx-(?P<exact>[A-Za-z0-9]{48})(?![\w-])"),  # LlamaIndex
    Shape("xprv", r"xprv[1-9A-HJ-NP-Za-km-z]{100,}+"),  # BIP 32
    Shape("xoxe.xox", r"xoxe\.xox[bp]-[\w-]{16,}+"),
    Shape("xoxd-", r"xoxd-[\w%+/=-]{16,}+"),
    Shape("services/T", r"services/T\w{6,}+/B\w{6,}+/\w{16,}+"),  # Slack's hooks
    Shape("api/webhooks/", r"api/webhooks/\d{10,}+/[\w-]{30,}+"),  # Discord's
    Shape("webhookb2/", r"webhookb2/[\w@/-]{30,}+"),  # Teams'
    Shape("eyJ", r"(?<![_-])eyJ[\w-]{6,}+\.eyJ[\w-]{6,}+\.[\w-]*+"),  # JSON Web Token, RFC 7519
    Shape("eyJ", r"(?<![_-])eyJ[\w-]{6,}+\.(?:[\w-]*+\.){3}[\w-]{6,}+"),  # encrypted ones, RFC 7516
    Shape("SK", r"SK[0-9a-f]{32}(?![0-9a-z])"),  # Twilio
    Shape("EAA", r"EAA[A-Za-z0-9]{60,}+"),  # Meta
    Shape("A3-", r"A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?[A-Z0-9]{5}(?:-[A-Z0-9]{5}){3}\b"),  # 1Password
    Shape("pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{32,}+"),  # Airtable
    Shape("AAAAAAAAAA", r"A{20,22}[B-Za-z0-9%][A-Za-z0-9%]{60,}+"),  # X
    Shape("access-", r"access-(?:sandbox|development|production)-[0-9a-f-]{36}"),  # Plaid
    *(
        Shape(h, re.escape(h) + r"[./A-Za-z0-9$=,+-]{20,}+")
        for h in ("$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$apr1$", "$argon2")
    ),  # password hashes, crypt(5)
)
INNER: tuple[tuple[str, str, str], ...] = (
    (":AA", r"(?<![A-Za-z0-9])\d{8,10}$", r":AA[\w-]{30,36}(?![\w-])"),  # Telegram's bots
    ("-us", r"(?<![0-9a-z])[0-9a-f]{32}$", r"-us\d{1,2}\b"),  # Mailchimp
    ("Q~", r"(?<![\w~.])[\w~.]{3}\d$", r"Q~[\w~.-]{31,34}(?![\w~.-])"),  # client secrets of Entra
    (".atlasv1.", r"[A-Za-z0-9]{14}$", r"\.atlasv1\.[\w-]{50,}+"),  # Terraform
)
"""Forms known by what stands within: that, what stands before it, and the pattern from it on."""
_DISCORD = re.compile(r"\.[\w-]{6}\.[\w-]{27,40}(?![\w-])")
_BOT = re.compile(r"(?<![\w-])[MNO][\w-]{23,27}$")
_ESCAPE = re.compile(r"(?:\\[nrt]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})$")
"""What a key may follow directly: the escape of a character."""
_PAIR = re.compile(r"[A-Z0-9]{16}[\"']?[,;:|\t ]{1,3}[\"']?([A-Za-z0-9/+]{40})(?![\w/+=])")
"""An id of AWS and the secret key beside it, as its console writes both to a CSV."""


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where keys of a published form stand."""
    for shape in SHAPES:
        at = text.find(shape.hint)
        while at >= 0:
            hit = _compiled(shape.pattern).match(text, at) if _begins(text, at) else None
            if hit and _counts(shape, hit):
                yield hit.span()
            at = text.find(shape.hint, hit.end() if hit else at + len(shape.hint))
    yield from _inner(text)


def _counts(shape: Shape, hit: re.Match[str]) -> bool:
    """Return True for a key; what has only its prefix and its length must not be a word."""
    exact = hit.groupdict().get("exact")
    if exact is not None:
        return looks.mixed(exact)
    return not shape.judged or _drawn(shape.hint, hit["body"])


def _inner(text: str) -> Iterator[tuple[int, int]]:
    for hint, before, after in INNER:
        at = text.find(hint)
        while at >= 0:
            hit = _compiled(after).match(text, at)
            start = _compiled(before).search(text, max(at - 40, 0), at) if hit else None
            if hit and start:
                yield start.start(), hit.end()
            at = text.find(hint, at + len(hint))
    for hit in _DISCORD.finditer(text):
        start = _BOT.search(text, max(hit.start() - 40, 0), hit.start())
        if start:
            yield start.start(), hit.end()
    for hint in ("AKIA", "ASIA"):
        for part in _PAIR.finditer(text) if hint in text else ():
            if text[part.start() - 4 : part.start()] == hint:
                yield part.span(1)


def _begins(text: str, at: int) -> bool:
    """Return True where a key may begin: not within a word, but after the escape of a character."""
    before = text[at - 1 : at]
    return not (before.isascii() and before.isalnum()) or bool(
        _ESCAPE.search(text, max(at - 6, 0), at)
    )


def _drawn(prefix: str, body: str) -> bool:
    """Return True for what a machine drew; after a short prefix it must be longer."""
    least = 14 if len(prefix) <= 3 and prefix not in ("sk-", "hf_") else 10
    if len(prefix) <= 3 and prefix not in ("sk-", "hf_", "SG.") and not re.search(r"\d", body):
        return False
    return len(body) >= least and looks.random(body)


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
