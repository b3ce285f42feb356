"""`plots.cache`, `plots.strip`, `plots.idle`: cached tokens by call and block, cost of pauses."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal import formatting_and_sanitizing
from ctxkit._internal.chart_style import COLOURS, PLOTLY_LAYOUT, TEXT_COLOUR
from ctxkit._internal.formatting_and_sanitizing import format_message_number, format_usd, pluralize
from ctxkit.engine.cache_model.call_features import has_hour_writes
from ctxkit.engine.cache_model.input_cost_prediction import (
    SessionInputCostPredictionErrors,
    describe_prediction,
    predict_input_cost,
)
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.cache_misses import find_cache_misses
from ctxkit.metrics.compaction_savings_and_payback import (
    get_replay_compactions,
    get_replay_prompt_and_shared_tokens,
)
from ctxkit.metrics.cost.pause_cost_by_choice import CHOICES, Pause
from ctxkit.metrics.cost.pause_cost_by_choice import idle as price_pauses
from ctxkit.metrics.cost.session_bill import charge_calls
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.plots.chart import Chart, Drawing, add_session_notes, escape_plotly_label
from ctxkit.plots.xy_figure import AXIS_STYLE, Trace, XyDrawing
from ctxkit.session.messages import Message
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import describe_message, pair_with_calls
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.engine.run_segments_and_prompts import SentItem
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session

_MISS_CAUSES = {
    "cold_start": "cold start",
    "ttl_expiry": "cache expired",
    "compaction": "a compaction",
    "prefix_change": "another model",
    "too_short": "too short to be cached before",
    "effort_change": "another effort of thinking",
    "resumed": "session resumed",
    "reasoning_dropped": "old reasoning taken out",
    "changed_earlier": "earlier messages changed",
    "retry": "failed call retried",
    "ttl_expiry_prefix": "expired but for the shared beginning",
    "tools_loaded": "further tools loaded",
    "unexplained": "unexplained",
}

_NO_CACHE_RECORD = "The record does not tell cached from uncached input, so nothing can be said."
_MISS_LOOKS = (0, 3, 5, 6, 8, 11, 13, 14, 15, 16, 19, 21, 7)
"""Looks of the marks: colours other than those of the areas; a repeated colour has another symbol.
"""


class CallCacheUse(NamedTuple):
    """One billed call: its tokens by class, and its cache miss, if any."""

    call: int
    read: int
    written: int
    fresh: int
    miss: str | None
    """Cause of its miss; None: a hit."""
    missed_tokens: int
    """Tokens that had to be sent again."""


@accepts_session
def cache_data(session: Session) -> tuple[CallCacheUse, ...]:
    """Return the tokens that each billed call read and wrote.

    For a replay they follow from the modelled cache of its record. Empty if the record does not
    separate cached from uncached input.
    """
    origin = session.origin or session
    if not origin.has_cache:
        return ()
    misses, charges = find_cache_misses(origin), charge_calls(session)
    if session.origin is None:
        causes = [(None, 0) if miss is None else (miss.kind, miss.missed_tokens) for miss in misses]
        return tuple(
            CallCacheUse(c.call, c.read, c.write, c.fresh, *causes[c.call])
            for c in charges
            if c.prompt
        )
    # A replay has no recorded cache, so its misses are derived. Misses of the record by pauses,
    # models or settings remain, as a replay does not change these. Compactions of the record are
    # replaced by those of the replay. `shared` is the prefix that a prompt shares with earlier
    # prompts, which a cache can serve.
    _, shared = get_replay_prompt_and_shared_tokens(session)
    compacted_calls = {one.call for one in get_replay_compactions(session)}
    out = []
    for c in charges:
        miss = misses[c.call]
        miss_kind = miss.kind if miss is not None and miss.kind != "compaction" else None
        kind = "compaction" if c.call in compacted_calls else miss_kind
        # A cold start is charged with the whole prompt, any other miss with the shared part.
        expected = c.prompt if kind == "cold_start" else min(int(shared[c.call]), c.prompt)
        missed_tokens = max(expected - c.read, 0) if kind else 0
        out.append(CallCacheUse(c.call, c.read, c.write, c.fresh, kind, missed_tokens))
    return tuple(out)


@accepts_session
@add_session_notes
def cache(session: Session) -> Chart:
    """Chart the parts of each prompt that were read from the cache, written to it, or neither.

    Marks are misses, by their cause. For a replay the chart shows the modelled cache of its record.

    Args:
        session: a session whose record separates cached from uncached input, or its replay.

    Returns:
        The chart; its table has a row for each cause, with the tokens that were sent again.

    Raises:
        BadArguments: the argument is no session.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.cache(ck.samples.path()).head
        ('outcome', 'calls', 'tokens sent again')
    """
    data = cache_data(session)
    p = (
        predict_input_cost(session.origin or session)
        if data
        else SessionInputCostPredictionErrors()
    )
    trust = describe_prediction(p.error, p.low, p.high, p.why)
    return _draw_cache(get_title(session), data, trust, replayed=session.origin is not None)


def _draw_cache(name: str, data: Sequence[CallCacheUse], trust: str, *, replayed: bool) -> Chart:
    def hover(k: int) -> str:
        c = data[k]
        missed = f"{c.missed_tokens:,} tokens again"
        why = f"\nmissed: {_MISS_CAUSES[c.miss]}, {missed}" if c.miss else ""
        return f"call {c.call}\nread {c.read:,}\nwritten {c.written:,}\nfresh {c.fresh:,}{why}"

    places = [c.call for c in data]
    stacks = [("read", [c.read for c in data], 2), ("written", [c.written for c in data], 1)]
    stacks.append(("fresh", [c.fresh for c in data], 4))
    traces = [
        Trace(name=n, x=places, y=y, kind="area", colour=COLOURS[i], hover=hover)
        for n, y, i in stacks
        if any(y)
    ]
    traces += [
        _miss_trace(kind, data, i)
        for kind, i in zip(_MISS_CAUSES, _MISS_LOOKS, strict=True)
        if any(c.miss == kind for c in data)
    ]
    source = (
        "as the record's cache behaviour would have it (derived)" if replayed else "as recorded"
    )
    caption = (
        "Tokens of each prompt: read from the cache, written to it, or fresh (in neither), "
        f"{source}. Marks are misses: what had been cached was sent again."
    )
    axes = XyDrawing(x="call", y="tokens in the prompt", traces=tuple(traces), stacked=True)
    return Chart(
        title=f"Prompt cache of {name}",
        caption=caption if data else _NO_CACHE_RECORD,
        notes=(trust,) if data else (),
        drawing=axes,
        head=("outcome", "calls", "tokens sent again"),
        rows=tuple(_miss_rows(data)),
    )


def _miss_trace(kind: str, data: Sequence[CallCacheUse], i: int) -> Trace:
    def hover(k: int) -> str:
        return f"call {data[k].call}\n{_MISS_CAUSES[kind]}\n{data[k].missed_tokens:,} tokens again"

    heights = [c.read + c.written + c.fresh if c.miss == kind else None for c in data]
    return Trace(
        name=_MISS_CAUSES[kind],
        x=[c.call for c in data],
        y=heights,
        kind="points",
        hover=hover,
        look=i,
    )


def _miss_rows(data: Sequence[CallCacheUse]) -> list[tuple[str, ...]]:
    hits = [c for c in data if c.miss is None]
    out: list[tuple[str, ...]] = [("hit", f"{len(hits):,}", "0")] if data else []
    for kind, words in _MISS_CAUSES.items():
        missed = [c for c in data if c.miss == kind]
        if missed:
            out.append((words, f"{len(missed):,}", f"{sum(c.missed_tokens for c in missed):,}"))
    return out


BILLING_KINDS = (("read", COLOURS[2]), ("written", COLOURS[1]), ("fresh", COLOURS[4]))
"""Billing classes of the tokens of a prompt, in prompt order, with their colours."""
_IN_NO_MESSAGE = "in no message: system prompt, schemas of tools"


class PromptBlock(NamedTuple):
    """A message of a prompt, and the position of its first token."""

    name: str
    start: int
    tokens: int
    result: bool
    """True for the result of a tool."""


class PromptStrip(NamedTuple):
    """One prompt."""

    call: int
    blocks: tuple[PromptBlock, ...]
    read: int
    written: int
    fresh: int

    @property
    def tokens(self) -> int:
        """Tokens of the prompt, as billed."""
        return self.read + self.written + self.fresh

    def split_by_billing(self) -> tuple[BlockSpan, ...]:
        """Return the blocks, split where the billing class changes."""
        ends = (self.read, self.read + self.written, self.tokens)
        return tuple(span for block in self.blocks for span in _split_block(block, ends))


def _split_block(block: PromptBlock, ends: tuple[int, int, int]) -> Iterable[BlockSpan]:
    at, stop = block.start, block.start + block.tokens
    # Intersection of intervals: `ends` are ascending, and `at` moves to the end of each part.
    for kind, end in enumerate(ends):
        part = min(stop, end) - at
        if part > 0:
            yield BlockSpan(at, part, kind, block.name)
            at += part


@accepts_session
def get_prompt_strip(session: Session, call: int = -1) -> PromptStrip:
    """Return the blocks of one prompt, and its tokens that were read, written and fresh.

    Args:
        session: a recorded session with cache usage.
        call: number of the call; -1: the last.

    Returns:
        Blocks in order of the prompt; their tokens add up to the billed ones.

    Raises:
        BadArguments: there is no such call, or the log does not show what was cached.
    """
    at = session.call(call).index
    billed = next((c for c in cache_data(session) if c.call == at), None)
    if billed is None:
        raise BadArguments(f"Nothing says what call {at} read from the cache.")
    total = billed.read + billed.written + billed.fresh
    items = session.sent(at)
    pairs = pair_with_calls(i.message for i in items)
    positions = [i for i, e in enumerate(session.path) if isinstance(e, Message) and e.visible]

    def describe(item: SentItem, call: ToolCall | None) -> str:
        if item.message.kind == "fixed":
            return _IN_NO_MESSAGE
        position = positions[item.row] if 0 <= item.row < len(positions) else None
        description = describe_message(item.message, call, session.cwd)
        return f"{format_message_number(position)} {description}"

    names = [describe(item, call) for item, (_, call) in zip(items, pairs, strict=True)]
    sizes = [i.tokens for i in items]
    # Tokens billed in addition to the messages are in front of them.
    outside = max(total - sum(sizes), 0)
    blocks, start = [], 0
    rows = [(_IN_NO_MESSAGE, outside, False)] if outside else []
    rows += [
        (name, n, i.message.role == "tool") for name, n, i in zip(names, sizes, items, strict=True)
    ]
    for name, tokens, result in rows:
        # Sizes are derived, so the last blocks are truncated if their sum exceeds the bill.
        size = min(tokens, total - start)
        if size > 0:
            blocks.append(PromptBlock(name, start, size, result))
            start += size
    return PromptStrip(at, tuple(blocks), billed.read, billed.written, billed.fresh)


@accepts_session
@add_session_notes
def strip(session: Session, call: int = -1) -> Chart:
    """Chart one prompt as a strip: one block per message, coloured by the billing of its tokens.

    Args:
        session: a session whose record separates cached from uncached input, or its replay.
        call: number of the call, negative from the end.

    Returns:
        The chart; its table has the tokens and dollars that were read, written and fresh.

    Raises:
        BadArguments: there is no such call, or the log does not show what was cached.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.strip(ck.samples.path(), 150).rows[0]
        ('read', '34,442', '100 %', '$0.01')
    """
    data = get_prompt_strip(session, call)
    source = "as the record's cache would have it (derived)" if session.origin else "as recorded"
    return Chart(
        title=f"Prompt of call {data.call} of {get_title(session)}",
        caption=f"{data.tokens:,} tokens in {len(data.blocks):,} blocks, {source}. "
        "Sizes of blocks are derived.",
        drawing=BlockRowsDrawing(
            kinds=BILLING_KINDS, rows=(BlockRow("", data.split_by_billing()),)
        ),
        head=("billed as", "tokens", "of the prompt", "dollars"),
        rows=_billing_rows(data, session),
    )


def _billing_rows(data: PromptStrip, session: Session) -> tuple[tuple[str, ...], ...]:
    call = session.call(data.call)
    table = price(call.message.model or session.model, at=call.message.time)
    p = table and table.at(data.tokens)
    hour = has_hour_writes(session, call)
    paid = (p.read, p.write(hour=hour), p.input) if p else (None, None, None)
    rows = zip(BILLING_KINDS, (data.read, data.written, data.fresh), paid, strict=True)
    return tuple(
        (
            name,
            f"{n:,}",
            formatting_and_sanitizing.format_share(n, data.tokens),
            formatting_and_sanitizing.format_usd(None if each is None else n * each),
        )
        for (name, _), n, each in rows
    )


_STILL_ROW = 62
_BAR_SHARE = 0.5
"""Height of a bar, as a share of its row; the rest is for its totals."""
_TOTAL_WIDTH, _CHARACTER_WIDTH = 0.18, 0.0105
"""Maximum width of a total below the bar and width of one of its characters, as shares of the
chart's width."""


