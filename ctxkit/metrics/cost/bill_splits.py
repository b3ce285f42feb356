"""Splits of a bill by message, turn, tool, file, server, cache, model, agent and section; waste."""

# Every split adds up to the bill: dollars that belong to no part are a separate part.

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit._internal.chart_style import COLOURS, choose_text_colour
from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_duration,
    format_percent,
    format_usd,
    sanitize_line,
)
from ctxkit.engine.cache_model.call_features import PAUSE_CAUSES
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.cost.call_and_summary_charges import find_read_price
from ctxkit.metrics.prompt_composition import split_message_tokens
from ctxkit.session.messages import Edit, Message, Text, Thinking, ToolCall
from ctxkit.session.session import apply_edit
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import (
    describe_call,
    get_call_path,
    pair_with_calls,
)
from ctxkit.tokens.message_sizes_from_recorded_prompts import estimate_tool_tokens, measure_sizes
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ctxkit.metrics.cache_misses import CacheMiss
    from ctxkit.metrics.cost.call_and_summary_charges import CallCharge, SessionBill
    from ctxkit.session.session import Session

    Floats = NDArray[np.float64]


NOT_IN_LOG = "system prompt and tools (not in the log)"
LOG_TOTAL = "the log's own total, which it does not split"
SUMMARIES = "summaries"
_OUTPUT = "output"
_MCP_TOOL = re.compile(r"mcp__(.+?)__(.+)")
_RESENT_PARTS: dict[str, str] = {
    **dict.fromkeys(PAUSE_CAUSES, "sent again after a pause"),
    "resumed": "sent again after the session was resumed",
    "compaction": "sent again after a compaction",
    "cold_start": "first sent, nothing cached",
    "unexplained": "sent again, no cause found",
}
"""Names of the parts of a bill that caches did not save, by the kind of the miss."""


def describe_resend_cause(kind: str) -> str:
    """Return the words for tokens that were sent again, by the kind of the cache miss."""
    return _RESENT_PARTS.get(kind, f"sent again: {kind.replace('_', ' ')}")


class BillPart(NamedTuple):
    """A part of the bill."""

    name: str
    usd: float
    n: int
    """Number of calls or results."""
    hover: str = ""


class PricedCacheMiss(NamedTuple):
    """The tokens that a call sent again because they were not in the cache."""

    miss: CacheMiss
    sent_usd: float
    """Dollars of sending them."""
    usd: float
    """Dollars above the price of reading them from the cache."""


def split_by_turn(session: Session, bill: SessionBill, prompts: dict[int, str]) -> list[BillPart]:
    """Return dollars by turn; summaries are a separate part.

    Args:
        session: the session of the bill.
        bill: its charges.
        prompts: the user's prompt of each turn.
    """
    turns = [c.turn for c in session.calls]
    names = {t: f"{t}: {sanitize_line(prompts.get(t, 'no words'), 90)}" for t in turns}
    hover = {name: prompts.get(t, "") for t, name in names.items()}
    return _split_by(bill, lambda c: names[turns[c.call]], hover)


def split_by_model(session: Session, bill: SessionBill) -> list[BillPart]:
    """Return dollars by the model that answered.

    Args:
        session: names the models of the calls.
        bill: its bill.
    """
    return _split_by(
        bill,
        lambda c: sanitize_line(
            session.calls[c.call].message.model or session.model or "unknown", 60
        ),
    )


def split_by_agent(session: Session, bill: SessionBill) -> list[BillPart]:
    """Return dollars by the agent that made the calls.

    Args:
        session: names the agents of the calls.
        bill: its bill.
    """
    return _split_by(bill, lambda c: sanitize_line(session.calls[c.call].agent, 60))


def split_by_tool(
    session: Session, bill: SessionBill, prompt_costs: PromptCostsByMessage
) -> list[BillPart]:
    """Return dollars by purpose: results of each tool, messages by role, tokens in no log.

    The output of a reply is shared among the tools that it calls.

    Args:
        session: the session.
        bill: its bill.
        prompt_costs: dollars of each message in prompts.
    """
    rows = _PartSums()
    for cost in prompt_costs.message_costs:
        rows.add(_tool_of(cost.message), cost.usd, bool(cost.message.call_id))
    for charge in _priced(bill):
        message = session.calls[charge.call].message
        for name, share in _output_shares(message):
            rows.add(name, share * (charge.output_usd or 0.0), 0)
    rows.add(NOT_IN_LOG, prompt_costs.fixed_usd, 0)
    return _largest_first([*rows.prompt_costs(), *_summaries(bill)])


