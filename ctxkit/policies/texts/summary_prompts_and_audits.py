"""Prompts of summarisers (sections, transcripts, identifiers), and audits of their summaries."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.session.messages import Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.messages import Message

PI_SECTIONS = (
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
PI_TURN_SECTIONS = ("## Original Request", "## Early Progress", "## Context for Suffix")
FUSERAFT_SECTIONS = ("## Completed", "## Open Questions", "## Remaining Work", "## Key Findings")
OPENCLAW_SECTIONS = (
    "## Decisions",
    "## Open TODOs",
    "## Constraints/Rules",
    "## Pending user asks",
    "## Exact identifiers",
)


def write_pi_transcript(messages: Iterable[Message], result_chars: int = 2000) -> str:
    """Write messages as Pi does, with tool results cut to `result_chars`.

    Args:
        messages: the messages to summarise.
        result_chars: characters of a tool result that are written.

    Returns:
        One paragraph a part of a message, as the prompt of Pi's summariser has it.
    """
    return "\n\n".join(row for m in messages for row in _pi_rows(m, result_chars))


def _pi_rows(m: Message, result_chars: int) -> list[str]:
    text = get_text_without_reasoning(m)
    if m.role == "tool":
        cut = len(text) - result_chars
        more = f"\n\n[... {cut} more characters truncated]" if cut > 0 else ""
        return [f"[Tool result]: {text[:result_chars]}{more}"]
    if m.role != "assistant":
        return [f"[User]: {text}"] if text else []
    thought = "\n".join(p.text for p in m.parts if isinstance(p, Thinking) and p.text)
    rows = [f"[Assistant thinking]: {thought}"] if thought else []
    rows += [f"[Assistant]: {text}"] if text else []
    calls = "; ".join(map(_call_text, m.tool_calls))
    return [*rows, f"[Assistant tool calls]: {calls}"] if calls else rows


def _call_text(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{k}={_json(v)}' for k, v in call.arguments.items())})"


def format_tool_result_for_ai_preset(text: str, head: int = 1200, tail: int = 600) -> str:
    """Return a tool result as in the summary prompt of `ai`; empty: `(empty output)`.

    Args:
        text: the result.
        head: characters to keep of its beginning.
        tail: characters to keep of its end.
    """
    return (
        message_content_and_truncation.truncate_middle(text, head, tail, "\n... (truncated) ...\n")
        or "(empty output)"
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def get_text_without_reasoning(message: Message) -> str:
    """Return the text of a message without reasoning; an image is `[image]`."""
    return message_content_and_truncation.replace_images_by_marker(message, "[image]")


def add_focus(instructions: str, focus: str) -> str:
    """Add a user's focus to the instructions of a summariser, as Pi and Fased do.

    Args:
        instructions: the summariser's instructions.
        focus: the user's words; empty: the instructions stay as they are.

    Returns:
        Instructions for the summariser, which are sent to the model as they are.
    """
    return f"{instructions}\n\nAdditional focus: {focus.strip()}" if focus.strip() else instructions


IdentifierPolicy = Literal["strict", "off", "custom"]

STRICT_INSTRUCTIONS = (
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


def format_identifier_instructions(
    policy: IdentifierPolicy = "strict", custom: str = "", focus: str = ""
) -> str:
    """Return the instructions about identifiers and focus (Fased's identifier policy).

    Args:
        policy: "strict" asks for exact identifiers, "off" says nothing about them, "custom" uses
            the text `custom`.
        custom: the text for "custom"; blank: as "strict".
        focus: what the summary should focus on; blank: nothing.
    """
    text = {
        "strict": STRICT_INSTRUCTIONS,
        "off": "",
        "custom": custom.strip() or STRICT_INSTRUCTIONS,
    }[policy]
    focus = focus.strip()
    if not focus:
        return text
    return f"{text}\n\n{_FOCUS}{focus}" if text else _FOCUS + focus


def find_identifiers(text: str, *, limit: int = 50, inner_paths: bool = False) -> tuple[str, ...]:
    """Return the identifiers of a text: quoted, URLs, hashes, constants, paths, dotted names.

    Args:
        text: the text.
        limit: maximum identifiers.
        inner_paths: find paths without their first part, as Tyrum's program (`/routes/api.ts`).
    """
    # A dict keeps the order of the first occurrence, by kind of identifier.
    path = _INNER_PATH if inner_paths else _PATH
    identifiers: dict[str, None] = {}
    for pattern in (_QUOTED, _URL, _HEX, _UPPER, path, _DOTTED):
        for match in pattern.finditer(text):
            name = (match[1] if pattern.groups else match[0]).strip()
            if len(name) >= 3:
                identifiers.setdefault(name)
                if len(identifiers) >= limit:
                    return tuple(identifiers)[:limit]
    return tuple(identifiers)


def select_file_identifiers(identifiers: Iterable[str], limit: int = 20) -> tuple[str, ...]:
    """Return the identifiers with a slash or a dot, which look like files (URLs too, as Tyrum).

    Args:
        identifiers: names and paths, in order of preference.
        limit: maximum number to return.
    """
    return tuple(n for n in identifiers if "/" in n or "." in n)[:limit]


def select_identifiers_to_audit(texts: Sequence[str], limit: int = 12) -> tuple[str, ...]:
    """Return the names that an audit checks (OpenClaw): of the last ten texts, no secrets.

    Args:
        texts: texts of messages, in order.
        limit: maximum number of names.
    """
    identifiers: dict[str, None] = {}
    for text in texts[-10:]:
        public = _SECRET.sub(" ", text)
        for pattern in _EXACT:
            for hit in pattern.findall(public):
                name = hit.rstrip(".,;:)")
                if len(name) >= 4:
                    identifiers.setdefault(name)
    return tuple(identifiers)[:limit]


def find_lost_identifiers(identifiers: Iterable[str], summary: str) -> tuple[str, ...]:
    """Return the names missing in a summary; hexadecimal ones are compared without case.

    Args:
        identifiers: names that the summary should have.
        summary: the summary.
    """
    folded = summary.casefold()
    return tuple(
        n
        for n in identifiers
        if n not in summary and not (_HEX.fullmatch(n) and n.casefold() in folded)
    )


def find_invented_identifiers(summary: str, source: str, limit: int = 12) -> tuple[str, ...]:
    """Return the names in a summary that its source lacks: paths, addresses, hashes, tickets.

    Args:
        summary: the summary.
        source: the text that it summarises.
        limit: maximum number of names.
    """
    folded = source.casefold()
    names = dict.fromkeys(
        (*select_identifiers_to_audit([summary], limit=200), *_FILE_OR_TICKET.findall(summary))
    )
    return tuple(n for n in names if n.casefold() not in folded)[:limit]


def reflects_request(request: str, summary: str) -> bool:
    """Return True where a summary has two of the first twelve words of a request.

    Args:
        request: the user's request; one of fewer than three words needs one of them.
        summary: the summary.
    """
    words = list(dict.fromkeys(w.casefold() for w in _WORD.findall(request)))[:12]
    if not words:
        return True
    folded = summary.casefold()
    return sum(w in folded for w in words) >= (2 if len(words) >= 3 else 1)


def audit_summary(
    summary: str,
    *,
    sections: Iterable[str] = (),
    identifiers: Iterable[str] = (),
    request: str = "",
    strict: bool = True,
) -> tuple[str, ...]:
    """Return the defects of a summary in OpenClaw's words; an empty tuple: there are none.

    Args:
        summary: the text of the model, before anything is added.
        sections: headings that must be lines of their own.
        identifiers: identifiers that the summary must hold, if `strict`.
        request: the last request of the user.
        strict: True for the identifier policy `strict`.
    """
    rows = {row.strip() for row in summary.splitlines()}
    problems = [f"missing_section:{s}" for s in sections if s not in rows]
    lost = find_lost_identifiers(identifiers, summary) if strict else ()
    if lost:
        problems.append("missing_identifiers:" + ",".join(lost[:3]))
    if not reflects_request(request, summary):
        problems.append("latest_user_ask_not_reflected")
    return tuple(problems)