class BlockSpan(NamedTuple):
    """A block, or a part of it in one billing class."""

    start: int
    tokens: int
    kind: int
    """Index of its kind in the strip."""
    description: str
    """Hover text; untrusted."""


class BlockRow(NamedTuple):
    """One prompt."""

    name: str
    spans: tuple[BlockSpan, ...]


@dataclass(frozen=True, kw_only=True)
class BlockRowsDrawing(Drawing):
    """Prompts as rows of blocks on a common scale."""

    kinds: tuple[tuple[str, str], ...]
    """Name and colour of each kind, in prompt order."""
    rows: tuple[BlockRow, ...]

    def plotly(self) -> dict[str, Any]:
        """Return data and layout: one trace per kind, with its total below its first block."""
        data, totals = [], []
        for kind, (name, ink) in enumerate(self.kinds):
            blocks = [(row.name, s) for row in self.rows for s in row.spans if s.kind == kind]
            if blocks:
                data.append(_block_trace(name, ink, blocks))
        for i, row in enumerate(self.rows):
            totals += self._make_totals(i, row)
        many = len(self.rows) > 1
        layout = {
            "barmode": "overlay",
            **PLOTLY_LAYOUT,
            "height": 170 + 70 * len(self.rows),
            "margin": {"l": 90 if many else 12, "r": 12, "t": 44, "b": 84},
            "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
            "annotations": totals,
            "xaxis": {
                **AXIS_STYLE,
                "title": {"text": "tokens from the beginning of the prompt"},
                "range": [0, self._last_token()],
                "showgrid": False,
                "separatethousands": True,
            },
            "yaxis": {
                **AXIS_STYLE,
                "type": "category",
                "range": [max(len(self.rows), 1) - 0.4, -0.35],
                "showgrid": False,
                "showticklabels": many,
                "fixedrange": True,
            },
        }
        return {"data": data, "layout": layout}

    @property
    def still_height(self) -> int:
        """Pixels of the static picture."""
        return 50 + _STILL_ROW * max(len(self.rows), 1)

    def _last_token(self) -> int:
        return max((s.start + s.tokens for row in self.rows for s in row.spans), default=1) or 1

    # Totals must not overlap, and each begins where its kind does. They are placed in the order of
    # the first blocks; `free` is the end of the previous total. Where a total and those that follow
    # would not fit, it and they are laid out from the right end, one beside the other.
    def _make_totals(self, i: int, row: BlockRow) -> list[dict[str, Any]]:
        """Return the tokens of each kind in a row as texts below the kind's first block."""
        starts = {s.kind: s.start for s in reversed(row.spans)}
        sums = {k: sum(s.tokens for s in row.spans if s.kind == k) for k in sorted(starts)}
        kinds = sorted((k for k in sums if sums[k]), key=starts.__getitem__)
        texts = [f"{escape_plotly_label(self.kinds[k][0])} {sums[k]:,}" for k in kinds]
        widths = [min(_CHARACTER_WIDTH * (len(text) + 1), _TOTAL_WIDTH) for text in texts]
        notes, free = [], 0.0
        for n, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
            place = max(starts[kind] / self._last_token(), free)
            is_at_end = place + sum(widths[n:]) >= 1
            place = 1 - sum(widths[n + 1 :]) if is_at_end else place
            free = place + widths[n] * (not is_at_end)
            notes.append(
                {
                    "x": place * self._last_token(),
                    "y": i + _BAR_SHARE / 2,
                    "text": text,
                    "xanchor": "right" if is_at_end else "left",
                    "yanchor": "top",
                    "showarrow": False,
                    "font": {"size": 11, "color": TEXT_COLOUR},
                }
            )
        return notes