def split_by_server(rows: Iterable[BillPart]) -> list[BillPart]:
    """Return dollars by MCP server, from dollars by tool; all other tools are one part."""
    sums = _PartSums()
    for row in rows:
        server = _MCP_TOOL.fullmatch(row.name)
        sums.add(server[1] if server else "no MCP server", row.usd, row.n)
    return _largest_first(sums.prompt_costs())


def split_by_file(
    session: Session, bill: SessionBill, prompt_costs: PromptCostsByMessage
) -> list[BillPart]:
    """Return dollars by the file that a tool call names; all other dollars are one part.

    Args:
        session: the session; paths are relative to its folder.
        bill: its bill.
        prompt_costs: dollars of each message in prompts.
    """
    rows, root = _PartSums(), (session.cwd or "").rstrip("/")
    for cost in prompt_costs.message_costs:
        path = get_call_path(cost.tool_call) if cost.tool_call else _only_path(cost.message)
        rows.add(_relative_path(path, root), cost.usd, bool(path))
    for charge in _priced(bill):
        path = _only_path(session.calls[charge.call].message)
        rows.add(_relative_path(path, root), charge.output_usd or 0.0, 0)
    rows.add("no file", prompt_costs.fixed_usd + bill.priced_summaries_usd, 0)
    return _largest_first(rows.prompt_costs())


def split_by_section(bill: SessionBill, prompt_costs: PromptCostsByMessage) -> list[BillPart]:
    """Return dollars by section of the system message; all other dollars are one part.

    Args:
        bill: the bill of a session.
        prompt_costs: dollars of each message in prompts.
    """
    rows, rest = _PartSums(), (bill.priced_usd or 0.0) - prompt_costs.fixed_usd
    for cost in prompt_costs.message_costs:
        if cost.message.role == "system":
            pieces = split_message_tokens(cost.message, max(cost.tokens, 1))
            section_tokens = sum(n for _, n in pieces) or 1
            for piece, n in pieces:
                rows.add(
                    sanitize_line(piece.name or piece.group, 80),
                    cost.usd * n / section_tokens,
                    cost.sent_n,
                )
            rest -= cost.usd if pieces else 0.0
    rows.add(NOT_IN_LOG, prompt_costs.fixed_usd, 0)
    rows.add("all else", rest, 0)
    return _largest_first(rows.prompt_costs())


def split_by_cache(
    session: Session, bill: SessionBill, resent: list[PricedCacheMiss]
) -> list[BillPart]:
    """Return dollars by cache outcome: read, new, sent again (by cause), output.

    Args:
        session: the session.
        bill: its bill.
        resent: the tokens that calls sent again because of a cache miss.
    """
    rows, resent_by_call = _PartSums(), {r.miss.call: r for r in resent}
    for charge in _priced(bill):
        rows.add(_OUTPUT, charge.output_usd or 0.0, 1)
        new_usd = (charge.write_usd or 0.0) + (charge.fresh_usd or 0.0)
        read_usd = charge.read_usd or 0.0
        if charge.call in resent_by_call:
            miss, resent_usd, _ = resent_by_call[charge.call]
            rows.add(
                describe_resend_cause(miss.kind),
                resent_usd,
                1,
            )
            new_usd -= resent_usd
        rows.add("read from the cache" if session.has_cache else "prompts", read_usd, 1)
        rows.add("new in the prompt" if session.has_cache else "prompts", new_usd, 1)
    return _largest_first([*(p for p in rows.prompt_costs() if p.usd), *_summaries(bill)])


def price_cache_misses(session: Session, bill: SessionBill) -> list[PricedCacheMiss]:
    """Return the tokens sent again at each miss, with their cost above that of reading them.

    Args:
        session: a recorded session.
        bill: its bill.
    """
    charges, calls = {c.call: c for c in _priced(bill)}, session.calls
    out = []
    for miss in find_cache_misses(session.origin or session):
        charge = charges.get(miss.call) if miss is not None else None
        if miss is None or charge is None or not miss.missed_tokens:
            continue
        tokens = charge.write + charge.fresh
        if not tokens:
            continue
        new_price = ((charge.write_usd or 0.0) + (charge.fresh_usd or 0.0)) / tokens
        message = calls[miss.call].message
        model_price = price(message.model or session.model, at=message.time)
        read_price = find_read_price(charge, model_price)
        missed = min(miss.missed_tokens, tokens)
        out.append(
            PricedCacheMiss(miss, missed * new_price, missed * max(new_price - read_price, 0.0))
        )
    return out


