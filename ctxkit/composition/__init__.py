"""What fills the window at a call: the context report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.composition.groups import GONE, GROUPS, LATER, TOOLS, UNSEEN, share, shares
from ctxkit.composition.groups_by_call import Layers, layers, scaled, schema_chars
from ctxkit.composition.prompt_contents import PromptWindow, ShownMessage, window
from ctxkit.composition.reports import ContextReport, Contributor, WindowPart
from ctxkit.composition.sections import Section, sections
from ctxkit.display.markup import line
from ctxkit.faces import listed, renamed
from ctxkit.messages import Message, Source, Text, Thinking, ToolCall
from ctxkit.readers.given import of_session
from ctxkit.sizes.windows import window_of
from ctxkit.subjects import answered, what
from ctxkit.titles import title_of
from ctxkit.tokens.lengths import measure

if TYPE_CHECKING:
    from ctxkit.session import Call, Session
    from ctxkit.tokens.counters import Counter

__all__ = [
    "GROUPS",
    "ContextReport",
    "Contributor",
    "Layers",
    "PromptWindow",
    "Section",
    "WindowPart",
    "layers",
    "report",
    "sections",
    "window",
]
__dir__ = listed(__all__)
if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Part": "WindowPart", "Window": "PromptWindow"})

DEFAULT_LIMIT = 200_000
"""The window of a model that neither the log nor the table of prices knows; marked estimated."""
_TOP = 10


@of_session
def report(
    session: Session, call: int | None = -1, *, counter: Counter | None = None
) -> ContextReport:
    """Return what fills the window at a call.

    The parts add up to the prompt that went out. Of a replay and a live session they are what
    `session.sent(call)` gives, so that what a rule left out is not among them and what it shortened
    has both sizes. Of a record, sizes are anchored on the usage that it recorded.

    Args:
        session: any session, the path of a log, or a list of messages.
        call: number of the call, negatives from the end; None for the prompt that comes next. A
            session without calls is reported as it would be sent.
        counter: counts of a record what usage does not tell; by default the exact o200k_base where
            its vocabulary is here. A replay and a live session were counted by their rules'
            counter.

    Raises:
        BadArguments: the session has no such call.
    """
    at = None if call is None or (call == -1 and not session.calls) else session.call(call)
    index = None if at is None else at.index
    held = window(session, index, counter)
    parts = _parts(held.shown)
    if held.excess:
        parts = _scaled(parts, held.visible - held.excess)
    for tool, tokens in zip(session.tools, held.schemas, strict=True):
        parts.append(
            WindowPart(TOOLS, tool.name, tokens, tokens, schema_chars(tool), 0, "estimated")
        )
    if held.rest:
        parts.append(WindowPart(UNSEEN, "", held.rest, held.rest, None, 0, held.source))
    if held.later:
        parts.append(WindowPart(LATER, "", held.later, held.later, None, 0, held.source))
    if held.fell:
        told = f"{held.excess:,} tokens fewer than shown"
        parts.append(WindowPart(GONE, told, 0, held.excess, None, 0, held.source))
    limit, limit_source = _limit(session, at)
    return ContextReport(
        session=session.id,
        call=index,
        turn=None if at is None else at.turn,
        agent=session.agent if at is None else at.agent,
        model=_model(session, at),
        limit=limit,
        limit_source=limit_source,
        prompt_tokens=held.prompt,
        prompt_source=held.prompt_source,
        residue=held.rest,
        excess=held.excess,
        messages_n=len(held.shown),
        counter=held.counter,
        count_error=held.error,
        parts=tuple(sorted(parts, key=lambda p: (GROUPS.index(p.group), -p.tokens))),
        contributors=_contributors(held.shown, session.cwd),
        notes=session.notes,
        title=title_of(session),
    )


def _parts(shown: tuple[ShownMessage, ...]) -> list[WindowPart]:
    """Parts of what was sent, by group and name."""
    rows: dict[tuple[str, str], list[int]] = {}
    estimated: set[tuple[str, str]] = set()
    for each in shown:
        found = shares(each.message, each.tokens)
        before = share(each.raw_tokens, [p.weight for p, _ in found])
        keys = set()
        for (piece, n), m in zip(found, before, strict=True):
            key = (piece.group, piece.name)
            row = rows.setdefault(key, [0, 0, 0, 0])
            row[0], row[1], row[2] = row[0] + n, row[1] + piece.raw(m), row[2] + piece.chars
            keys.add(key)
        for key in keys:
            rows[key][3] += 1
        if each.source != "derived":
            estimated |= keys
    return [
        WindowPart(*key, n, m, c, k, "estimated" if key in estimated else "derived")
        for key, (n, m, c, k) in rows.items()
    ]


def _scaled(parts: list[WindowPart], total: int) -> list[WindowPart]:
    """The parts made smaller together: more tokens were counted than the provider billed."""
    before: dict[str, int] = {}
    for part in parts:
        before[part.group] = before.get(part.group, 0) + part.tokens
    out = []
    for group, tokens in scaled(before, total).items():
        members = [p for p in parts if p.group == group]
        shares = share(tokens, [p.tokens for p in members])
        raws = [
            max(p.raw_tokens * tokens // max(before[group], 1), n)
            for p, n in zip(members, shares, strict=True)
        ]
        out += [
            replace(p, tokens=n, raw_tokens=r)
            for p, n, r in zip(members, shares, raws, strict=True)
        ]
    return out


def _contributors(shown: tuple[ShownMessage, ...], folder: str | None) -> tuple[Contributor, ...]:
    calls = {id(m): c for m, c in answered(s.message for s in shown)}
    largest = sorted((s for s in shown if s.message.parts and s.tokens), key=lambda s: -s.tokens)[
        :_TOP
    ]
    return tuple(
        Contributor(
            position=s.position,
            id=s.message.id,
            role=s.message.role,
            tool=s.message.tool,
            tokens=s.tokens,
            raw_tokens=s.raw_tokens,
            chars=measure(s.message)[0],
            preview=preview(s.message),
            name=what(s.message, calls.get(id(s.message)), folder),
            changed_by=s.changed_by,
        )
        for s in largest
    )


def preview(message: Message) -> str:
    """One line of what a message says, bounded and without control characters; not escaped."""
    for part in message.parts:
        if isinstance(part, (Text, Thinking)) and part.text.strip():
            return line(part.text, 100)
        if isinstance(part, ToolCall):
            told = part.raw
            if told is None:
                told = ", ".join(f"{k}={str(v)[:60]!r}" for k, v in part.arguments.items())
            return line(f"{part.name}({told})", 100)
    return f"[{message.kind or 'no text'}]"


def _model(session: Session, at: Call | None) -> str | None:
    if at is not None:
        return at.message.model or session.model
    return next((m.model for m in reversed(session.messages) if m.model), session.model)


def _limit(session: Session, at: Call | None) -> tuple[int, Source]:
    model = _model(session, at)
    window = window_of(session, model, at.message if at else Message(role="user"))
    if window.tokens is None:
        prompts = (
            c.message.usage.prompt_tokens or 0
            for c in session.calls
            if c.message.usage and c.message.kind != "turn"
        )
        return max(DEFAULT_LIMIT, *prompts, 0), "estimated"
    return window.tokens, "recorded" if window.source == "recorded" else "derived"
