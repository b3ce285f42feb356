"""Secrets that a place tells: in URLs, netrc and pgpass files, after options of commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit.redaction import looks
from ctxkit.redaction.named_secrets import places

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_PGPASS = re.compile(
    r"(?m)^[\w.*-]{1,200}+:(?:\d{2,5}|\*):[^:\s]{1,100}+:[^:\s]{1,100}+:(\S{6,300})$"
)
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


def spans(text: str, low: str) -> Iterator[tuple[int, int]]:
    """Yield the secrets; `low` is the text in small letters."""
    at = text.find("://")
    while at >= 0:
        yield from _login(text, at)
        at = text.find("://", at + 3)
    for start, word in places(low, ("login",)):
        hit = _NETRC.match(text, start + len(word))
        if (
            hit
            and not looks.code(hit[1])
            and not looks.placeholder(hit[1])
            and hit[1].lower() not in _MANUAL
        ):
            yield hit.span(1)
    for start, word in places(low, _ENTER):
        hit = _ENTERED.match(text, start + len(word))
        if hit and looks.machine_made(hit[1]):
            yield hit.span(1)
    if ":" in text:
        yield from (m.span(1) for m in _PGPASS.finditer(text) if looks.chosen(m[1]))
    yield from _commands(text)


def _login(text: str, at: int) -> Iterator[tuple[int, int]]:
    hit = _LOGIN.match(text, at)
    if hit is None:
        return
    if hit["alone"] is not None:
        if text[max(at - 5, 0) : at].lower().endswith(("http", "https")) and looks.random(
            hit["alone"]
        ):
            yield hit.span("alone")
        return
    password = hit["password"]
    known = password.lower() in _MANUAL or "[" in password or password == hit["user"]
    if not known and not looks.code(password) and not looks.placeholder(password):
        yield hit.span("password")


def _commands(text: str) -> Iterator[tuple[int, int]]:
    over = 0
    for at, word in sorted(places(text, _COMMANDS)):
        line = _ARGUMENTS.match(text, max(at + len(word) - 1, over))
        if at < over or line is None:
            continue
        over = line.end()
        for hit in _OPTION.finditer(text, *line.span()):
            if looks.chosen(hit[1]):
                yield hit.span(1)