def split_by_subagent(
    session: Session, bill: SessionBill, children: list[tuple[Session, float]]
) -> list[BillPart]:
    """Return dollars of the session itself, and of the session of each subagent.

    Args:
        session: the session of the main agent.
        bill: its bill, without subagents.
        children: sessions of subagents, each with its US dollars.
    """
    parent = BillPart(f"{get_title(session)} itself", (bill.priced_usd or 0.0), len(bill.charges))
    rows = [
        BillPart(get_title(c), usd, len(c.calls), f"id {sanitize_line(c.id, 80)}")
        for c, usd in children
    ]
    return _largest_first([parent, *rows])


def format_pause_range(resent: Iterable[PricedCacheMiss]) -> str:
    """Return the range of the pauses in parentheses; empty without times."""
    gaps = [r.miss.gap for r in resent if r.miss.gap is not None]
    range_ends = (
        dict.fromkeys((format_duration(min(gaps)), format_duration(max(gaps)))) if gaps else ()
    )
    return f" ({' to '.join(range_ends)})" if range_ends else ""


class _PartSums:
    """Sums of dollars and counts by the name of a part."""

    def __init__(self) -> None:
        self._usd, self._n = defaultdict[str, float](float), defaultdict[str, int](int)

    def add(self, name: str, usd: float, n: int) -> None:
        self._usd[name] += usd
        self._n[name] += n

    def prompt_costs(self) -> list[BillPart]:
        return [BillPart(name, usd, self._n[name]) for name, usd in self._usd.items()]


def _split_by(
    bill: SessionBill, key: Callable[[CallCharge], str], hover: Mapping[str, str] | None = None
) -> list[BillPart]:
    rows = _PartSums()
    for charge in _priced(bill):
        rows.add(key(charge), charge.usd or 0.0, 1)
    parts = (p._replace(hover=(hover or {}).get(p.name, "")) for p in rows.prompt_costs())
    return _largest_first([*parts, *_summaries(bill)])


def _priced(bill: SessionBill) -> Iterator[CallCharge]:
    return (c for c in bill.charges if c.usd is not None)


def _summaries(bill: SessionBill) -> list[BillPart]:
    n = len(bill.summaries) - bill.unpriced_summaries_n
    return (
        [BillPart(SUMMARIES, bill.priced_summaries_usd, n, "calls that wrote summaries")]
        if n
        else []
    )


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
    """Return the tools that a reply calls, with shares by characters that sum to 1."""
    weights: dict[str, float] = defaultdict(float)
    for part in message.parts:
        if isinstance(part, ToolCall):
            weights[sanitize_line(part.name, 60)] += len(part.name) + len(
                part.raw or str(part.arguments)
            )
        elif isinstance(part, (Text, Thinking)):
            weights["replies"] += len(part.text)
    total = sum(weights.values())
    return [(name, w / total) for name, w in weights.items()] if total else [("replies", 1.0)]


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


class RepeatedCall(NamedTuple):
    """The results of one tool call that was made several times with the same arguments."""

    name: str
    times: int
    tokens: int
    """Tokens of all results but the first."""
    usd: float
    """Dollars of sending all results but the first."""


class UnusedTool(NamedTuple):
    """A tool whose schema was sent with every call and that was never called."""

    name: str
    tokens: int
    usd: float


def find_repeated_calls(session: Session, prompt_costs: PromptCostsByMessage) -> list[RepeatedCall]:
    """Return the results that were fetched more than once, the most expensive first.

    A repeat is not always waste: the first result may have left the prompt, or another command may
    have changed the answer. Results without content, such as those of writes, are left out.

    Args:
        session: a session with its messages.
        prompt_costs: dollars of each message in prompts.
    """
    results_by_request: dict[str, list[tuple[ToolCall, int, float]]] = defaultdict(list)
    for cost in prompt_costs.message_costs:
        if cost.tool_call is not None and cost.tokens:
            results_by_request[_request_key(cost.tool_call)].append(
                (cost.tool_call, cost.tokens, cost.usd)
            )
    out = [
        RepeatedCall(
            describe_call(results[0][0], session.cwd, 100),
            len(results),
            sum(n for _, n, _ in results[1:]),
            sum(usd for *_, usd in results[1:]),
        )
        for results in results_by_request.values()
        if len(results) > 1
    ]
    return sorted(out, key=lambda f: -f.usd)


