"""`ctxkit.explore`: goes through the calls of a session, shows what fills each prompt, searches
messages.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import traitlets as t

from ctxkit._internal.formatting import escape_html, render_notes, sanitize_line
from ctxkit._internal.palette import COLOURS, GROUP_COLOURS
from ctxkit.metrics.prompt_groups import GROUPS
from ctxkit.plots.decimation import decimate
from ctxkit.session.messages import Edit
from ctxkit.session.titles import title_of
from ctxkit.session.tool_calls import describe_call as tool_call_describe_call
from ctxkit.widgets.base import SOFT_COLOUR, TEXT_COLOUR, ChartWidget, build_esm
from ctxkit.widgets.explorer_model import (
    MAX_TEXT_CHARS,
    FilterResult,
    MessageFilter,
    SessionView,
    count_filter_choices,
    describe_tree,
    filter_messages,
    get_preview,
    is_failed,
    list_session_tree,
    render_full_text,
)
from ctxkit.widgets.javascript import ROWS_PER_CHUNK
from ctxkit.widgets.source import DataSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.chart import Chart
    from ctxkit.session.session import Session
    from ctxkit.widgets.explorer_model import CallView, MessageLine

_TWIN_ROWS, _MAX_LINE_POINTS, _MARKS = 10, 4_000, 400
_HELD, _HELD_CHARS, _HELD_ALL = 2, 4_000, 1_000_000
"""Of a page without a kernel: pieces of the list, characters of a message, and of all."""


class Explorer(ChartWidget):
    """The widget that `ctxkit.explore` returns; `call` is the call that it shows, and can be set.

    The list holds only what is in sight, so that a session of any length opens at once; where it
    has more than 5,000 entries, the sizes of its messages come later. Front ends without widgets
    get the same as text and as HTML.
    """

    _esm = build_esm("list.js", "explore.js", render="explore")
    shared: ClassVar = ("data", "call")
    call = t.Int(0).tag(sync=True)
    """The call that is shown, counted from 0; negatives count from the end."""

    def __init__(self, session: Session, call: int = 0) -> None:
        self._family = list_session_tree(session)
        self._seen: tuple[Any, CallView] | None = None
        self._last: tuple[Any, FilterResult] | None = None
        self._take(0)
        self._first = call
        super().__init__(DataSource(lambda: [self.scenes.session]), call=call)

    def _take(self, number: int) -> None:
        self._number = number
        self.scenes = SessionView(self._family[number].session)
        self._last = self._seen = None
        self._measuring: threading.Thread | None = None

    @t.validate("call")  # type: ignore[untyped-decorator]
    def _within(self, proposal: Any) -> int:
        if not len(self.scenes):
            return 0
        return int(self.scenes.session.call(proposal["value"]).index)

    @property
    def scene(self) -> CallView:
        """What is shown, as plain values."""
        return self._scene(self.call)

    def _scene(self, call: int) -> CallView:
        key = (call, self._number, self.scenes.measured)
        if self._seen is None or self._seen[0] != key:
            self._seen = key, self.scenes.at(call if len(self.scenes) else None)
        return self._seen[1]

    def show(self, number: int) -> None:
        """Show another session of the tree, by its number there, at its last call."""
        self._take(number)
        calls = len(self.scenes)
        self._first = max(calls - 1, 0)
        with self.hold_trait_notifications():
            self.call, self.data = self._first, self._data()

    def wait(self) -> None:
        """Wait until the sizes of all messages are known."""
        if self._measuring is not None:
            self._measuring.join()

    # -- what the browser is told ----------------------------------------

    def _data(self) -> dict[str, Any]:
        session, n = self.scenes.session, len(self.scenes)
        sizes = [float("nan") if p is None else float(p) for p in self.scenes.prompts]
        kept = decimate(np.array(sizes), _MAX_LINE_POINTS).tolist()
        places = [c.position for c in session.calls]
        cuts = _compacted_calls(session, places)
        scene = self._scene(self._first)
        return {
            "title": title_of(session, 100),
            "calls": n,
            "entries": len(session.path),
            "line": [kept, [self.scenes.prompts[i] for i in kept]],
            "limit": scene.limit,
            "top": choose_top(self.scenes.prompts, scene.limit),
            "cuts": cuts[:_MARKS],
            "notes": [sanitize_line(note, 400) for note in session.notes],
            "tree": self._tree(),
            "open": self._number,
            "first": self._rows({"call": self._first, "largest": True, "from": 0}),
        }

    def _tree(self) -> list[list[Any]]:
        if len(self._family) == 1:
            return []
        told = describe_tree(self._family)
        return [[r.depth, r.title, told[i]] for i, r in enumerate(self._family)]

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        kind = asked.get("kind")
        if kind == "rows":
            return self._rows(asked)
        if kind == "text":
            return self._text(asked)
        if kind == "choices":
            return {"kind": kind, **count_filter_choices(self.scenes)}
        if kind == "measure":
            self._measure()
        if kind == "open" and asked.get("to") in range(len(self._family)):
            self.show(asked["to"])
        return None

    def _questions(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = [{"kind": "choices", "at": ""}]
        room = _HELD_ALL
        for largest in (True, False):
            for piece in range(_HELD):
                asked = {"call": self.call, "largest": largest, "from": piece * ROWS_PER_CHUNK}
                at = (
                    f"{self.call}|{'largest' if largest else 'sent'}|||||||{piece * ROWS_PER_CHUNK}"
                )
                out.append({"kind": "rows", "at": at, **asked})
        for item in self._chosen(self.call, MessageFilter()).lines[: _HELD * ROWS_PER_CHUNK]:
            room -= min(len(render_full_text(item.message, _HELD_CHARS)), _HELD_CHARS)
            if room < 0:
                break
            place = {"call": self.call, "row": item.position, "most": _HELD_CHARS}
            out.append({"kind": "text", "at": f"{self.call}|{item.position}", **place})
        return out

    def _measure(self) -> None:
        """Size the messages behind: the list is there meanwhile."""
        if self._measuring is not None or self.scenes.measured:
            return
        scenes = self.scenes

        def work() -> None:
            scenes.measure()
            scenes.forget()
            if scenes is self.scenes:
                self._last = None
                self.send({"kind": "measured"})

        self._measuring = threading.Thread(target=work, daemon=True)
        self._measuring.start()

    # -- rows and texts --------------------------------------------------

    def _at(self, asked: dict[str, Any]) -> int:
        """Return the call that is asked for, else the nearest that there is."""
        return min(max(_int_or_zero(asked.get("call")), 0), max(len(self.scenes) - 1, 0))

    def _items(self, call: int, *, whole: bool) -> Sequence[MessageLine]:
        return self.scenes.whole if whole else self._scene(call).items

    def _chosen(self, call: int, wanted: MessageFilter) -> FilterResult:
        """Return what is asked for; asked again for another part of it, as it was."""
        key = (call, wanted, self.scenes.measured)
        if self._last is None or self._last[0] != key:
            items = self._items(call, whole=wanted.whole)
            self._last = key, filter_messages(self.scenes, items, wanted)
        return self._last[1]

    def _rows(self, asked: dict[str, Any]) -> dict[str, Any]:
        call, first = self._at(asked), max(_int_or_zero(asked.get("from")), 0)
        wanted = MessageFilter.of(asked)
        found = self._chosen(call, wanted)
        marks = {i.call for i in found.lines if i.call is not None} if wanted.whole else set()
        told = {
            "kind": "rows",
            "total": len(found.lines),
            "of": len(self._items(call, whole=wanted.whole)),
            "rows": [self._row(i) for i in found.lines[first : first + ROWS_PER_CHUNK]],
            "said": found.said,
            "marks": sorted(marks)[:_MARKS] if any(wanted[2:]) else [],
            "measured": self.scenes.measured,
        }
        if not first:
            told["head"] = self._head(call)
        return told

    def _row(self, item: MessageLine) -> list[Any]:
        m, call = item.message, self.scenes.asked(item.message)
        marks = "✗" * is_failed(m) + "~" * (item.changed_by is not None)
        name, words = m.tool or m.role, get_preview(m)
        if call is not None:  # a result is what was asked for, not how it begins
            words = (
                tool_call_describe_call(call, self.scenes.session.cwd, 200)
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
        ]

    def _head(self, call: int) -> dict[str, Any]:
        scene = self._scene(call)
        return {
            "call": call,
            "told": describe_call(scene, len(self.scenes)),
            "groups": [[g, n, GROUP_COLOURS[GROUPS.index(g)]] for g, n in scene.groups],
        }

    def _text(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        call, row = self._at(asked), _int_or_zero(asked.get("row"))
        items = self._items(call, whole=asked.get("whole") is True)
        if not 0 <= row < len(items):
            return None
        item = items[row]
        size = "size not known yet" if item.tokens is None else f"{item.tokens:,} tokens"
        parts = (item.name, size, item.change, f"message {item.position}")
        most = min(_int_or_zero(asked.get("most")) or 10**9, MAX_TEXT_CHARS)
        text = render_full_text(item.message, most)
        return {"kind": "text", "head": " · ".join(filter(None, parts)), "text": text}

    # -- twins -----------------------------------------------------------

    def _chart(self) -> Chart:
        from ctxkit.plots.growth_chart import growth

        return growth(self.scenes.session)

    def to_text(self) -> str:
        """Return what is shown as text: the call, its groups, its largest messages."""
        scene = self.scene
        groups = [f"  {n:>9,}  {name}" for name, n in scene.groups]
        largest = [f"  {item.label}" for item in scene.largest[:_TWIN_ROWS]]
        head = describe_call(scene, len(self.scenes))
        notes = [f"Note: {sanitize_line(n, 400)}" for n in self.scenes.session.notes]
        told = ["tokens by group:", *groups] if groups else []
        return "\n".join([head, *notes, *told, "largest messages:", *largest])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        scene = self.scene
        head = render_heading(scene, len(self.scenes)) + render_notes(self.scenes.session.notes)
        drawn = draw_growth(self.scenes.prompts, scene.limit, scene.call) + render_groups_bar(scene)
        return head + drawn + render_messages_table(scene.largest[:_TWIN_ROWS])


def choose_top(prompts: Sequence[int | None], limit: int | None) -> int:
    """Return how many tokens a chart of prompts reaches up to: the limit where it is near."""
    peak = max((n for n in prompts if n is not None), default=1) or 1
    return limit if limit is not None and peak <= limit <= 3 * peak else peak


def _compacted_calls(session: Session, places: list[int]) -> list[int]:
    """Return the calls before which a compaction stands."""
    edits = (i for i, e in enumerate(session.path) if isinstance(e, Edit))
    return list(dict.fromkeys(bisect_left(places, i) for i in edits))


def _int_or_zero(value: Any) -> int:
    return value if type(value) is int else 0


_WIDTH, _HEIGHT, _MAX_SVG_POINTS = 1000, 90, 500


def render_heading(scene: CallView, calls: int) -> str:
    """One line: which call, how large its prompt, how full the window."""
    return (
        "<div "
        f'style="color:{TEXT_COLOUR};line-height:1.5">'
        f"{escape_html(describe_call(scene, calls), 300)}</div>"
    )


def describe_call(scene: CallView, calls: int) -> str:
    """The heading as plain text."""
    if scene.call is None:
        return f"No call in this session: {len(scene.items):,} messages stand."
    size = "size unknown" if scene.tokens is None else f"{scene.tokens:,} tokens ({scene.source})"
    full = ""
    if scene.tokens and scene.limit:
        full = f", {scene.tokens / scene.limit:.0%} of {scene.limit:,}"
    model = f" · {sanitize_line(scene.model, 50)}" if scene.model else ""
    where = f"Call {scene.call} (of 0 to {calls - 1}) · turn {scene.turn}"
    return f"{where} · {size}{full} · {len(scene.items):,} messages{model}"


def draw_growth(prompts: Sequence[int | None], limit: int | None, at: int | None) -> str:
    """The size of each prompt as a line, with a mark at one call; empty where no size is known."""
    known = [(i, n) for i, n in enumerate(prompts) if n is not None]
    if len(known) < 2:
        return ""
    peak, top = max(n for _, n in known), choose_top(prompts, limit)
    step = _WIDTH / max(1, len(prompts) - 1)

    def y(n: int) -> float:
        return _HEIGHT - 4 - (_HEIGHT - 8) * n / top

    points = " ".join(f"{i * step:.1f},{y(n):.1f}" for i, n in _thin_points(known))
    lines = [_svg_rule(0, _WIDTH, y(top), y(top), SOFT_COLOUR, "4 4")] if top == limit else []
    lines += [] if at is None else [_svg_rule(at * step, at * step, 0, _HEIGHT, COLOURS[1])]
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="Prompt tokens of each call, up to {peak:,}"'
        f' style="width:100%;height:{_HEIGHT}px;display:block"><polyline points="{points}"'
        f' fill="none" stroke="{COLOURS[0]}" stroke-width="2"'
        f' vector-effect="non-scaling-stroke"/>{"".join(lines)}</svg>'
    )


def _svg_rule(x1: float, x2: float, y1: float, y2: float, colour: str, dashes: str = "none") -> str:  # noqa: PLR0917
    return (
        f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="1.5" stroke-dasharray="{dashes}" vector-effect="non-scaling-stroke"/>'
    )


def render_groups_bar(scene: CallView) -> str:
    """What fills the prompt, as one bar with its legend: group, tokens, share."""
    total = sum(n for _, n in scene.groups)
    if total <= 0:
        return ""
    blocks, names = [], []
    for name, n in scene.groups:
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


def render_messages_table(items: Sequence[MessageLine]) -> str:
    """Some messages as a table, for front ends without widgets."""
    rows = "".join(
        f'<tr><td style="text-align:right">{i.position}</td><td'
        f' style="text-align:right">{"" if i.tokens is None else f"{i.tokens:,}"}</td><td'
        f' style="text-align:left">{escape_html(i.name)}</td><td'
        f' style="text-align:left">{escape_html(sanitize_line(get_preview(i.message), 80))}'
        "</td></tr>"
        for i in items
    )
    heads = "".join(f'<th scope="col">{h}</th>' for h in ("message", "tokens", "from", "begins"))
    return (
        "<table><caption>Largest"
        f" messages</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _thin_points(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most two points a bin, its lowest and its highest, so that no peak is lost."""
    if len(points) <= 2 * _MAX_SVG_POINTS:
        return points
    size = -(-len(points) // _MAX_SVG_POINTS)
    out: list[tuple[int, int]] = []
    for i in range(0, len(points), size):
        part = points[i : i + size]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out
