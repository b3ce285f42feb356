"""A bill split by turn, tool, file, server, cache, model, agent and section; repeated and unused
requests.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting import format_duration, sanitize_line
from ctxkit.engine.cache_model.call_features import PAUSE_CAUSES
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.prompt_groups import count_schema_chars, share_message_tokens
from ctxkit.session.messages import Text, Thinking, ToolCall
from ctxkit.session.titles import get_title
from ctxkit.session.tool_calls import describe_call, get_call_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ctxkit.metrics.cache_misses import CacheMiss
    from ctxkit.metrics.cost.session_bill import CallCharge, PromptCosts, SessionBill
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session


NOT_IN_LOG = "system prompt and tools (not in the log)"
SUMMARIES = "summaries"
_OUT = "output"
_SERVER = re.compile(r"mcp__(.+?)__(.+)")
_AGAIN = {
    **dict.fromkeys(PAUSE_CAUSES, "sent again after a pause"),
    "resumed": "sent again after the session was resumed",
    "compaction": "sent again after a compaction",
    "cold_start": "first sent, nothing cached",
    "unexplained": "sent again, no cause found",
}


class BillPart(NamedTuple):
    """A part of the bill."""

    name: str
    usd: float
    n: int
    """How many calls, results or times it was."""
    hover: str = ""


class ResentTokens(NamedTuple):
    """What a call had to send again because the cache did not hold it."""

    miss: CacheMiss
    sent_usd: float
    """Dollars that sending it cost."""
    usd: float
    """What of them is above what reading it would have cost."""


def split_by_turn(session: Session, found: SessionBill, asked: dict[int, str]) -> list[BillPart]:
    """Return dollars by turn; summaries stand by themselves."""
    turns = [c.turn for c in session.calls]
    names = {t: f"{t}: {sanitize_line(asked.get(t, 'no words'), 90)}" for t in turns}
    hover = {name: asked.get(t, "") for t, name in names.items()}
    return _split_by(found, lambda c: names[turns[c.call]], hover)


def split_by_model(session: Session, found: SessionBill) -> list[BillPart]:
    """Return dollars by the model that answered."""
    return _split_by(
        found,
        lambda c: sanitize_line(
            session.calls[c.call].message.model or session.model or "unknown", 60
        ),
    )


def split_by_agent(session: Session, found: SessionBill) -> list[BillPart]:
    """Return dollars by the agent that asked."""
    return _split_by(found, lambda c: sanitize_line(session.calls[c.call].agent, 60))


def split_by_tool(session: Session, found: SessionBill, parts: PromptCosts) -> list[BillPart]:
    """Return dollars by what they were for: results of each tool, what was said, what is in no log.

    A reply's output is for the tools that it asks for, where it asks for some.
    """
    rows = _PartSums()
    for held in parts.held:
        rows.add(_tool_of(held.message), held.usd, bool(held.message.call_id))
    for charge in _priced(found):
        message = session.calls[charge.call].message
        for name, share in _output_shares(message):
            rows.add(name, share * (charge.output_usd or 0.0), 0)
    rows.add(NOT_IN_LOG, parts.fixed_usd, 0)
    return _largest_first([*rows.portions(), *_summaries(found)])


def split_by_server(rows: Iterable[BillPart]) -> list[BillPart]:
    """Return dollars by MCP server, from those by tool; what no server answered stands together."""
    sums = _PartSums()
    for row in rows:
        server = _SERVER.fullmatch(row.name)
        sums.add(server[1] if server else "no MCP server", row.usd, row.n)
    return _largest_first(sums.portions())


def split_by_file(session: Session, found: SessionBill, parts: PromptCosts) -> list[BillPart]:
    """Return dollars by the file that a tool was asked about; what is about none stands
    together.
    """
    rows, root = _PartSums(), (session.cwd or "").rstrip("/")
    for held in parts.held:
        path = get_call_path(held.answers) if held.answers else _only_path(held.message)
        rows.add(_relative_path(path, root), held.usd, bool(path))
    for charge in _priced(found):
        path = _only_path(session.calls[charge.call].message)
        rows.add(_relative_path(path, root), charge.output_usd or 0.0, 0)
    rows.add("no file", parts.fixed_usd + found.summaries_usd, 0)
    return _largest_first(rows.portions())


def split_by_section(found: SessionBill, parts: PromptCosts) -> list[BillPart]:
    """Return dollars by section of the system message; all else stands together."""
    rows, rest = _PartSums(), found.calls_usd + found.summaries_usd - parts.fixed_usd
    for held in parts.held:
        if held.message.role == "system":
            pieces = share_message_tokens(held.message, max(held.tokens, 1))
            whole = sum(n for _, n in pieces) or 1
            for piece, n in pieces:
                rows.add(
                    sanitize_line(piece.name or piece.group, 80), held.usd * n / whole, held.sent_n
                )
            rest -= held.usd if pieces else 0.0
    rows.add(NOT_IN_LOG, parts.fixed_usd, 0)
    rows.add("all else", rest, 0)
    return _largest_first(rows.portions())


def split_by_cache(
    session: Session, found: SessionBill, resent: list[ResentTokens]
) -> list[BillPart]:
    """Return dollars by what the cache made of them: read, new, sent again and why, put out."""
    rows, again = _PartSums(), {r.miss.call: r for r in resent}
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
    return _largest_first([*(p for p in rows.portions() if p.usd), *_summaries(found)])


def find_resent(session: Session, found: SessionBill) -> list[ResentTokens]:
    """Return what had to be sent again, call by call, and what that cost above reading it."""
    known = {c.call: c for c in _priced(found)}
    out = []
    for miss in find_cache_misses(session.origin or session):
        charge = known.get(miss.call) if miss is not None else None
        if miss is None or charge is None or not miss.lost:
            continue
        tokens = charge.write + charge.fresh
        if not tokens:
            continue
        price = ((charge.write_usd or 0.0) + (charge.fresh_usd or 0.0)) / tokens
        read = (charge.read_usd or 0.0) / charge.read if charge.read else 0.1 * price
        lost = min(miss.lost, tokens)
        out.append(ResentTokens(miss, lost * price, lost * max(price - read, 0.0)))
    return out


def split_by_subagent(
    session: Session, found: SessionBill, children: list[tuple[Session, float]]
) -> list[BillPart]:
    """Return dollars of the session itself and of each subagent's own session."""
    own = BillPart(
        f"{get_title(session)} itself", found.calls_usd + found.summaries_usd, len(found.charges)
    )
    rows = [
        BillPart(get_title(c), usd, len(c.calls), f"id {sanitize_line(c.id, 80)}")
        for c, usd in children
    ]
    return _largest_first([own, *rows])


