"""The same dollars by turn, tool, file, server, cache, model, agent and section: each adds up to
the bill.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.cache.causes import PAUSES
from ctxkit.composition.groups import shares
from ctxkit.display.amounts import span
from ctxkit.display.markup import line
from ctxkit.messages import Text, Thinking, ToolCall
from ctxkit.metrics.misses import misses
from ctxkit.subjects import path_of
from ctxkit.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ctxkit.messages import Message
    from ctxkit.metrics.accounts import Accounts, Charge
    from ctxkit.metrics.misses import Miss
    from ctxkit.session import Session
    from ctxkit.spending.portions import Portions

FIXED = "system prompt and tools (not in the log)"
SUMMARIES = "summaries"
_OUT = "output"
_SERVER = re.compile(r"mcp__(.+?)__(.+)")
_AGAIN = {
    **dict.fromkeys(PAUSES, "sent again after a pause"),
    "resumed": "sent again after the session was resumed",
    "compaction": "sent again after a compaction",
    "cold_start": "first sent, nothing cached",
    "unexplained": "sent again, no cause found",
}


class Portion(NamedTuple):
    """A part of the bill."""

    name: str
    usd: float
    n: int
    """How many calls, results or times it was."""
    hover: str = ""


class Resent(NamedTuple):
    """What a call had to send again because the cache did not hold it."""

    miss: Miss
    sent_usd: float
    """Dollars that sending it cost."""
    usd: float
    """What of them is above what reading it would have cost."""


def by_turn(session: Session, found: Accounts, asked: dict[int, str]) -> list[Portion]:
    """Return dollars by turn; summaries stand by themselves."""
    turns = [c.turn for c in session.calls]
    names = {t: f"{t}: {line(asked.get(t, 'no words'), 90)}" for t in turns}
    hover = {name: asked.get(t, "") for t, name in names.items()}
    return _grouped(found, lambda c: names[turns[c.call]], hover)


def by_model(session: Session, found: Accounts) -> list[Portion]:
    """Return dollars by the model that answered."""
    return _grouped(
        found, lambda c: line(session.calls[c.call].message.model or session.model or "unknown", 60)
    )


def by_agent(session: Session, found: Accounts) -> list[Portion]:
    """Return dollars by the agent that asked."""
    return _grouped(found, lambda c: line(session.calls[c.call].agent, 60))


def by_tool(session: Session, found: Accounts, parts: Portions) -> list[Portion]:
    """Return dollars by what they were for: results of each tool, what was said, what is in no log.

    A reply's output is for the tools that it asks for, where it asks for some.
    """
    rows = _Rows()
    for held in parts.held:
        rows.add(_tool_of(held.message), held.usd, bool(held.message.call_id))
    for charge in _priced(found):
        message = session.calls[charge.call].message
        for name, share in _output(message):
            rows.add(name, share * (charge.output_usd or 0.0), 0)
    rows.add(FIXED, parts.fixed_usd, 0)
    return _sorted([*rows.portions(), *_summaries(found)])


def by_server(rows: Iterable[Portion]) -> list[Portion]:
    """Return dollars by MCP server, from those by tool; what no server answered stands together."""
    sums = _Rows()
    for row in rows:
        server = _SERVER.fullmatch(row.name)
        sums.add(server[1] if server else "no MCP server", row.usd, row.n)
    return _sorted(sums.portions())


def by_file(session: Session, found: Accounts, parts: Portions) -> list[Portion]:
    """Return dollars by the file that a tool was asked about; what is about none stands
    together.
    """
    rows, root = _Rows(), (session.cwd or "").rstrip("/")
    for held in parts.held:
        path = path_of(held.answers) if held.answers else _written(held.message)
        rows.add(_file(path, root), held.usd, bool(path))
    for charge in _priced(found):
        path = _written(session.calls[charge.call].message)
        rows.add(_file(path, root), charge.output_usd or 0.0, 0)
    rows.add("no file", parts.fixed_usd + found.summaries_usd, 0)
    return _sorted(rows.portions())


def by_section(found: Accounts, parts: Portions) -> list[Portion]:
    """Return dollars by section of the system message; all else stands together."""
    rows, rest = _Rows(), found.calls_usd + found.summaries_usd - parts.fixed_usd
    for held in parts.held:
        if held.message.role == "system":
            pieces = shares(held.message, max(held.tokens, 1))
            whole = sum(n for _, n in pieces) or 1
            for piece, n in pieces:
                rows.add(line(piece.name or piece.group, 80), held.usd * n / whole, held.sent_n)
            rest -= held.usd if pieces else 0.0
    rows.add(FIXED, parts.fixed_usd, 0)
    rows.add("all else", rest, 0)
    return _sorted(rows.portions())


def by_cache(session: Session, found: Accounts, resent: list[Resent]) -> list[Portion]:
    """Return dollars by what the cache made of them: read, new, sent again and why, put out."""
    rows, again = _Rows(), {r.miss.call: r for r in resent}
    for charge in _priced(found):
        rows.add(_OUT, charge.output_usd or 0.0, 1)
        sent = (charge.write_usd or 0.0) + (charge.fresh_usd or 0.0)
        read = charge.read_usd or 0.0
        if charge.call in again:
            miss, part, _ = again[charge.call]
            rows.add(_AGAIN.get(miss.kind, f"sent again: {miss.kind.replace('_', ' ')}"), part, 1)
            sent -= part
        rows.add("read from the cache" if session.has_cache else "prompts", read, 1)
        rows.add("new in the prompt" if session.has_cache else "prompts", sent, 1)
    return _sorted([*(p for p in rows.portions() if p.usd), *_summaries(found)])


def resent_of(session: Session, found: Accounts) -> list[Resent]:
    """Return what had to be sent again, call by call, and what that cost above reading it."""
    known = {c.call: c for c in _priced(found)}
    out = []
    for miss in misses(session.origin or session):
        charge = known.get(miss.call) if miss is not None else None
        if miss is None or charge is None or not miss.lost:
            continue
        tokens = charge.write + charge.fresh
        if not tokens:
            continue
        price = ((charge.write_usd or 0.0) + (charge.fresh_usd or 0.0)) / tokens
        read = (charge.read_usd or 0.0) / charge.read if charge.read else 0.1 * price
        lost = min(miss.lost, tokens)
        out.append(Resent(miss, lost * price, lost * max(price - read, 0.0)))
    return out


def by_child(
    session: Session, found: Accounts, children: list[tuple[Session, float]]
) -> list[Portion]:
    """Return dollars of the session itself and of each subagent's own session."""
    own = Portion(
        f"{title_of(session)} itself", found.calls_usd + found.summaries_usd, len(found.charges)
    )
    rows = [Portion(title_of(c), usd, len(c.calls), f"id {line(c.id, 80)}") for c, usd in children]
    return _sorted([own, *rows])