def _block_trace(name: str, ink: str, blocks: Sequence[tuple[str, BlockSpan]]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "width": _BAR_SHARE,
        "name": escape_plotly_label(name),
        "y": [escape_plotly_label(row, 40) for row, _ in blocks],
        "x": [s.tokens for _, s in blocks],
        "base": [s.start for _, s in blocks],
        "hovertext": [
            f"{escape_plotly_label(s.description, 120)}<br>"
            f"{s.tokens:,} tokens {escape_plotly_label(name)}"
            for _, s in blocks
        ],
        "hoverinfo": "text",
        "marker": {"color": ink, "line": {"width": 0.6, "color": "rgba(128,128,128,0.6)"}},
    }


@register_view_values("plots.cache")
def _read_figures(session: Session) -> dict[str, Any]:
    uses = cache_data(session)
    if not uses:
        return {}
    read, written = sum(use.read for use in uses), sum(use.written for use in uses)
    return {"cache_read_tokens": read, "written_tokens": written}


MAX_PAUSE_MINUTES = 90
"""Longest pause of the chart."""
_STEPS = 4
"""Lengths of a minute that are drawn."""


@add_session_notes
def idle(sessions: SessionsLike) -> Chart:
    """Chart the dollars of a typical pause by its length, for each choice.

    Args:
        sessions: sessions of one person, as for `ck.metrics.idle`.

    Returns:
        The chart; its table has the dollars of all pauses by choice.

    Raises:
        BadArguments: no pause can be priced.

    Example:
        >>> import ctxkit as ck
        >>> [row[0] for row in ck.plots.idle(ck.samples.path("billing")).rows][0]
        'do nothing'
    """
    ledger = price_pauses(sessions)
    pause = _get_typical_pause(ledger.returns or ledger.pauses)
    minutes = [i / _STEPS for i in range(1, MAX_PAUSE_MINUTES * _STEPS + 1)]
    traces = []
    for look, (name, words) in enumerate(CHOICES.items()):
        costs = [pause.cost(name, 60 * m) for m in minutes]
        if costs[0] is not None:
            traces.append(Trace(name=words, x=minutes, y=costs, look=look, marked=False))
    returns = [p.gap / 60 for p in ledger.returns if p.gap <= 60 * MAX_PAUSE_MINUTES]
    if returns:
        traces.append(
            Trace(name="your pauses", x=returns, y=[0.0] * len(returns), kind="points", look=4)
        )
    totals, longer_n = ledger.choices_usd, len(ledger.returns) - len(returns)
    longer = f" ({longer_n:,} longer than {MAX_PAUSE_MINUTES} minutes not drawn)" * bool(longer_n)
    return Chart(
        title="What a pause costs",
        caption=(
            f"Dollars of one pause with {pause.prefix:,} tokens in the cache, by its length;"
            f" {pluralize(len(ledger.returns), 'pause')}{longer}. {ledger.answer}"
        ),
        drawing=XyDrawing(
            x="minutes until the next call",
            y="dollars",
            traces=tuple(traces),
            y_small=True,
            y_dollars=True,
        ),
        head=("choice", "all pauses"),
        rows=tuple((CHOICES[name], format_usd(totals[name] or 0.0)) for name in ledger.order),
    )


def _get_typical_pause(pauses: tuple[Pause, ...]) -> Pause:
    """Return the last pause with the median prefix of all."""
    return pauses[-1]._replace(
        prefix=round(median(p.prefix for p in pauses)),
        still_cached=round(median(p.still_cached for p in pauses)),
        written_tokens_since_previous_pause=round(
            median(p.written_tokens_since_previous_pause for p in pauses)
        ),
        compacted_tokens=round(median(p.compacted_tokens for p in pauses)),
    )