def describe_pauses(resent: Iterable[ResentTokens]) -> str:
    """Return how long the pauses were, in words."""
    gaps = [r.miss.gap for r in resent if r.miss.gap is not None]
    ends = dict.fromkeys((format_duration(min(gaps)), format_duration(max(gaps)))) if gaps else ()
    return f" ({' to '.join(ends)})" if ends else ""


class _PartSums:
    def __init__(self) -> None:
        self._usd, self._n = defaultdict[str, float](float), defaultdict[str, int](int)

    def add(self, name: str, usd: float, n: int) -> None:
        self._usd[name] += usd
        self._n[name] += n

    def portions(self) -> list[BillPart]:
        return [BillPart(name, usd, self._n[name]) for name, usd in self._usd.items()]


def _split_by(
    found: SessionBill, key: Callable[[CallCharge], str], hover: Mapping[str, str] | None = None
) -> list[BillPart]:
    rows = _PartSums()
    for charge in _priced(found):
        rows.add(key(charge), charge.usd or 0.0, 1)
    parts = (p._replace(hover=(hover or {}).get(p.name, "")) for p in rows.portions())
    return _largest_first([*parts, *_summaries(found)])


def _priced(found: SessionBill) -> Iterator[CallCharge]:
    return (c for c in found.charges if c.usd is not None)