def pauses(resent: Iterable[Resent]) -> str:
    """Return how long the pauses were, in words."""
    gaps = [r.miss.gap for r in resent if r.miss.gap is not None]
    ends = dict.fromkeys((span(min(gaps)), span(max(gaps)))) if gaps else ()
    return f" ({' to '.join(ends)})" if ends else ""


class _Rows:
    def __init__(self) -> None:
        self._usd, self._n = defaultdict[str, float](float), defaultdict[str, int](int)

    def add(self, name: str, usd: float, n: int) -> None:
        self._usd[name] += usd
        self._n[name] += n

    def portions(self) -> list[Portion]:
        return [Portion(name, usd, self._n[name]) for name, usd in self._usd.items()]


def _grouped(
    found: Accounts, key: Callable[[Charge], str], hover: Mapping[str, str] | None = None
) -> list[Portion]:
    rows = _Rows()
    for charge in _priced(found):
        rows.add(key(charge), charge.usd or 0.0, 1)
    parts = (p._replace(hover=(hover or {}).get(p.name, "")) for p in rows.portions())
    return _sorted([*parts, *_summaries(found)])


def _priced(found: Accounts) -> Iterator[Charge]:
    return (c for c in found.charges if c.usd is not None)


def _summaries(found: Accounts) -> list[Portion]:
    n = len(found.summaries)
    return [Portion(SUMMARIES, found.summaries_usd, n, "calls that wrote summaries")] if n else []


def _sorted(rows: Iterable[Portion]) -> list[Portion]:
    return sorted(rows, key=lambda r: -r.usd)


def _tool_of(message: Message) -> str:
    if message.role == "tool" or message.call_id:
        return line(message.tool or "unknown tool", 60)
    if message.role == "assistant":
        calls = list(dict.fromkeys(p.name for p in message.parts if isinstance(p, ToolCall)))
        return line(calls[0], 60) if len(calls) == 1 else "replies"
    return {
        "user": "user",
        "system": "system message",
        "summary": SUMMARIES + " in the prompt",
    }.get(message.role, "user")


def _output(message: Message) -> list[tuple[str, float]]:
    """Return for whom a reply's output was, with shares that add up to one."""
    weights: dict[str, float] = defaultdict(float)
    for part in message.parts:
        if isinstance(part, ToolCall):
            weights[line(part.name, 60)] += len(part.name) + len(part.raw or str(part.arguments))
        elif isinstance(part, (Text, Thinking)):
            weights["replies"] += len(part.text)
    whole = sum(weights.values())
    return [(name, w / whole) for name, w in weights.items()] if whole else [("replies", 1.0)]


def _written(message: Message) -> str | None:
    paths = [p for part in message.parts if isinstance(part, ToolCall) and (p := path_of(part))]
    return paths[0] if len(paths) == 1 else None


def _file(path: str | None, root: str) -> str:
    if not path:
        return "no file"
    return line(path[len(root) + 1 :] if root and path.startswith(f"{root}/") else path, 120)
