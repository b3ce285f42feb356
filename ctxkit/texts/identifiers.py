"""Names that a summary must not lose, such as paths, hashes, URLs: how they are found
and audited.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Identifiers = Literal["strict", "off", "custom"]

STRICT = (
    "Write every opaque identifier exactly as it stands in the conversation, never shortened or"
    " rebuilt: UUIDs, hashes, ids, host names, IP addresses, ports, URLs and file names."
)
_FOCUS = "Additional focus:\n"

_QUOTED = re.compile(r"`([^`\n]{1,200})`")
_URL = re.compile(r"https?://[^\s\"'<>)\]}`]{1,500}")
_HEX = re.compile(r"\b[0-9a-f]{7,40}\b", re.IGNORECASE)
_UPPER = re.compile(r"\b[A-Z][A-Z0-9_]{2,80}\b")
_PATH = re.compile(r"(?<![\w./-])~?(?:/?[\w.-]{1,100})?(?:/[\w.-]{1,100}){1,30}")
_INNER_PATH = re.compile(r"\b(?:/[\w.-]{1,100}){1,30}")
_DOTTED = re.compile(r"(?<![\w.-])[\w-]{1,80}(?:\.[\w-]{1,80}){1,20}\b")
_SECRET = re.compile(
    r"\b(?:sk-|gh[a-z]_|github_pat_|xox[a-z]-|AKIA|ASIA|Bearer\s+|(?:password|token|secret|api_?key)=)[\w./+=-]{1,500}",
    re.IGNORECASE,
)
_EXACT = (
    re.compile(r"\b[0-9A-Fa-f]{8,}\b"),
    _URL,
    re.compile(r"(?<![\w./])(?:/[\w.-]{1,100}){2,30}"),
    re.compile(r"\b[A-Za-z]:\\[\w\\.-]{1,300}"),
    re.compile(r"(?<![\w.-])[\w.-]{1,100}\.[A-Za-z]{2,20}:\d{2,5}\b|\blocalhost:\d{2,5}\b"),
    re.compile(r"\b\d{6,}\b"),
)
_FILE_OR_TICKET = re.compile(
    r"(?<![\w./-])(?:[\w.-]{1,100}/){1,30}[\w-][\w.-]{0,99}\.[A-Za-z]\w{0,7}\b|\b[A-Z]{2,10}-\d{1,9}\b"
)
_WORD = re.compile(r"[^\W_]{3,}")


def instructions(policy: Identifiers = "strict", custom: str = "", focus: str = "") -> str:
    """Return what a summariser is told about identifiers and focus (Fased's identifier policy).

    `off` says nothing; `custom` says `custom` instead, or the strict text where that is blank.
    """
    text = {"strict": STRICT, "off": "", "custom": custom.strip() or STRICT}[policy]
    focus = focus.strip()
    if not focus:
        return text
    return f"{text}\n\n{_FOCUS}{focus}" if text else _FOCUS + focus


def found(text: str, *, limit: int = 50, inner_paths: bool = False) -> tuple[str, ...]:
    """Return identifiers of a text in order of their kinds: quoted, URLs, hashes, constants, paths,
    dotted names.

    Args:
        text: what is searched.
        limit: how many at most.
        inner_paths: as Tyrum's program does, find of a path only what follows its first part
            (`/routes/api.ts`).
    """
    path = _INNER_PATH if inner_paths else _PATH
    out: dict[str, None] = {}
    for pattern in (_QUOTED, _URL, _HEX, _UPPER, path, _DOTTED):
        for match in pattern.finditer(text):
            name = (match[1] if pattern.groups else match[0]).strip()
            if len(name) >= 3:
                out.setdefault(name)
                if len(out) >= limit:
                    return tuple(out)[:limit]
    return tuple(out)


def files(names: Iterable[str], limit: int = 20) -> tuple[str, ...]:
    """Return those identifiers that look like files: with a slash or a dot (URLs too, as
    in Tyrum).
    """
    return tuple(n for n in names if "/" in n or "." in n)[:limit]


def exact(texts: Sequence[str], limit: int = 12) -> tuple[str, ...]:
    """Return what an audit asks for (OpenClaw): some names of the last ten texts, none that looks
    like a key.
    """
    out: dict[str, None] = {}
    for text in texts[-10:]:
        public = _SECRET.sub(" ", text)
        for pattern in _EXACT:
            for hit in pattern.findall(public):
                name = hit.rstrip(".,;:)")
                if len(name) >= 4:
                    out.setdefault(name)
    return tuple(out)[:limit]


def lost(names: Iterable[str], summary: str) -> tuple[str, ...]:
    """Return the names that a summary does not hold; hexadecimal ones are compared without case."""
    folded = summary.casefold()
    return tuple(
        n for n in names if n not in summary and not (_HEX.fullmatch(n) and n.casefold() in folded)
    )


def invented(summary: str, said: str, limit: int = 12) -> tuple[str, ...]:
    """Return names in a summary that nobody said: paths, addresses, hashes, long numbers,
    tickets.
    """
    folded = said.casefold()
    names = dict.fromkeys((*exact([summary], limit=200), *_FILE_OR_TICKET.findall(summary)))
    return tuple(n for n in names if n.casefold() not in folded)[:limit]


def reflected(ask: str, summary: str) -> bool:
    """Say whether a summary still speaks of the last request: two of its first 12 words, or one
    where it has few.
    """
    words = list(dict.fromkeys(w.casefold() for w in _WORD.findall(ask)))[:12]
    if not words:
        return True
    folded = summary.casefold()
    return sum(w in folded for w in words) >= (2 if len(words) >= 3 else 1)


def audit(
    summary: str,
    *,
    sections: Iterable[str] = (),
    names: Iterable[str] = (),
    ask: str = "",
    strict: bool = True,
) -> tuple[str, ...]:
    """Return why a summary is not good enough, in OpenClaw's words; an empty tuple where it is.

    Args:
        summary: the model's own text, before anything is added to it.
        sections: headings that must stand as lines of their own.
        names: identifiers that must survive, asked for only where `strict`.
        ask: the last request of the user.
        strict: the identifier policy is `strict`.
    """
    rows = {row.strip() for row in summary.splitlines()}
    why = [f"missing_section:{s}" for s in sections if s not in rows]
    gone = lost(names, summary) if strict else ()
    if gone:
        why.append("missing_identifiers:" + ",".join(gone[:3]))
    if not reflected(ask, summary):
        why.append("latest_user_ask_not_reflected")
    return tuple(why)
