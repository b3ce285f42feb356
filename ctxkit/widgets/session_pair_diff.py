"""`ctxkit.explore(beside=)`: two sessions side by side from their first difference on."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import traitlets as t

from ctxkit._internal.formatting_and_sanitizing import (
    format_message_number,
    pluralize,
    sanitize_line,
)
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_sizes
from ctxkit.plots.label_placement_and_thinning import decimate_points
from ctxkit.session.messages import Edit, Message
from ctxkit.session.titles import get_title, make_names_unique
from ctxkit.session.tool_call_paths_and_descriptions import describe_message, pair_with_calls
from ctxkit.widgets.base_widget import ChartWidget, build_javascript_module
from ctxkit.widgets.data_source import WidgetDataSource
from ctxkit.widgets.explorer_messages_and_search import (
    format_full_text,
    get_searchable_text,
    is_failed_message,
)
from ctxkit.widgets.python_to_javascript import ROWS_PER_CHUNK

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ctxkit.plots.chart import Chart
    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import LogEntry, Session

_POINTS, _MATCHED, _TWIN, _HELD = 2_000, 4_000, 8, 200
"""Points of a line; entries that are matched one by one; rows of the twins; of a page."""


class SessionDiffWidget(ChartWidget):
    """The widget that `ctxkit.explore(a, beside=b)` returns: what two sessions have in common, line
    by line.

    `row` is what is shown, and can be set; it begins at the first difference.
    """

    _esm = build_javascript_module("list.js", "beside.js")
    shared: ClassVar = ("data", "row")
    row = t.Int(0, min=0).tag(sync=True)

    def __init__(self, one: Session, other: Session) -> None:
        self.both = (one, other)
        self.names = make_names_unique(
            get_title(s) + " (replay)" * (s.format == "replay") for s in self.both
        )
        super().__init__(WidgetDataSource(lambda: list(self.both)), row=self.parted or 0)

    @cached_property
    def rows(self) -> tuple[tuple[int | None, int | None], ...]:
        """Places in the two paths that are side by side; None: the other one has more there."""
        return tuple(align_log_entries(*self._entry_keys))

    @cached_property
    def _entry_keys(self) -> tuple[list[Hashable], list[Hashable]]:
        one, other = self.both
        return [_entry_key(e) for e in one.path], [_entry_key(e) for e in other.path]

    @cached_property
    def differing(self) -> tuple[int, ...]:
        """The rows in which the two are not the same."""
        keys = self._entry_keys
        return tuple(
            n
            for n, (i, j) in enumerate(self.rows)
            if i is None or j is None or keys[0][i] != keys[1][j]
        )

    @property
    def parted(self) -> int | None:
        """The first row in which they differ; None: they are equal."""
        return self.differing[0] if self.differing else None

    @property
    def head(self) -> str:
        """The first difference, in a sentence."""
        if self.parted is None:
            return f"Both say the same in all {pluralize(len(self.rows), 'entry', 'entries')}."
        one, other = (self._describe_act(side, self.rows[self.parted][side]) for side in (0, 1))
        if one and other:
            difference = f"the first {one}, the second {other}"
        else:
            difference = f"only the {'first' if one else 'second'} {one or other}"
        calls = sum(
            isinstance(e, Message) and e.role == "assistant"
            for e in self.both[0].path[: self._calls_before(self.parted)]
        )
        return (
            f"The first {pluralize(self.parted, 'entry', 'entries')} are the same. At call"
            f" {calls:,} {difference}. {_count_differing_rows(len(self.differing))}."
        )

    def _describe_act(self, side: int, place: int | None) -> str:
        """Return what one session does where they part: `compacts (30 messages out, 1 in)`."""
        if place is None:
            return ""
        entry = self.both[side].path[place]
        if isinstance(entry, Edit):
            return f"compacts ({_describe_sizes(entry)})"
        return f"has {sanitize_line(self._describe_entries(side, place), 80)}"

    def _calls_before(self, row: int) -> int:
        return sum(i is not None for i, _ in self.rows[:row])

    def _describe_entries(self, side: int, place: int | None) -> str:
        if place is None:
            return ""
        entry = self.both[side].path[place]
        if isinstance(entry, Edit):
            return _describe_edit(entry)
        mark = "✗ " if is_failed_message(entry) else ""
        call = self._calls_by_message[side].get(id(entry))
        return mark + describe_message(entry, call, self.both[side].cwd)

    @cached_property
    def _calls_by_message(self) -> tuple[dict[int, ToolCall | None], ...]:
        """For each session the calls of tool results, by the `id` of the result."""
        return tuple(
            {
                id(m): call
                for m, call in pair_with_calls(e for e in s.path if isinstance(e, Message))
            }
            for s in self.both
        )

    # -- what the browser is told ----------------------------------------

    def _build_data(self) -> dict[str, Any]:
        return {
            "names": [sanitize_line(n, 60) for n in self.names],
            "lines": [_growth_points(s) for s in self.both],
            "head": self.head,
            "total": len(self.rows),
            "differing": list(self.differing[:_POINTS]),
            "places": [self._call_of_row(r) for r in self.differing[:_POINTS]],
            "first": self._rows_from(((self.parted or 0) // ROWS_PER_CHUNK) * ROWS_PER_CHUNK),
        }

    def _call_of_row(self, row: int) -> int:
        """Return the call of the first session at a row."""
        # A row without an entry of the first session takes the place of the nearest row above.
        at = next((i for n in range(row, -1, -1) if (i := self.rows[n][0]) is not None), 0)
        return int(np.searchsorted(self._call_positions, at))

    @cached_property
    def _call_positions(self) -> Any:
        return np.array([c.position for c in self.both[0].calls], np.int64)

    def _rows_from(self, first: int) -> dict[str, Any]:
        different = set(self.differing)
        numbered_rows = enumerate(self.rows[first : first + ROWS_PER_CHUNK], first)
        return {
            "kind": "rows",
            "from": first,
            "rows": [
                [n, n in different, *(self._entry_of_side(side, pair[side]) for side in (0, 1))]
                for n, pair in numbered_rows
            ],
        }

    def _entry_of_side(self, side: int, place: int | None) -> list[str]:
        if place is None:
            return ["", ""]
        entry = self.both[side].path[place]
        number = "compaction" if isinstance(entry, Edit) else format_message_number(place)
        return [number, self._describe_entries(side, place)]

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if request.get("kind") == "rows" and type(request.get("from")) is int:
            return self._rows_from(max(request["from"], 0) // ROWS_PER_CHUNK * ROWS_PER_CHUNK)
        row = request.get("row")
        if request.get("kind") != "text" or type(row) is not int or not 0 <= row < len(self.rows):
            return None
        return {
            "kind": "text",
            "texts": [self._answer_texts(side, self.rows[row][side]) for side in (0, 1)],
        }

    def _answer_texts(self, side: int, place: int | None) -> str:
        if place is None:
            return ""
        entry = self.both[side].path[place]
        if isinstance(entry, Message):
            return format_full_text(entry)
        put = "\n\n".join(format_full_text(m) for m in entry.inserted)
        return f"[{_describe_edit(entry)}]\n{put}"

    def _exported_requests(self) -> list[dict[str, Any]]:
        near = max((self.parted or 0) - _HELD // 2, 0)
        pieces = range(0, min(len(self.rows), near + _HELD), ROWS_PER_CHUNK)
        texts = range(near, min(len(self.rows), near + _HELD))
        return [
            *({"kind": "rows", "at": str(n), "from": n} for n in pieces),
            *({"kind": "text", "at": str(n), "row": n} for n in texts),
        ]

    # -- twins -----------------------------------------------------------

    def _build_chart(self) -> Chart:
        from ctxkit.plots.growth_chart import growth

        return growth(dict(zip(self.names, self.both, strict=True)))

    def to_text(self) -> str:
        """Return where they part as text, with the rows from there on."""
        first = self.parted or 0
        out = [f"{self.names[0]} | {self.names[1]}", self.head]
        for pair in self.rows[first : first + _TWIN]:
            sides = [" ".join(self._entry_of_side(side, pair[side])) for side in (0, 1)]
            out.append(f"{sanitize_line(sides[0], 60):60} | {sanitize_line(sides[1], 60)}")
        return "\n".join(out)

    def to_html(self) -> str:
        """Return where they part as HTML that needs neither kernel nor script."""
        from ctxkit._internal.formatting_and_sanitizing import escape_html
        from ctxkit.plots.chart import render_small_table

        first = self.parted or 0
        rows = [
            tuple(" ".join(self._entry_of_side(side, pair[side])) for side in (0, 1))
            for pair in self.rows[first : first + _TWIN]
        ]
        head = (self.names[0], self.names[1])
        return f"<div>{escape_html(self.head, 500)}</div>{render_small_table(head, rows)}"


# Sequence alignment. A replay and its record share a long prefix and often a suffix, so both are
# stripped first, O(n). What remains is matched by `SequenceMatcher` (Ratcliff-Obershelp: the
# longest common block, then the same on both sides of it), which is quadratic at worst; a remainder
# of more than `_MATCHED` entries is paired by position instead. Invariants: each place of either
# list occurs exactly once, and the places of a list ascend.
def align_log_entries(
    one: list[Hashable], other: list[Hashable]
) -> Iterator[tuple[int | None, int | None]]:
    """Align two lists; yield the index of an entry in each, or None where one has no such entry.

    Equal entries at both ends are matched at once; those between by their longest common parts if
    they are not too many, else one by one.

    Args:
        one: keys of the first log's entries.
        other: keys of the second log's entries.
    """
    n, m = len(one), len(other)
    start = next((k for k in range(min(n, m)) if one[k] != other[k]), min(n, m))
    end = 0
    while end < min(n, m) - start and one[n - 1 - end] == other[m - 1 - end]:
        end += 1
    yield from ((k, k) for k in range(start))
    yield from _match_between(one, other, (start, n - end), (start, m - end))
    yield from ((n - k, m - k) for k in range(end, 0, -1))


def _match_between(
    one: list[Hashable], other: list[Hashable], a: tuple[int, int], b: tuple[int, int]
) -> Iterator[tuple[int | None, int | None]]:
    if max(a[1] - a[0], b[1] - b[0]) > _MATCHED:
        yield from _pair_rest(a, b)
        return
    # The heuristic `autojunk` would ignore entries that occur often, such as empty results.
    matcher = SequenceMatcher(None, one[a[0] : a[1]], other[b[0] : b[1]], autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        left, right = (a[0] + i, a[0] + j), (b[0] + k, b[0] + m)
        if kind == "equal":
            yield from zip(range(*left), range(*right), strict=True)
        else:
            yield from _pair_rest(left, right)


def _pair_rest(a: tuple[int, int], b: tuple[int, int]) -> Iterator[tuple[int | None, int | None]]:
    for k in range(max(a[1] - a[0], b[1] - b[0])):
        i, j = a[0] + k, b[0] + k
        yield (i if i < a[1] else None), (j if j < b[1] else None)


def _entry_key(entry: LogEntry) -> Hashable:
    """Return the key by which an entry equals one of another session: its content, without ids."""
    if isinstance(entry, Edit):
        return (entry.kind, len(entry.targets), *map(_entry_key, entry.inserted))
    return (entry.role, entry.tool, get_searchable_text(entry))


def _describe_edit(edit: Edit) -> str:
    return f"{edit.kind}: {_describe_sizes(edit)}"


def _describe_sizes(edit: Edit) -> str:
    return f"{pluralize(len(edit.targets), 'message')} out, {len(edit.inserted):,} in"


def _count_differing_rows(n: int) -> str:
    return "1 row differs" if n == 1 else f"{n:,} rows differ"


def _growth_points(session: Session) -> list[list[Any]]:
    sizes, _ = get_prompt_sizes(session)
    floats = np.array([float("nan") if n is None else float(n) for n in sizes])
    indices = decimate_points(floats, _POINTS).tolist()
    return [indices, [sizes[i] for i in indices]]
