"""What was fetched more than once, and what was offered and never used."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.composition.groups_by_call import schema_chars
from ctxkit.display.markup import line
from ctxkit.subjects import subject

if TYPE_CHECKING:
    from ctxkit.messages import ToolCall
    from ctxkit.metrics.accounts import Accounts
    from ctxkit.session import Session
    from ctxkit.spending.portions import Portions


class Fetched(NamedTuple):
    """A result that was asked for again with the same words."""

    name: str
    times: int
    tokens: int
    """Of all but the first."""
    usd: float
    """What sending all but the first cost."""


class Unused(NamedTuple):
    """A tool whose schema was sent with every call and that was never called."""

    name: str
    tokens: int
    usd: float


def fetched(session: Session, parts: Portions) -> list[Fetched]:
    """Return what the same call fetched more than once, the dearest first.

    A repeat is no waste by itself: the first may be out of sight, or another command may have
    changed the answer. Results of writing tools have no content and are left out by their size.
    """
    groups: dict[str, list[tuple[ToolCall, int, float]]] = defaultdict(list)
    for held in parts.held:
        if held.answers is not None and held.tokens:
            groups[_key(held.answers)].append((held.answers, held.tokens, held.usd))
    out = [
        Fetched(
            subject(found[0][0], session.cwd, 100),
            len(found),
            sum(n for _, n, _ in found[1:]),
            sum(usd for *_, usd in found[1:]),
        )
        for found in groups.values()
        if len(found) > 1
    ]
    return sorted(out, key=lambda f: -f.usd)


def unused(session: Session, parts: Portions, found: Accounts) -> list[Unused]:
    """Return tools that were offered and never called, and what sending their schemas cost, about.

    Missing where the log does not list the tools. A schema is counted at a quarter of its
    characters.
    """
    used = {call.name for m in session.messages for call in m.tool_calls}
    sizes = {t.name: -(-schema_chars(t) // 4) for t in session.tools}
    whole = max(sum(sizes.values()), parts.fixed_tokens, 1)
    idle = [t for t in session.tools if t.name not in used]
    if not found.charges or not used:
        return []
    rows = [
        Unused(line(t.name, 60), sizes[t.name], parts.fixed_usd * sizes[t.name] / whole)
        for t in idle
    ]
    return sorted(rows, key=lambda u: -u.usd)


def _key(call: ToolCall) -> str:
    told = (
        call.raw
        if call.raw is not None
        else json.dumps(call.arguments, sort_keys=True, default=str)
    )
    return f"{call.name}\0{told}"
