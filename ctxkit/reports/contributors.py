"""The largest messages in the window of the last call, each to be opened and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.composition import report, window
from ctxkit.display.markup import escape, line
from ctxkit.messages import Message, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from ctxkit.composition import ContextReport, Contributor
    from ctxkit.session import Session

_CHARS = 6_000


def contributors(session: Session) -> str:
    """Return the ten largest messages as HTML: size, origin, beginning; folded away, their text up
    to a bound.
    """
    made = report(session)
    if not made.contributors:
        return ""
    shown = {s.message.id: s.message for s in window(session, made.call).shown}
    head = f"<p>{escape(_told(made))}</p>"
    return head + "".join(_one(c, shown[c.id], made.prompt_tokens) for c in made.contributors)


def _one(contributor: Contributor, message: Message, whole: int) -> str:
    share = f" ({contributor.tokens / whole:.1%})" if whole else ""
    failed = ", failed" if message.is_error else ""
    was = contributor.raw_tokens
    changed = f" (of {was:,}, {contributor.changed_by})" if was > contributor.tokens else ""
    title = f"{contributor.tokens:,} tokens{changed}{share} · {line(contributor.name, 100)}{failed}"
    text = _text(message)
    more = f"\n… the first {_CHARS:,} of {len(text):,} characters" if len(text) > _CHARS else ""
    body = f'<pre tabindex="0">{escape(text[:_CHARS] + more)}</pre>'
    return f"<details><summary>{escape(title, 130)}</summary>{body}</details>"


def _text(message: Message) -> str:
    blocks = [p.text for p in message.parts if isinstance(p, (Text, Thinking))]
    blocks += [
        f"{p.name} {p.arguments if p.raw is None else p.raw}"
        for p in message.parts
        if isinstance(p, ToolCall)
    ]
    return "\n\n".join(blocks)


def _told(made: ContextReport) -> str:
    window = f"{made.full:.0%} of a window of {made.limit:,} ({made.limit_source})"
    return f"The prompt had {made.prompt_tokens:,} tokens ({made.prompt_source}), {window}."