def _summaries(found: SessionBill) -> list[BillPart]:
    n = len(found.summaries)
    return [BillPart(SUMMARIES, found.summaries_usd, n, "calls that wrote summaries")] if n else []


def _largest_first(rows: Iterable[BillPart]) -> list[BillPart]:
    return sorted(rows, key=lambda r: -r.usd)


def _tool_of(message: Message) -> str:
    if message.role == "tool" or message.call_id:
        return sanitize_line(message.tool or "unknown tool", 60)
    if message.role == "assistant":
        calls = list(dict.fromkeys(p.name for p in message.parts if isinstance(p, ToolCall)))
        return sanitize_line(calls[0], 60) if len(calls) == 1 else "replies"
    return {
        "user": "user",
        "system": "system message",
        "summary": SUMMARIES + " in the prompt",
    }.get(message.role, "user")


def _output_shares(message: Message) -> list[tuple[str, float]]:
    """Return for whom a reply's output was, with shares that add up to one."""
    weights: dict[str, float] = defaultdict(float)
    for part in message.parts:
        if isinstance(part, ToolCall):
            weights[sanitize_line(part.name, 60)] += len(part.name) + len(
                part.raw or str(part.arguments)
            )
        elif isinstance(part, (Text, Thinking)):
            weights["replies"] += len(part.text)
    whole = sum(weights.values())
    return [(name, w / whole) for name, w in weights.items()] if whole else [("replies", 1.0)]


def _only_path(message: Message) -> str | None:
    paths = [
        p for part in message.parts if isinstance(part, ToolCall) and (p := get_call_path(part))
    ]
    return paths[0] if len(paths) == 1 else None


def _relative_path(path: str | None, root: str) -> str:
    if not path:
        return "no file"
    return sanitize_line(
        path[len(root) + 1 :] if root and path.startswith(f"{root}/") else path, 120
    )


class RepeatedResult(NamedTuple):
    """A result that was asked for again with the same words."""

    name: str
    times: int
    tokens: int
    """Of all but the first."""
    usd: float
    """What sending all but the first cost."""


class UnusedTool(NamedTuple):
    """A tool whose schema was sent with every call and that was never called."""

    name: str
    tokens: int
    usd: float


def find_repeated_results(session: Session, parts: PromptCosts) -> list[RepeatedResult]:
    """Return what the same call fetched more than once, the dearest first.

    A repeat is no waste by itself: the first may be out of sight, or another command may have
    changed the answer. Results of writing tools have no content and are left out by their size.
    """
    groups: dict[str, list[tuple[ToolCall, int, float]]] = defaultdict(list)
    for held in parts.held:
        if held.answers is not None and held.tokens:
            groups[_request_key(held.answers)].append((held.answers, held.tokens, held.usd))
    out = [
        RepeatedResult(
            describe_call(found[0][0], session.cwd, 100),
            len(found),
            sum(n for _, n, _ in found[1:]),
            sum(usd for *_, usd in found[1:]),
        )
        for found in groups.values()
        if len(found) > 1
    ]
    return sorted(out, key=lambda f: -f.usd)


def find_unused_tools(session: Session, parts: PromptCosts, found: SessionBill) -> list[UnusedTool]:
    """Return tools that were offered and never called, and what sending their schemas cost, about.

    Missing where the log does not list the tools. A schema is counted at a quarter of its
    characters.
    """
    used = {call.name for m in session.messages for call in m.tool_calls}
    sizes = {t.name: -(-count_schema_chars(t) // 4) for t in session.tools}
    whole = max(sum(sizes.values()), parts.fixed_tokens, 1)
    idle = [t for t in session.tools if t.name not in used]
    if not found.charges or not used:
        return []
    rows = [
        UnusedTool(
            sanitize_line(t.name, 60), sizes[t.name], parts.fixed_usd * sizes[t.name] / whole
        )
        for t in idle
    ]
    return sorted(rows, key=lambda u: -u.usd)


def _request_key(call: ToolCall) -> str:
    told = (
        call.raw
        if call.raw is not None
        else json.dumps(call.arguments, sort_keys=True, default=str)
    )
    return f"{call.name}\0{told}"
