"""An explorer: scrub through the calls of a session, see what fills each prompt, read any message
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as w

from ctxkit.markup import line
from ctxkit.widgets import explorer_panels

if TYPE_CHECKING:
    from ctxkit.widgets.scenes import Scene, Scenes

_ORDERS = (("largest first", True), ("as sent", False))
_TWIN_ROWS = 10
_SMOOTH = 5000
"""Up to so many entries the slider is followed while it moves; in a longer session only where it
comes to rest.
"""
_STYLE = (
    "<style>.ctxkit-messages"
    " select{font-family:var(--jp-code-font-family,monospace);height:330px}</style>"
)


class Explorer(w.VBox):  # type: ignore[misc]
    """The widget that `ctxkit.explore` returns; `call` is the call that it shows, and can be set.

    Everything can be reached with the keyboard. Front ends without widgets get the same as text and
    as HTML.
    """

    def __init__(self, scenes: Scenes, call: int) -> None:
        self.scenes = scenes
        self._page, self._scene = 0, scenes.at(None)
        self._make(call)
        super().__init__(self._arranged(), layout=w.Layout(width="100%"))
        self.slider.observe(self._moved, "value")
        self.order.observe(self._sorted, "value")
        self.list.observe(self._chosen, "index")
        self.pick.observe(self._picked, "value")
        self.back.on_click(lambda _: self._turn(-1))
        self.more.on_click(lambda _: self._turn(+1))
        self._moved()

    def _make(self, call: int) -> None:
        wide, near = w.Layout(width="auto"), {"description_width": "initial"}
        n, entries = len(self.scenes), len(self.scenes.session.path)
        self.slider = w.IntSlider(
            value=call, min=0, max=max(0, n - 1), description="call", layout=wide, style=near
        )
        self.slider.disabled, self.slider.continuous_update = n == 0, entries <= _SMOOTH
        self.heading, self.growth, self.bar = (
            w.HTML(layout=wide),
            w.HTML(layout=wide),
            w.HTML(layout=wide),
        )
        self.order = w.ToggleButtons(
            options=_ORDERS, value=True, tooltips=["Sort by tokens", "Sort by place"]
        )
        self.order.style.button_width = "110px"
        self.list = w.Select(options=[], rows=15, layout=wide)
        self.list.add_class("ctxkit-messages")
        # The lab takes ↑ and ↓ for itself before a list sees them; ← and → on a slider are left
        # alone.
        self.pick = w.IntSlider(min=0, max=0, description="line", style=near, layout=wide)
        self.back = w.Button(
            description="‹ back", tooltip="Messages before these", layout=w.Layout(width="80px")
        )
        self.more = w.Button(
            description="more ›", tooltip="Messages after these", layout=w.Layout(width="80px")
        )
        self.place, self.text = w.Label(), w.HTML(layout=wide)

    def _arranged(self) -> list[w.Widget]:
        tools = w.HBox([self.order, self.back, self.more, self.place])
        left = w.VBox([tools, self.list, self.pick], layout=w.Layout(width="55%"))
        right = w.VBox([self.text], layout=w.Layout(width="45%", padding="0 0 0 8px"))
        return [
            w.HTML(_STYLE),
            self.slider,
            self.heading,
            self.growth,
            self.bar,
            w.HBox([left, right]),
        ]

    @property
    def call(self) -> int:
        """The call that is shown, counted from 0."""
        return int(self.slider.value)

    @call.setter
    def call(self, number: int) -> None:
        self.slider.value = self.scenes.session.call(number).index

    @property
    def scene(self) -> Scene:
        """What is shown, as plain values."""
        return self._scene

    def _moved(self, _: Any = None) -> None:
        self._scene = self.scenes.at(self.call if len(self.scenes) else None)
        self._page = 0
        self.heading.value = self._heading()
        self.growth.value = explorer_panels.growth(
            self.scenes.prompts, self._scene.limit, self._scene.call
        )
        self.bar.value = explorer_panels.bar(self._scene)
        self._fill()

    def _sorted(self, _: Any) -> None:
        self._page = 0
        self._fill()

    def _turn(self, by: int) -> None:
        self._page = min(max(self._page + by, 0), self._scene.pages - 1)
        self._fill()

    def _fill(self) -> None:
        items = self._scene.page(self._page, by_size=self.order.value)
        self.list.options = [item.label for item in items]
        self.list.index = 0 if items else None
        self.pick.max, self.pick.disabled = max(0, len(items) - 1), not items
        self.back.disabled, self.more.disabled = (
            self._page == 0,
            self._page + 1 >= self._scene.pages,
        )
        self.place.value = (
            f"page {self._page + 1} of {self._scene.pages}" if self._scene.pages > 1 else ""
        )
        self._chosen()

    def _picked(self, _: Any) -> None:
        if self.list.index is not None:
            self.list.index = self.pick.value

    def _chosen(self, _: Any = None) -> None:
        items, index = self._scene.page(self._page, by_size=self.order.value), self.list.index
        item = items[index] if index is not None and index < len(items) else None
        if item is not None:
            self.pick.value = index
        self.text.value = explorer_panels.reading(item)

    def to_text(self) -> str:
        """Return what is shown as text: the call, its groups, its largest messages."""
        groups = [f"  {n:>9,}  {name}" for name, n in self._scene.groups]
        largest = [f"  {item.label}" for item in self._scene.largest[:_TWIN_ROWS]]
        head = explorer_panels.told(self._scene, len(self.scenes))
        notes = [f"Note: {line(n, 400)}" for n in self.scenes.session.notes]
        return "\n".join([head, *notes, "tokens by group:", *groups, "largest messages:", *largest])

    def to_html(self) -> str:
        """Return what is shown as HTML that needs no kernel."""
        return "".join(
            [
                self._heading(),
                explorer_panels.growth(self.scenes.prompts, self._scene.limit, self._scene.call),
                explorer_panels.bar(self._scene),
                explorer_panels.listing(self._scene.largest[:_TWIN_ROWS]),
            ]
        )

    def _heading(self) -> str:
        told = explorer_panels.noted(self.scenes.session.notes)
        return explorer_panels.heading(self._scene, len(self.scenes)) + told

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        return {**bundle, "text/plain": self.to_text(), "text/html": self.to_html()}
