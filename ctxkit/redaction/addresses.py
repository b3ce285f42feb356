"""Secrets that a place tells: in URLs, netrc and pgpass files, after options of commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.redaction import looks
from ctxkit.redaction.named_secrets import places
from ctxkit.redaction.secret_rule import Rule, compile_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.redaction.visible_text import Span, VisibleText

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
    for at, _ in places(view.text, ("://",)):
        hit = _LOGIN.match(view.text, at)
        password = hit["password"] if hit else None
        if hit is None or password is None:
            continue
        is_named = password.lower() in _MANUAL or "[" in password or password == hit["user"]
        if not is_named and not looks.code(password) and not looks.placeholder(password):
            yield hit.span("password")


def _find_tokens(view: VisibleText) -> Iterator[Span]:
    """Yield what stands in the place of user and password of a URL of the web."""
    for at, _ in places(view.low, ("http://", "https://")):
        hit = _LOGIN.match(view.text, view.low.index("://", at))
        if hit and hit["alone"] and looks.random(hit["alone"]):
            yield hit.span("alone")


def _find_netrc(view: VisibleText) -> Iterator[Span]:
    for start, word in places(view.low, ("login",)):
        hit = _NETRC.match(view.text, start + len(word))
        if (
            hit
            and not looks.code(hit[1])
            and not looks.placeholder(hit[1])
            and hit[1].lower() not in _MANUAL
        ):
            yield hit.span(1)


def _find_entered(view: VisibleText) -> Iterator[Span]:
    for start, word in places(view.low, _ENTER):
        hit = _ENTERED.match(view.text, start + len(word))
        if hit and looks.machine_made(hit[1]):
            yield hit.span(1)


def _find_pgpass(view: VisibleText) -> Iterator[Span]:
    first = compile_once(_PGPASS).match(view.text)
    for hit in (first, *(m for form in _PGPASS_FORMS for m in form.finditer(view.text))):
        if hit and looks.chosen(hit[1]):
            yield hit.span(1)


def _find_options(view: VisibleText) -> Iterator[Span]:
    text, over = view.text, 0
    for at, word in sorted(places(text, _COMMANDS)):
        line = _ARGUMENTS.match(text, max(at + len(word) - 1, over))
        if at < over or line is None:
            continue
        over = line.end()
        for hit in _OPTION.finditer(text, *line.span()):
            if looks.chosen(hit[1]):
                yield hit.span(1)


RULES = (
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