def find_unused_tools(
    session: Session, prompt_costs: PromptCostsByMessage, bill: SessionBill
) -> list[UnusedTool]:
    """Return tools that were offered and never called, with the estimated cost of their schemas.

    Empty if the log does not list the tools. The tokens of a schema are a quarter of its
    characters.

    Args:
        session: a session whose log lists the offered tools.
        prompt_costs: dollars of each message in prompts.
        bill: the session's bill.
    """
    used = {call.name for m in session.messages for call in m.tool_calls}
    sizes = {
        t.name: n for t, n in zip(session.tools, estimate_tool_tokens(session.tools), strict=True)
    }
    fixed_tokens = max(sum(sizes.values()), prompt_costs.fixed_tokens, 1)
    idle = [t for t in session.tools if t.name not in used]
    if not bill.charges or not used:
        return []
    rows = [
        UnusedTool(
            sanitize_line(t.name, 60),
            sizes[t.name],
            prompt_costs.fixed_usd * sizes[t.name] / fixed_tokens,
        )
        for t in idle
    ]
    return sorted(rows, key=lambda u: -u.usd)


def _request_key(call: ToolCall) -> str:
    arguments = (
        call.raw
        if call.raw is not None
        else json.dumps(call.arguments, sort_keys=True, default=str)
    )
    return f"{call.name}\0{arguments}"


# Attribution of prompt dollars to messages
#
# A prompt consists of the fixed part (system prompt and tools that are not in the log), then the
# messages in order. Its tokens are billed from the front: first those read from the cache, then
# those written, then those sent fresh. Each message pays for the tokens of its own interval, at the
# price of their class; message sizes are scaled to the billed size of the prompt. So the dollars of
# all messages and the fixed part add up to the dollars of all prompts. Each call takes O(messages
# in its prompt), as array operations.


class MessageCost(NamedTuple):
    """A message, and the cost of sending it in all prompts that held it."""

    message: Message
    tool_call: ToolCall | None
    """The tool call that it answers."""
    tokens: int
    sent_n: int
    """Calls whose prompt held it."""
    usd: float


class PromptCostsByMessage(NamedTuple):
    """All dollars of a session's prompts, by message and for the fixed part."""

    message_costs: tuple[MessageCost, ...]
    fixed_usd: float
    """Dollars of the system prompt and tool schemas that are not in the log."""
    fixed_tokens: int
    """Their tokens at the first call."""


# Replays the visible messages entry by entry. At each billed call the prompt is laid out in order,
# the fixed part first, and the bill's classes (read, write, uncached) over the same length in that
# order; a part costs what its overlap with each class costs (`_dollars_by_part`). So the front of a
# prompt gets the cheap reads, as the cache works by prefix. Invariant: parts of a call add up to
# its prompt cost. Cost: O(messages in the prompt) per call; the sums are arrays that double when
# full.
def attribute_prompt_costs(session: Session, charges: Sequence[CallCharge]) -> PromptCostsByMessage:
    """Return the cost of each message in prompts; together they are the cost of all prompts.

    Args:
        session: a session with its messages.
        charges: the billed calls.
    """
    sizes, charge_of_call = measure_sizes(session), {c.call: c for c in charges}
    messages: list[Message] = []
    tokens: list[int] = []
    number_of: dict[int, int] = {}

    def number_message(message: Message) -> int:
        if id(message) not in number_of:
            number_of[id(message)] = len(messages)
            messages.append(message)
            tokens.append(max(sizes.of(message), 0))
        return number_of[id(message)]

    visible: list[Message] = []
    visible_numbers: list[int] = []
    usd, sent_n, fixed_usd = np.zeros(256), np.zeros(256, np.int64), 0.0
    call = 0
    for entry in session.path:
        if isinstance(entry, Edit):
            visible = apply_edit(visible, entry)
            visible_numbers = [number_message(m) for m in visible]
            continue
        if entry.role == "assistant":
            charge = charge_of_call.get(call)
            if charge is not None and charge.usd is not None:
                while len(usd) < len(messages):  # double the arrays
                    usd = np.concatenate([usd, np.zeros_like(usd)])
                    sent_n = np.concatenate([sent_n, np.zeros_like(sent_n)])
                numbers = np.array(visible_numbers, np.int64)
                fixed = max(sizes.fixed_at[call], 0) if call < len(sizes.fixed_at) else 0
                parts = np.array([fixed, *(tokens[i] for i in visible_numbers)], float)
                part_usd = _dollars_by_part(charge, parts)
                fixed_usd += float(part_usd[0])
                np.add.at(usd, numbers, part_usd[1:])
                np.add.at(sent_n, numbers, 1)
            call += 1
        if entry.visible:
            visible.append(entry)
            visible_numbers.append(number_message(entry))
    tool_call_of = {id(m): c for m, c in pair_with_calls(session.messages)}
    unsent = len(messages)  # the arrays can be shorter than the messages
    times, dollars = [*sent_n.tolist(), *[0] * unsent], [*usd.tolist(), *[0.0] * unsent]
    costs = tuple(
        MessageCost(message, tool_call_of.get(id(message)), size, n, cost)
        for message, size, n, cost in zip(messages, tokens, times, dollars, strict=False)
    )
    return PromptCostsByMessage(costs, fixed_usd, max(sizes.fixed or 0, 0))


