"""`ctxkit.explore`: browse the calls of a session, see what fills each prompt, search messages."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import traitlets as t

from ctxkit._internal.chart_style import GROUP_COLOURS
from ctxkit._internal.formatting_and_sanitizing import (
    escape_html,
    format_message_number,
    format_percent,
    pluralize,
    render_notes_html,
    sanitize_line,
)
from ctxkit.metrics.prompt_composition import GROUPS
from ctxkit.plots.label_placement_and_thinning import decimate_points
from ctxkit.plots.plotly_to_svg import render_svg_html
from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing
from ctxkit.session.messages import Edit
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import describe_call
from ctxkit.widgets.base_widget import TEXT_COLOUR, ChartWidget, build_javascript_module
from ctxkit.widgets.data_source import WidgetDataSource
from ctxkit.widgets.explorer_messages_and_search import (
    MAX_TEXT_CHARS,
    ExplorerSession,
    FilterResult,
    MessageFilter,
    count_filter_choices,
    describe_session_tree,
    filter_messages,
    format_full_text,
    get_message_preview,
    is_failed_message,
    list_session_tree,
)
from ctxkit.widgets.python_to_javascript import ROWS_PER_CHUNK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session
    from ctxkit.widgets.explorer_messages_and_search import CallView, MessageLine

_TWIN_ROWS, _MAX_LINE_POINTS, _MARKS = 10, 4_000, 400
_HELD, _HELD_CHARS = 2, 4_000
"""Of a page without a kernel: pieces of the list, and characters of a message."""


# Two caches of one element. `_seen` holds the view of one call, `_last` the result of one filter.
# The browser asks for the chunks of one result one after the other, so the next request nearly
# always has the key of the last one. Both keys contain `explorer_session.measured`, so both results
# are made again once sizes are known; `_open_session` clears both.
class Explorer(ChartWidget):
    """The widget that `ctxkit.explore` returns; `call` is the call that it shows, and can be set.

    The list holds only what is in sight, so that a session of any length opens at once; where it
    has more than 5,000 entries, the sizes of its messages come later. Front ends without widgets
    get the same as text and as HTML.
    """

    _esm = build_javascript_module("list.js", "explore.js", render="explore")
    shared: ClassVar = ("data", "call")
    call = t.Int(0).tag(sync=True)
    """The call that is shown, counted from 0; negatives count from the end."""

    def __init__(self, session: Session, call: int = 0) -> None:
        self._family = list_session_tree(session)
        self._open_session(0)
        self._first = call
        super().__init__(WidgetDataSource(lambda: [self.explorer_session.session]), call=call)

    def _open_session(self, number: int) -> None:
        self._number = number
        self.explorer_session = ExplorerSession(self._family[number].session)
        self._seen: tuple[Any, CallView] | None = None
        self._last: tuple[Any, FilterResult] | None = None
        self._measuring: threading.Thread | None = None

    @t.validate("call")  # type: ignore[untyped-decorator]
    def _clamp_call(self, proposal: Any) -> int:
        if not len(self.explorer_session):
            return 0
        return int(self.explorer_session.session.call(proposal["value"]).index)

    @property
    def call_view(self) -> CallView:
        """The displayed call as plain values."""
        return self._view_of_call(self.call)

    def _view_of_call(self, call: int) -> CallView:
        key = (call, self._number, self.explorer_session.measured)
        if self._seen is None or self._seen[0] != key:
            self._seen = key, self.explorer_session.at(call if len(self.explorer_session) else None)
        return self._seen[1]

    def show(self, number: int) -> None:
        """Show another session of the tree, by its number there, at its last call."""
        self._open_session(number)
        calls = len(self.explorer_session)
        self._first = max(calls - 1, 0)
        with self.hold_trait_notifications():
            self.call, self.data = self._first, self._build_data()

    def wait(self) -> None:
        """Wait until the sizes of all messages are known."""
        if self._measuring is not None:
            self._measuring.join()

    # -- what the browser is told ----------------------------------------

    def _build_data(self) -> dict[str, Any]:
        session, n = self.explorer_session.session, len(self.explorer_session)
        sizes = [float("nan") if p is None else float(p) for p in self.explorer_session.prompts]
        indices = decimate_points(np.array(sizes), _MAX_LINE_POINTS).tolist()
        places = [c.position for c in session.calls]
        compacted_calls = _compacted_calls(session, places)
        call_view = self._view_of_call(self._first)
        return {
            "title": get_title(session, 100),
            "calls": n,
            "entries": len(session.path),
            "line": [indices, [self.explorer_session.prompts[i] for i in indices]],
            "limit": call_view.limit,
            "top": choose_axis_top(self.explorer_session.prompts, call_view.limit),
            "cuts": compacted_calls[:_MARKS],
            "notes": [sanitize_line(note, 400) for note in session.notes],
            "tree": self._describe_subagents(),
            "open": self._number,
            "first": self._answer_rows({"call": self._first, "largest": True, "from": 0}),
        }

    def _describe_subagents(self) -> list[list[Any]]:
        if len(self._family) == 1:
            return []
        descriptions = describe_session_tree(self._family)
        return [[r.depth, r.title, descriptions[i]] for i, r in enumerate(self._family)]

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        kind = request.get("kind")
        if kind == "rows":
            return self._answer_rows(request)
        if kind == "text":
            return self._answer_text(request)
        if kind == "choices":
            return {"kind": kind, **count_filter_choices(self.explorer_session)}
        if kind == "measure":
            self._measure_in_background()
        if kind == "open" and request.get("to") in range(len(self._family)):
            self.show(request["to"])
        return None

    def _exported_requests(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = [{"kind": "choices", "at": ""}]
        for largest in (True, False):
            for piece in range(_HELD):
                request = {"call": self.call, "largest": largest, "from": piece * ROWS_PER_CHUNK}
                # explore.js builds the same key from its filters, all of them empty.
                at = (
                    f"{self.call}|{'largest' if largest else 'sent'}|||||||{piece * ROWS_PER_CHUNK}"
                )
                out.append({"kind": "rows", "at": at, **request})
        for item in self._filter_lines(self.call, MessageFilter()).lines[: _HELD * ROWS_PER_CHUNK]:
            place = {"call": self.call, "row": item.position, "most": _HELD_CHARS}
            out.append({"kind": "text", "at": f"{self.call}|{item.position}", **place})
        return out

    def _measure_in_background(self) -> None:
        """Size the messages behind: the list is there meanwhile."""
        if self._measuring is not None or self.explorer_session.measured:
            return
        explorer_session = self.explorer_session

        def work() -> None:
            explorer_session.measure()
            explorer_session.forget()
            # Where another session was opened meanwhile, nothing waits for these sizes.
            if explorer_session is self.explorer_session:
                self._last = None
                self.send({"kind": "measured"})

        self._measuring = threading.Thread(target=work, daemon=True)
        self._measuring.start()

    # -- rows and texts --------------------------------------------------

    def _requested_call(self, request: dict[str, Any]) -> int:
        """Return the requested call, else the nearest one."""
        return min(
            max(_int_or_zero(request.get("call")), 0), max(len(self.explorer_session) - 1, 0)
        )

    def _lines_of_call(self, call: int, *, whole: bool) -> Sequence[MessageLine]:
        return self.explorer_session.whole if whole else self._view_of_call(call).items

    def _filter_lines(self, call: int, message_filter: MessageFilter) -> FilterResult:
        """Return the filtered lines; a request for another part of them gets the same ones."""
        key = (call, message_filter, self.explorer_session.measured)
        if self._last is None or self._last[0] != key:
            items = self._lines_of_call(call, whole=message_filter.whole)
            self._last = key, filter_messages(self.explorer_session, items, message_filter)
        return self._last[1]

    def _answer_rows(self, request: dict[str, Any]) -> dict[str, Any]:
        call, first = self._requested_call(request), max(_int_or_zero(request.get("from")), 0)
        message_filter = MessageFilter.of(request)
        result = self._filter_lines(call, message_filter)
        marks = (
            {i.call for i in result.lines if i.call is not None} if message_filter.whole else set()
        )
        answer = {
            "kind": "rows",
            "total": len(result.lines),
            "of": len(self._lines_of_call(call, whole=message_filter.whole)),
            "rows": [self._pack_line(i) for i in result.lines[first : first + ROWS_PER_CHUNK]],
            "said": result.note,
            # Fields 0 and 1 choose scope and order; only the fields after them select lines.
            "marks": sorted(marks)[:_MARKS] if any(message_filter[2:]) else [],
            "measured": self.explorer_session.measured,
        }
        if not first:
            answer["head"] = self._call_heading(call)
        return answer

    def _pack_line(self, item: MessageLine) -> list[Any]:
        m, call = item.message, self.explorer_session.find_tool_call(item.message)
        marks = "✗" * is_failed_message(m) + "~" * (item.changed_by is not None)
        name, words = m.tool or m.role, get_message_preview(m)
        if call is not None:  # a result is what was asked for, not how it begins
            words = (
                describe_call(call, self.explorer_session.session.cwd, 200)
                .removeprefix(name)
                .strip()
                or words
            )
        return [
            item.position,
            item.tokens,
            marks,
            sanitize_line(name, 30),
            sanitize_line(words, 120),
            item.call,
            format_message_number(item.number),
        ]

    def _call_heading(self, call: int) -> dict[str, Any]:
        call_view = self._view_of_call(call)
        return {
            "call": call,
            "told": format_call_heading(call_view, len(self.explorer_session)),
            "groups": [[g, n, GROUP_COLOURS[GROUPS.index(g)]] for g, n in call_view.groups],
        }

    def _answer_text(self, request: dict[str, Any]) -> dict[str, Any] | None:
        call, row = self._requested_call(request), _int_or_zero(request.get("row"))
        items = self._lines_of_call(call, whole=request.get("whole") is True)
        if not 0 <= row < len(items):
            return None
        item = items[row]
        size = "size not known yet" if item.tokens is None else f"{item.tokens:,} tokens"
        parts = (item.name, size, item.change, f"message {format_message_number(item.number)}")
        most = min(_int_or_zero(request.get("most")) or 10**9, MAX_TEXT_CHARS)
        text = format_full_text(item.message, most)
        return {"kind": "text", "head": " · ".join(filter(None, parts)), "text": text}

    # -- twins -----------------------------------------------------------

    def _build_chart(self) -> Chart:
        from ctxkit.plots.growth_chart import growth

        return growth(self.explorer_session.session)

    def to_text(self) -> str:
        """Return what is shown as text: the call, its groups, its largest messages."""
        call_view = self.call_view
        groups = [f"  {n:>9,}  {name}" for name, n in call_view.groups]
        largest = [self._format_line(item) for item in call_view.largest[:_TWIN_ROWS]]
        head = format_call_heading(call_view, len(self.explorer_session))
        notes = [f"Note: {sanitize_line(n, 400)}" for n in self.explorer_session.session.notes]
        group_lines = ["tokens by group:", *groups] if groups else []
        return "\n".join([head, *notes, *group_lines, "largest messages:", *largest])

    def _format_line(self, item: MessageLine) -> str:
        """Return a message as number, size and name, in columns; a mark where it was changed."""
        number, name = self.explorer_session.describe_line(item)
        size = "" if item.tokens is None else f"{item.tokens:,}"
        return f"  {number:>6} {size:>7}{' ' if item.changed_by is None else '~'} {name}"

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        call_view = self.call_view
        head = render_call_heading(call_view, len(self.explorer_session)) + render_notes_html(
            self.explorer_session.session.notes
        )
        drawn = render_growth_chart(
            self.explorer_session.prompts, call_view.limit, call_view.call
        ) + render_groups_bar(call_view)
        return (
            head
            + drawn
            + render_largest_messages_table(self.explorer_session, call_view.largest[:_TWIN_ROWS])
        )


def choose_axis_top(prompts: Sequence[int | None], limit: int | None) -> int:
    """Return the upper end of the token axis: the limit where it is near the largest prompt.

    Args:
        prompts: tokens of each prompt; None: unknown.
        limit: tokens of the model's context window; None: unknown.

    Returns:
        Tokens: the limit where it is one to three times the largest prompt, else that prompt.
    """
    # With a limit far above the peak the curve would fill only the lowest part of the chart.
    peak = max((n for n in prompts if n is not None), default=1) or 1
    return limit if limit is not None and peak <= limit <= 3 * peak else peak


def _compacted_calls(session: Session, places: list[int]) -> list[int]:
    """Return the calls before which a compaction happened."""
    edits = (i for i, e in enumerate(session.path) if isinstance(e, Edit))
    # The number of replies before the edit is the index of the call that follows it.
    return list(dict.fromkeys(bisect_left(places, i) for i in edits))


def _int_or_zero(value: Any) -> int:
    # `bool` is a subclass of `int`: `isinstance` would accept true and false.
    return value if type(value) is int else 0


_HEIGHT = 140


def render_call_heading(call_view: CallView, calls: int) -> str:
    """Return the heading as HTML: call, prompt size, share of the window.

    Args:
        call_view: the call.
        calls: number of calls of the session.
    """
    return (
        "<div "
        f'style="color:{TEXT_COLOUR};line-height:1.5">'
        f"{escape_html(format_call_heading(call_view, calls), 300)}</div>"
    )


def format_call_heading(call_view: CallView, calls: int) -> str:
    """Return the heading as plain text.

    Args:
        call_view: the call.
        calls: number of calls of the session.
    """
    if call_view.call is None:
        return f"No call in this session, only {pluralize(len(call_view.items), 'message')}."
    size = (
        "size unknown"
        if call_view.tokens is None
        else f"{call_view.tokens:,} tokens ({call_view.source})"
    )
    full = ""
    if call_view.tokens and call_view.limit:
        full = f", {format_percent(call_view.tokens / call_view.limit)} of {call_view.limit:,}"
    model = f" · {sanitize_line(call_view.model, 50)}" if call_view.model else ""
    where = f"Call {call_view.call} (of 0 to {calls - 1}) · turn {call_view.turn}"
    return f"{where} · {size}{full} · {pluralize(len(call_view.items), 'message')}{model}"


def render_growth_chart(prompts: Sequence[int | None], limit: int | None, at: int | None) -> str:
    """Draw prompt sizes as a line, with a mark at one call; empty if no size is known.

    Args:
        prompts: tokens of each prompt; None: unknown.
        limit: tokens of the model's context window; None: unknown.
        at: number of the marked call, from 0; None: no mark.
    """
    sizes = [n for n in prompts if n is not None]
    if len(sizes) < 2:
        return ""
    is_near = choose_axis_top(prompts, limit) == limit
    axes = XyDrawing(
        x="call",
        y="prompt tokens",
        traces=(Trace(name="prompt", x=range(len(prompts)), y=prompts, marked=False),),
        limits=(LimitLine(y=limit, label=f"limit {limit:,}"),) if is_near and limit else (),
        marks=() if at is None else (VerticalMark(x=at),),
    )
    figure = axes.plotly()
    figure["layout"]["showlegend"] = False
    return (
        f'<div role="img" aria-label="Prompt tokens of each call, up to {max(sizes):,}">'
        f"{render_svg_html(figure, height=_HEIGHT)}</div>"
    )


def render_groups_bar(call_view: CallView) -> str:
    """Return the prompt groups as a bar with a legend: group, tokens, share."""
    total = sum(n for _, n in call_view.groups)
    if total <= 0:
        return ""
    blocks, names = [], []
    for name, n in call_view.groups:
        colour, share = GROUP_COLOURS[GROUPS.index(name)], 100 * n / total
        blocks.append(
            f'<div style="width:{share:.2f}%;background:{colour}" title="{escape_html(name)}:'
            f' {n:,}"></div>'
        )
        names.append(
            '<span style="white-space:nowrap;margin-right:16px"><span'
            f' style="display:inline-block;width:10px;height:10px;border-radius:2px'
            f';background:{colour};margin-right:5px"></span>{escape_html(name)}'
            f" {n:,} ({share:.0f} %)</span>"
        )
    return (
        f'<div style="color:{TEXT_COLOUR}"><div role="img" aria-label="What fills the prompt"'
        f' style="display:flex;gap:1px;height:18px;border-radius:4px;overflow:hidden">'
        f"{''.join(blocks)}</div><div"
        f' style="margin-top:4px;line-height:1.7">{"".join(names)}</div></div>'
    )


def render_largest_messages_table(
    explorer_session: ExplorerSession, items: Sequence[MessageLine]
) -> str:
    """Return some messages as an HTML table, for front ends without widgets.

    Args:
        explorer_session: names the messages.
        items: the messages, in order of the rows.
    """
    rows = "".join(
        f'<tr><td style="text-align:right">{number}</td><td'
        f' style="text-align:right">{"" if i.tokens is None else f"{i.tokens:,}"}</td><td'
        f' style="text-align:left">{escape_html(name)}</td></tr>'
        for i in items
        for number, name in [explorer_session.describe_line(i)]
    )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("message", "tokens", "name"))
    return (
        "<table><caption>Largest"
        f" messages</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )
