"""The window at every call, by group: what `plots.composition` stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit.composition.groups import GROUPS, LATER, TOOLS, UNSEEN, share, shares
from ctxkit.messages import Edit
from ctxkit.session import apply_edit
from ctxkit.sizes import Sizes, sizes
from ctxkit.sizes.prompt_sizes import PromptSize, billed_prompt, size_at, size_next
from ctxkit.tokens.lengths import json_chars

if TYPE_CHECKING:
    from ctxkit.messages import Message, Source, ToolSchema
    from ctxkit.schedules.rows import State
    from ctxkit.session import Session
    from ctxkit.tokens.counters import Counter


class Layers(NamedTuple):
    """Tokens of each group at each call."""

    calls: tuple[int, ...]
    groups: dict[str, tuple[int, ...]]
    """Groups that hold anything at any call, in the order of `GROUPS`; their sum is the prompt."""
    source: Source
    """`derived` where recorded prompts anchor the sizes, else `estimated`."""


def layers(session: Session, counter: Counter | None = None, sized: Sizes | None = None) -> Layers:
    """Return what each prompt held, as `report` has it; `sized`: a record's sizes, where known."""
    if session.behind is None:
        rows = _recorded(session, sized or sizes(session, counter))
    else:
        rows = _sent(session)
    groups = {g: tuple(row.get(g, 0) for row in rows) for g in GROUPS}
    used = {g: tokens for g, tokens in groups.items() if any(tokens)}
    return Layers(tuple(range(len(rows))), used, "derived" if is_anchored(session) else "estimated")


def _sent(session: Session) -> list[dict[str, int]]:
    """Return the groups of each prompt of a run, from what came and went at each call."""
    known: dict[int, list[tuple[str, int]]] = {}

    def parts(state: State) -> list[tuple[str, int]]:
        if state.content not in known:
            found = [] if state.message is None else shares(state.message, state.tokens)
            known[state.content] = [(p.group, n) for p, n in found]
        return known[state.content]

    rows: list[dict[str, int]] = []
    now: dict[str, int] = {}
    for turnover in session.behind.turnovers(0, len(session.calls)):
        if turnover.anew:
            now, known = {}, {}
        for state in turnover.came:
            _add(now, parts(state))
        for state in turnover.gone:
            _add(now, [(group, -n) for group, n in parts(state)])
        rows.append(_billed(session, len(rows), now, turnover.fixed))
    return rows


def _billed(session: Session, call: int, now: dict[str, int], fixed: int) -> dict[str, int]:
    """Return the groups of a prompt, as large together as it was billed."""
    fixed = session.behind.schemas if is_live(session) else fixed
    groups, whole = {k: n for k, n in now.items() if n}, sum(now.values()) + fixed
    size = size_of(session, call, whole)
    if fixed < 0:
        groups, fixed = scaled(groups, whole), 0
    if size.tokens != whole:
        groups = scaled({**groups, UNSEEN: fixed}, size.tokens)
        fixed = groups[UNSEEN]
    rest, schemas = schemas_of(session, fixed, is_whole=is_live(session))
    return {**groups, TOOLS: sum(schemas), UNSEEN: rest}


def is_live(session: Session) -> bool:
    """Say whether a session that a run is behind was not replayed: its prompts were sent."""
    return session.format != "replay"


def size_of(session: Session, call: int | None, counted: int) -> PromptSize:
    """Return the size of a prompt of a session that a run is behind.

    Args:
        session: a live session or a replay.
        call: number of the call; None: the prompt that comes next.
        counted: what was sent, as counted: the size where nobody knows better.
    """
    if is_live(session):
        return size_next(session) if call is None else size_at(session, call)
    told = None
    if call is not None and session.behind.owing:  # it goes by the last usage, so it has bills
        told = billed_prompt(session.calls[call].message)
    return PromptSize(counted, "estimated") if told is None else PromptSize(told, "recorded")


def schemas_of(session: Session, fixed: int, *, is_whole: bool = False) -> tuple[int, list[int]]:
    """Return what of the fixed part is in no log, and each tool's schema.

    Args:
        session: any session.
        fixed: tokens of a prompt that no message holds.
        is_whole: the schemas are all of it, as in a live session, which knows all that it was sent.
    """
    schemas = _schemas(session)
    if schemas and (is_whole or sum(schemas) > fixed):
        schemas = share(max(fixed, 0), schemas)
    return fixed - sum(schemas), schemas


def _recorded(session: Session, sized: Sizes) -> list[dict[str, int]]:
    """Return the groups of each prompt of a record, in one pass over its log."""
    known: dict[int, list[tuple[str, int]]] = {}

    def parts(message: Message) -> list[tuple[str, int]]:
        if id(message) not in known:
            known[id(message)] = [(p.group, n) for p, n in shares(message, sized.of(message))]
        return known[id(message)]

    rows: list[dict[str, int]] = []
    now: dict[str, int] = {}
    shown: list[Message] = []
    for entry in session.path:
        if isinstance(entry, Edit):
            shown, now = apply_edit(shown, entry), {}
            for message in shown:
                _add(now, parts(message))
            continue
        if entry.role == "assistant":
            rows.append(_row(session, sized, len(rows), now))
        if entry.visible:
            shown.append(entry)
            _add(now, parts(entry))
    return rows


def _row(session: Session, sized: Sizes, call: int, now: dict[str, int]) -> dict[str, int]:
    """What is visible now and what is not; scaled where more is visible than was recorded."""
    visible, recorded = sum(now.values()), prompt(session, sized, call)
    rest, schemas, later = unseen(session, sized, call, visible)
    if recorded is not None and visible > (room := recorded - rest - sum(schemas) - later):
        now = scaled(now, room)
    return {**now, TOOLS: sum(schemas), UNSEEN: rest, LATER: later}


def scaled(groups: dict[str, int], total: int) -> dict[str, int]:
    """Return the groups made smaller together, so that they sum up to a total."""
    names = sorted(groups, key=GROUPS.index)
    return dict(zip(names, share(total, [groups[name] for name in names]), strict=True))


def _add(now: dict[str, int], parts: list[tuple[str, int]]) -> None:
    for group, n in parts:
        now[group] = now.get(group, 0) + n


def prompt(session: Session, sized: Sizes, call: int | None) -> int | None:
    """The recorded prompt of a call; None without one, or where the log has only sums of turns."""
    if call is None or session.calls[call].message.kind == "turn":
        return None
    return sized.recorded[call]


def unseen(
    session: Session, sized: Sizes, call: int | None, visible: int
) -> tuple[int, list[int], int]:
    """Return what of a prompt no message shows: the rest that the log does not hold, each tool
    schema, and later ones.

    With recorded usage all together are the recorded prompt less what is visible, never below zero,
    and the schemas take no more than that; without it the schemas stand at their plain estimate and
    there is no rest. The rest stays what it was at the agent's first call: what is more came later,
    and where the prompt fell without a mark, less of the visible was sent.
    """
    schemas = _schemas(session)
    if not is_anchored(session):
        return 0, schemas, 0
    recorded, at = prompt(session, sized, call), -1 if call is None else call
    fixed, later = sized.fixed_at[at], 0
    if recorded is None:
        rest = fixed
    elif sized.unsent_at[at]:
        rest = min(fixed, recorded)
    else:
        rest = max(recorded - visible, 0)
        later = max(rest - sized.begun[at], 0) if fixed > sized.begun[at] else 0
    rest -= later
    if sum(schemas) > rest:
        schemas = share(rest, schemas)
    return rest - sum(schemas), schemas, later


def is_anchored(session: Session) -> bool:
    """True where the size of at least one prompt was recorded; worked out once a session."""
    known: bool | None = session.__dict__.get("is anchored")
    if known is None:
        known = session.__dict__["is anchored"] = any(
            c.message.usage and c.message.usage.prompt_tokens and c.message.kind != "turn"
            for c in session.calls
        )
    return known


def _schemas(session: Session) -> list[int]:
    """Return the plain estimate of each tool's schema; worked out once a session."""
    known: list[int] | None = session.__dict__.get("schemas")
    if known is None:
        known = session.__dict__["schemas"] = [-(-schema_chars(t) // 4) for t in session.tools]
    return known


def schema_chars(tool: ToolSchema) -> int:
    """Characters of a tool's schema as JSON, as the log says or by what of it the log holds."""
    if tool.chars is not None:
        return tool.chars
    return len(tool.name) + len(tool.description) + json_chars(tool.parameters)
