"""A structured checkpoint of a conversation (Tyrum's): rendered as text, and made
without a model.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.messages import APPROVAL, APPROVALS
from ctxkit.texts import contents, identifiers, lessons

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ctxkit.messages import Message

MOST = 40
"""Lines of a list that grows from one checkpoint to the next."""
LINE = 240
"""Characters of one line of a deterministic checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Obligations:
    """What another run of the same agent must know to go on."""

    goal: str = ""
    user_constraints: tuple[str, ...] = ()
    preferences: tuple[str, ...] = ()
    """What the user said of how it is to be (Tyrum's document; its program has no such list)."""
    approvals: tuple[str, ...] = ()
    """What the user allowed and refused: never left to a model."""
    decisions: tuple[str, ...] = ()
    discoveries: tuple[str, ...] = ()
    completed_work: tuple[str, ...] = ()
    pending_work: tuple[str, ...] = ()
    unresolved_questions: tuple[str, ...] = ()
    critical_identifiers: tuple[str, ...] = ()
    relevant_files: tuple[str, ...] = ()
    handoff_md: str = ""

    @property
    def empty(self) -> bool:
        """True where nothing at all is said."""
        return not any(getattr(self, f.name) for f in fields(self))


def checkpoint(data: Mapping[str, object]) -> Obligations:
    """Return a checkpoint from decoded JSON.

    Raises:
        BadArguments: a key is unknown, or a value is not text or a list of text.
    """
    known = {f.name: f for f in fields(Obligations)}
    out: dict[str, str | tuple[str, ...]] = {}
    for key, value in data.items():
        if key not in known:
            raise BadArguments(f"A checkpoint has no field {key!r}.{did_you_mean(key, known)}")
        if isinstance(value, str):
            out[key] = value if isinstance(known[key].default, str) else (value,)
        elif isinstance(value, (list, tuple)) and isinstance(known[key].default, tuple):
            out[key] = tuple(str(v) for v in value)
        else:
            raise BadArguments(f"Field {key!r} of a checkpoint must be text or a list of text.")
    return Obligations(**out)  # type: ignore[arg-type]


def line(text: str) -> str:
    """Return a text on one line of at most 240 characters (237 and three dots)."""
    flat = " ".join(text.split(None, LINE)[:LINE])  # no more of a long text is read than is shown
    return flat if len(flat) <= LINE else flat[: LINE - 3] + "..."


def unique(rows: Iterable[str], limit: int) -> tuple[str, ...]:
    """Return lines, each once whatever its case, empty ones left out, at most `limit`."""
    seen: dict[str, str] = {}
    for row in map(line, rows):
        if row:
            seen.setdefault(row.casefold(), row)
    return tuple(seen.values())[:limit]


def deterministic(
    messages: Sequence[Message], previous: Obligations | None = None, *, quirks: bool = False
) -> Obligations:
    """Return the checkpoint that is made when no model answers: the first and last words of each
    side.

    Args:
        messages: what is about to leave the view.
        previous: the checkpoint that stood before.
        quirks: find only the inner part of a path, as Tyrum's program does.
    """
    old = previous or Obligations()
    said = [(m.role, line(contents.texts(m))) for m in messages]
    user = [t for role, t in said if role == "user" and t]
    agent = [t for role, t in said if role == "assistant" and t]
    system = [t for role, t in said if role == "system" and t]
    names = identifiers.found("\n".join(contents.texts(m) for m in messages), inner_paths=quirks)
    recent = unique([*user[-2:], *agent[-2:]], 8)
    history = unique((f"{role}: {text}" for role, text in said if text), 8)
    parts = [old.handoff_md] if old.handoff_md else []
    parts += ["Compacted history:", *(f"- {h}" for h in history)] if history else []
    parts += ["Continue with:", *(f"- {p}" for p in recent)] if recent else []
    return replace(
        with_approvals(old, messages, old),
        preferences=unique([*old.preferences, *lessons.preferences(messages)], MOST),
        decisions=unique([*old.decisions, *lessons.decisions(messages)], MOST),
        goal=line(old.goal or (user or agent or ["Go on with the conversation."])[0]),
        user_constraints=unique([*old.user_constraints, *user[:3], *system], 8),
        discoveries=unique([*old.discoveries, *agent[:6]], 8),
        pending_work=unique([*old.pending_work, *recent], 8),
        critical_identifiers=tuple(dict.fromkeys([*old.critical_identifiers, *names]))[:50],
        relevant_files=tuple(dict.fromkeys([*old.relevant_files, *identifiers.files(names)]))[:20],
        handoff_md="\n".join(parts),
    )


def with_approvals(
    point: Obligations, messages: Sequence[Message], previous: Obligations | None
) -> Obligations:
    """Return a checkpoint with what was allowed and refused before, and in these messages."""
    old = previous.approvals if previous is not None else ()
    return replace(point, approvals=unique([*old, *_approvals(messages)], MOST))


def _approvals(messages: Sequence[Message]) -> Iterable[str]:
    calls = {c.id: c for m in messages for c in m.tool_calls}
    for m in messages:
        answer = m.details.get(APPROVAL)
        if m.role == "tool" and answer in APPROVALS:
            call = calls.get(m.call_id or "")
            what = " ".join(filter(None, [m.tool, contents.hint(call)]))
            yield f"{what}: {answer} by the user"


_BLOCKS = (
    ("User constraints", "user_constraints", 8),
    ("Preferences", "preferences", 8),
    ("Approvals", "approvals", 20),
    ("Decisions", "decisions", 8),
    ("Discoveries", "discoveries", 8),
    ("Completed work", "completed_work", 8),
    ("Pending work", "pending_work", 8),
    ("Unresolved questions", "unresolved_questions", 8),
    ("Critical identifiers", "critical_identifiers", 20),
    ("Relevant files", "relevant_files", 20),
)


def rendered(point: Obligations, pending: Sequence[Message] = ()) -> str:
    """Return a checkpoint as text; lists are cut to 8 items (names to 20), and the text says how
    many went.
    """
    blocks = [f"Goal:\n{point.goal}"] if point.goal else []
    for title, name, limit in _BLOCKS:
        items = getattr(point, name)
        if items:
            more = [f"- ... and {len(items) - limit} more"] if len(items) > limit else []
            blocks.append("\n".join([f"{title}:", *(f"- {i}" for i in items[:limit]), *more]))
    if point.handoff_md:
        blocks.append(f"Handoff:\n{point.handoff_md}")
    if pending:
        rows = [f"- {m.tool or 'approval'} ({m.call_id or m.id}) is pending" for m in pending]
        blocks.append("\n".join(["Pending tool state:", *rows]))
    return "\n\n".join(blocks)