def _dollars_by_part(charge: CallCharge, parts: Floats) -> Floats:
    """Return the dollars of each part of a prompt from the parts' sizes; they sum to its cost."""
    classes = np.array([charge.read, charge.write, charge.fresh], float)
    dollars = np.array([charge.read_usd or 0.0, charge.write_usd or 0.0, charge.fresh_usd or 0.0])
    total, part_usd = parts.sum(), np.zeros(len(parts))
    if total and classes.sum():
        part_edges = np.concatenate([[0.0], np.cumsum(parts)]) * (classes.sum() / total)
        class_edges = np.concatenate([[0.0], np.cumsum(classes)])
        for k in range(3):
            if classes[k]:  # the overlap of each part with the interval of the class
                overlap = np.diff(np.clip(part_edges, class_edges[k], class_edges[k + 1]))
                part_usd += overlap * (dollars[k] / classes[k])
    # The fixed part takes rounding errors, and dollars of a class without tokens.
    part_usd[0] += dollars.sum() - part_usd.sum()
    return part_usd


def render_bill_treemap(parts: list[BillPart], total: float) -> str:
    """Return a treemap of the bill as SVG, with areas in proportion to shares.

    Args:
        parts: the parts of the bill.
        total: dollars of the whole bill.
    """
    cells = [p for p in parts if p.usd > 0.004 * total][:24]
    boxes = _tile_rectangles([p.usd for p in cells], 0.0, 0.0, 720.0, 150.0)
    cells_svg = []
    for i, (p, (x, y, w, h)) in enumerate(zip(cells, boxes, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        tooltip = escape_html(
            f"{p.name}: {format_usd(p.usd)}, {format_percent(p.usd / total)}", 200
        )
        max_chars = int((w - 8) / 7)
        name = sanitize_line(p.name, max_chars) if max_chars >= 4 and h >= 16 else ""
        cells_svg.append(
            f'<g><title>{tooltip}</title><rect x="{x:.1f}" y="{y:.1f}" width="{max(w - 1, 0):.1f}" '
            f'height="{max(h - 1, 0):.1f}" fill="{colour}"/><text x="{x + 4:.1f}" y="{y + 13:.1f}" '
            f'style="fill:{choose_text_colour(colour)};font:11px system-ui,sans-serif">'
            f"{escape_html(name)}</text></g>"
        )
    return (
        f'{_NARROW_PAGE_STYLE}<div style="font-size:0"><svg class="ctxkit-treemap" xmlns="http://www.w3.org/2000/svg"'
        ' viewBox="0 0 720 150" role="img" aria-label="The bill by tool"'
        f' style="width:100%;max-width:1000px;height:auto">{"".join(cells_svg)}</svg></div>'
    )


def _tile_rectangles(
    sizes: list[float], x: float, y: float, w: float, h: float
) -> list[tuple[float, float, float, float]]:
    """Return a rectangle for each size, largest first, within one at x, y of width w and height h.

    Sizes are split recursively into halves of about equal sum, along the longer side.
    """
    if not sizes:
        return []
    if len(sizes) == 1:
        return [(x, y, w, h)]
    total, first, n = sum(sizes), sizes[0], 1
    while n < len(sizes) - 1 and first + sizes[n] / 2 < total / 2:
        first, n = first + sizes[n], n + 1
    share = first / total if total else 0.5
    if w >= h:
        cut = w * share
        return [
            *_tile_rectangles(sizes[:n], x, y, cut, h),
            *_tile_rectangles(sizes[n:], x + cut, y, w - cut, h),
        ]
    cut = h * share
    return [
        *_tile_rectangles(sizes[:n], x, y, w, cut),
        *_tile_rectangles(sizes[n:], x, y + cut, w, h - cut),
    ]


_NARROW_PAGE_STYLE = "<style>@media(max-width:560px){.ctxkit-treemap{display:none}}</style>"
"""Hides the picture where its words would be too small; the table by tool says the same."""
