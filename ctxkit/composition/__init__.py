"""What fills the window at a call: the context report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.composition.groups import GONE, GROUPS, LATER, TOOLS, UNSEEN, pieces, share
from ctxkit.composition.layers import Layers, is_anchored, layers, prompt, scaled, schema_chars, unseen
from ctxkit.composition.reports import ContextReport, Contributor, Part
from ctxkit.composition.sections import Section, sections
from ctxkit.faces import listed
from ctxkit.frames.costs import Costs
from ctxkit.frames.fates import fates
from ctxkit.frames.lengths import measure
from ctxkit.markup import line
from ctxkit.messages import Message, Source, Text, Thinking, ToolCall
from ctxkit.readers.given import of_session
from ctxkit.sizes import Sizes, sizes

if TYPE_CHECKING:
    from ctxkit.session import Call, Session
    from ctxkit.tokens.counters import Counter

__all__ = ["GROUPS", "ContextReport", "Contributor", "Layers", "Part", "Section", "layers", "report", "sections"]
__dir__ = listed(__all__)

DEFAULT_LIMIT = 200_000
"""The window of a model that neither the log nor the table of prices knows; marked estimated."""
_TOP = 10


@of_session
def report(session: Session, call: int | None = -1, *, counter: Counter | None = None) -> ContextReport:
    """Return what fills the window at a call.

    Sizes are anchored on the recorded usage where there is any: the parts then sum up to the recorded prompt.

    Args:
        session: any session, the path of a log, or a list of messages.
        call: number of the call, negatives from the end; None for the prompt that comes next. A session without calls
            is reported as it would be sent.
        counter: counts what usage does not tell; by default the exact o200k_base where its vocabulary is here.

    Raises:
        BadArguments: the session has no such call.
    """
    at = None if call is None or (call == -1 and not session.calls) else session.call(call)
    index = None if at is None else at.index
    shown = session.view(index)
    sized = sizes(session, counter)
    originals = _originals(session, at)
    parts, visible = _parts(session, sized, shown, originals)
    rest, schemas, later = unseen(session, sized, index, visible)
    recorded = prompt(session, sized, index)
    excess = max(visible + rest + later + sum(schemas) - recorded, 0) if recorded is not None else 0
    if excess:
        parts = _scaled(parts, visible - excess)
    source: Source = "derived" if is_anchored(session) else "estimated"
    for tool, tokens in zip(session.tools, schemas, strict=True):
        parts.append(Part(TOOLS, tool.name, tokens, tokens, schema_chars(tool), 0, "estimated"))
    if rest:
        parts.append(Part(UNSEEN, "", rest, rest, None, 0, source))
    if later:
        parts.append(Part(LATER, "", later, later, None, 0, source))
    if index is not None and sized.unsent_at[index]:
        parts.append(Part(GONE, f"{excess:,} tokens fewer than shown", 0, excess, None, 0, source))
    limit, limit_source = _limit(session, at)
    return ContextReport(
        session=session.id,
        call=index,
        turn=None if at is None else at.turn,
        agent=session.agent if at is None else at.agent,
        model=_model(session, at),
        limit=limit,
        limit_source=limit_source,
        prompt_tokens=recorded if recorded is not None else visible + rest + later + sum(schemas),
        prompt_source="recorded" if recorded is not None else source,
        residue=rest,
        excess=excess,
        messages_n=len(shown),
        counter=sized.counter,
        count_error=sized.error,
        parts=tuple(sorted(parts, key=lambda p: (GROUPS.index(p.group), -p.tokens))),
        contributors=_contributors(session, sized, shown, originals),
        notes=session.notes,
    )


def _originals(session: Session, at: Call | None) -> dict[int, Message]:
    """By identity of a shortened or replaced message in the view: the message as it was written."""
    if not session.edits:
        return {}
    stop = len(session.path) if at is None else at.position
    upto = sum(not isinstance(e, Message) for e in session.path[:stop])
    by_id = {m.id: m for m in session.messages}
    touched = fates(session, upto).items()
    return {id(f.shown): by_id[first] for first, f in touched if f.shown is not None and first in by_id}


def _parts(
    session: Session, sized: Sizes, shown: tuple[Message, ...], originals: dict[int, Message]
) -> tuple[list[Part], int]:
    """Parts of what is shown, by group and name, and their sum."""
    source = {id(m): s for m, s in zip(session.messages, sized.source, strict=True)}
    rows: dict[tuple[str, str], list[int]] = {}
    estimated: set[tuple[str, str]] = set()
    for message in shown:
        found = pieces(message)
        tokens = share(sized.of(message), [p.weight for p in found])
        raw = originals.get(id(message))
        before = tokens if raw is None else share(sized.of(raw), [p.weight for p in found])
        keys = set()
        for piece, n, m in zip(found, tokens, before, strict=True):
            key = (piece.group, piece.name)
            row = rows.setdefault(key, [0, 0, 0, 0])
            row[0], row[1], row[2] = row[0] + n, row[1] + m, row[2] + piece.chars
            keys.add(key)
        for key in keys:
            rows[key][3] += 1
        if source.get(id(message)) != "derived":
            estimated |= keys
    parts = [
        Part(*key, n, m, c, k, "estimated" if key in estimated else "derived") for key, (n, m, c, k) in rows.items()
    ]
    return parts, sum(p.tokens for p in parts)


def _scaled(parts: list[Part], total: int) -> list[Part]:
    """The parts made smaller together: their counts were more than the provider billed for all of them."""
    before: dict[str, int] = {}
    for part in parts:
        before[part.group] = before.get(part.group, 0) + part.tokens
    out = []
    for group, tokens in scaled(before, total).items():
        members = [p for p in parts if p.group == group]
        shares = share(tokens, [p.tokens for p in members])
        raws = [max(p.raw_tokens * tokens // max(before[group], 1), n) for p, n in zip(members, shares, strict=True)]
        out += [replace(p, tokens=n, raw_tokens=r) for p, n, r in zip(members, shares, raws, strict=True)]
    return out


def _contributors(
    session: Session, sized: Sizes, shown: tuple[Message, ...], originals: dict[int, Message]
) -> tuple[Contributor, ...]:
    place = {id(e): i for i, e in enumerate(session.path)}
    largest = sorted((m for m in shown if m.parts and sized.of(m)), key=sized.of, reverse=True)[:_TOP]
    return tuple(
        Contributor(
            position=place.get(id(originals.get(id(m), m))),
            id=m.id,
            role=m.role,
            tool=m.tool,
            tokens=sized.of(m),
            raw_tokens=sized.of(originals.get(id(m), m)),
            chars=measure(m)[0],
            preview=preview(m),
        )
        for m in largest
    )


def preview(message: Message) -> str:
    """One line of what a message says, bounded and without control characters; not escaped."""
    for part in message.parts:
        if isinstance(part, (Text, Thinking)) and part.text.strip():
            return line(part.text, 100)
        if isinstance(part, ToolCall):
            told = (
                part.raw
                if part.raw is not None
                else ", ".join(f"{k}={str(v)[:60]!r}" for k, v in part.arguments.items())
            )
            return line(f"{part.name}({told})", 100)
    return f"[{message.kind or 'no text'}]"


def _model(session: Session, at: Call | None) -> str | None:
    if at is not None:
        return at.message.model or session.model
    return next((m.model for m in reversed(session.messages) if m.model), session.model)


def _limit(session: Session, at: Call | None) -> tuple[int, Source]:
    costs, model = Costs(), _model(session, at)
    limit, where = costs.limit(session, at.message if at else Message(role="user"), model)
    if limit is None:
        prompts = (
            c.message.usage.prompt_tokens or 0 for c in session.calls if c.message.usage and c.message.kind != "turn"
        )
        return max(DEFAULT_LIMIT, *prompts, 0), "estimated"
    return limit, "recorded" if where == "recorded" else "derived"
