"""An explorer: go through the calls of a session, see what fills each prompt, search its messages
and read them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import traitlets as t

from ctxkit.composition import GROUPS
from ctxkit.display.markup import line, noted
from ctxkit.messages import Edit
from ctxkit.plots.decimation import decimate
from ctxkit.plots.palette import GROUP_COLOURS
from ctxkit.subjects import subject
from ctxkit.titles import title_of
from ctxkit.widgets import explorer_panels as panels
from ctxkit.widgets.byhand.charted import Charted, code
from ctxkit.widgets.byhand.feeds import Feed
from ctxkit.widgets.chosen import Chosen, Wanted, choices, chosen
from ctxkit.widgets.kin import figures, tree
from ctxkit.widgets.scenes import TEXT_CHARS, Scenes, failed, first_words, full_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.plots.chart import Chart
    from ctxkit.session import Session
    from ctxkit.widgets.scenes import ListLine, Scene

CHUNK = 100
"""Lines of the list that are sent at once."""
_TWIN_ROWS, _POINTS, _MARKS = 10, 4_000, 400
_HELD, _HELD_CHARS, _HELD_ALL = 2, 4_000, 1_000_000
"""Of a page without a kernel: pieces of the list, characters of a message, and of all."""


class Explorer(Charted):
    """The widget that `ctxkit.explore` returns; `call` is the call that it shows, and can be set.

    The list holds only what is in sight, so that a session of any length opens at once; where it
    has more than 5,000 entries, the sizes of its messages come later. Front ends without widgets
    get the same as text and as HTML.
    """

    _esm = code("list.js", "explore.js", render="explore")
    shared: ClassVar = ("data", "call")
    call = t.Int(0).tag(sync=True)
    """The call that is shown, counted from 0; negatives count from the end."""

    def __init__(self, session: Session, call: int = 0) -> None:
        self._family = tree(session)
        self._seen: tuple[Any, Scene] | None = None
        self._last: tuple[Any, Chosen] | None = None
        self._take(0)
        self._first = call
        super().__init__(Feed(lambda: [self.scenes.session]), call=call)

    def _take(self, number: int) -> None:
        self._number = number
        self.scenes = Scenes(self._family[number].session)
        self._last = self._seen = None
        self._measuring: threading.Thread | None = None

    @t.validate("call")  # type: ignore[untyped-decorator]
    def _within(self, proposal: Any) -> int:
        if not len(self.scenes):
            return 0
        return int(self.scenes.session.call(proposal["value"]).index)

    @property
    def scene(self) -> Scene:
        """What is shown, as plain values."""
        return self._scene(self.call)

    def _scene(self, call: int) -> Scene:
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
        kept = decimate(np.array(sizes), _POINTS).tolist()
        places = [c.position for c in session.calls]
        cuts = _cuts(session, places)
        scene = self._scene(self._first)
        return {
            "title": title_of(session, 100),
            "calls": n,
            "entries": len(session.path),
            "line": [kept, [self.scenes.prompts[i] for i in kept]],
            "limit": scene.limit,
            "cuts": cuts[:_MARKS],
            "notes": [line(note, 400) for note in session.notes],
            "tree": self._tree(),
            "open": self._number,
            "first": self._rows({"call": self._first, "largest": True, "from": 0}),
        }

    def _tree(self) -> list[list[Any]]:
        if len(self._family) == 1:
            return []
        told = figures(self._family)
        return [[r.depth, r.title, told[i]] for i, r in enumerate(self._family)]

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        kind = asked.get("kind")
        if kind == "rows":
            return self._rows(asked)
        if kind == "text":
            return self._text(asked)
        if kind == "choices":
            return {"kind": kind, **choices(self.scenes)}
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
                asked = {"call": self.call, "largest": largest, "from": piece * CHUNK}
                at = f"{self.call}|{'largest' if largest else 'sent'}|||||||{piece * CHUNK}"
                out.append({"kind": "rows", "at": at, **asked})
        for item in self._chosen(self.call, Wanted()).lines[: _HELD * CHUNK]:
            room -= min(len(full_text(item.message, _HELD_CHARS)), _HELD_CHARS)
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
        return min(max(_number(asked.get("call")), 0), max(len(self.scenes) - 1, 0))

    def _items(self, call: int, *, whole: bool) -> Sequence[ListLine]:
        return self.scenes.whole if whole else self._scene(call).items

    def _chosen(self, call: int, wanted: Wanted) -> Chosen:
        """Return what is asked for; asked again for another part of it, as it was."""
        key = (call, wanted, self.scenes.measured)
        if self._last is None or self._last[0] != key:
            items = self._items(call, whole=wanted.whole)
            self._last = key, chosen(self.scenes, items, wanted)
        return self._last[1]

    def _rows(self, asked: dict[str, Any]) -> dict[str, Any]:
        call, first = self._at(asked), max(_number(asked.get("from")), 0)
        wanted = Wanted.of(asked)
        found = self._chosen(call, wanted)
        marks = {i.call for i in found.lines if i.call is not None} if wanted.whole else set()
        told = {
            "kind": "rows",
            "total": len(found.lines),
            "of": len(self._items(call, whole=wanted.whole)),
            "rows": [self._row(i) for i in found.lines[first : first + CHUNK]],
            "said": found.said,
            "marks": sorted(marks)[:_MARKS] if any(wanted[2:]) else [],
            "measured": self.scenes.measured,
        }
        if not first:
            told["head"] = self._head(call)
        return told

    def _row(self, item: ListLine) -> list[Any]:
        m, call = item.message, self.scenes.asked(item.message)
        marks = "✗" * failed(m) + "~" * (item.changed_by is not None)
        name, words = m.tool or m.role, first_words(m)
        if call is not None:  # a result is what was asked for, not how it begins
            words = subject(call, self.scenes.session.cwd, 200).removeprefix(name).strip() or words
        return [item.position, item.tokens, marks, line(name, 30), line(words, 120), item.call]

    def _head(self, call: int) -> dict[str, Any]:
        scene = self._scene(call)
        return {
            "call": call,
            "told": panels.told(scene, len(self.scenes)),
            "groups": [[g, n, GROUP_COLOURS[GROUPS.index(g)]] for g, n in scene.groups],
        }

    def _text(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        call, row = self._at(asked), _number(asked.get("row"))
        items = self._items(call, whole=asked.get("whole") is True)
        if not 0 <= row < len(items):
            return None
        item = items[row]
        size = "size not known yet" if item.tokens is None else f"{item.tokens:,} tokens"
        parts = (item.name, size, item.change, f"message {item.position}")
        most = min(_number(asked.get("most")) or 10**9, TEXT_CHARS)
        text = full_text(item.message, most)
        return {"kind": "text", "head": " · ".join(filter(None, parts)), "text": text}

    # -- twins -----------------------------------------------------------

    def _chart(self) -> Chart:
        from ctxkit.plots._growth import growth

        return growth(self.scenes.session)

    def to_text(self) -> str:
        """Return what is shown as text: the call, its groups, its largest messages."""
        scene = self.scene
        groups = [f"  {n:>9,}  {name}" for name, n in scene.groups]
        largest = [f"  {item.label}" for item in scene.largest[:_TWIN_ROWS]]
        head = panels.told(scene, len(self.scenes))
        notes = [f"Note: {line(n, 400)}" for n in self.scenes.session.notes]
        told = ["tokens by group:", *groups] if groups else []
        return "\n".join([head, *notes, *told, "largest messages:", *largest])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        scene = self.scene
        head = panels.heading(scene, len(self.scenes)) + noted(self.scenes.session.notes)
        drawn = panels.growth(self.scenes.prompts, scene.limit, scene.call) + panels.bar(scene)
        return head + drawn + panels.listing(scene.largest[:_TWIN_ROWS])


def _cuts(session: Session, places: list[int]) -> list[int]:
    """Return the calls before which a compaction stands."""
    edits = (i for i, e in enumerate(session.path) if isinstance(e, Edit))
    return list(dict.fromkeys(bisect_left(places, i) for i in edits))


def _number(value: Any) -> int:
    return value if type(value) is int else 0
