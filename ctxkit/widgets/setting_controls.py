"""The controls of a tuner: sliders and switches, those that matter first, the rest folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as w

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.widgets.effects import Effect
    from ctxkit.widgets.knobs import Choice, Knob

_FEW = 6
"""With more settings than this the others are folded away."""


def arranged(controls: Sequence[w.Widget], effects: Sequence[Effect]) -> list[w.Widget]:
    """Return controls in a grid, those folded away that change least, with the reason."""
    grid = w.Layout(grid_template_columns="repeat(auto-fill, minmax(380px, 1fr))", flex="0 0 auto")
    first = len(controls)
    if first > _FEW:
        first = min(_FEW, sum(e.tokens != 0 for e in effects)) or _FEW
    parts: list[w.Widget] = [w.GridBox(controls[:first], layout=grid)]
    if len(controls) > first:
        names = ", ".join(e.name for e in effects[first:] if e.tokens == 0)
        why = (
            f"Neither end of their ranges changes this replay, as the others stand: {names}."
            if names
            else "They change this replay less than those above."
        )
        rest = w.VBox([w.HTML(why), w.GridBox(controls[first:], layout=grid)])
        titles = (f"{len(controls) - first} more settings",)
        parts.append(w.Accordion([rest], titles=titles, selected_index=None))
    return parts


def toggle(choice: Choice) -> w.Widget:
    """Return a switch, or a row of buttons for a few words; a list where they are many."""
    told = choice.name.replace("_", " ")
    if isinstance(choice.value, bool):
        return w.Checkbox(value=choice.value, description=told, indent=False)
    kind = w.ToggleButtons if len(choice.options) <= _FEW else w.Dropdown
    made = kind(options=choice.options, value=choice.value, description=told)
    made.style.description_width = "190px"
    if kind is w.ToggleButtons:
        made.style.button_width = "auto"
    return made


def slider(knob: Knob) -> w.Widget:
    """Return a slider that the keyboard moves too."""
    common: dict[str, Any] = {
        "value": knob.value,
        "min": knob.low,
        "max": knob.high,
        "step": knob.step,
        "description": knob.name.replace("_", " ") + " (0: none)" * knob.none,
        "style": {"description_width": "190px"},
        "layout": w.Layout(width="auto"),
    }
    if knob.whole:  # a browser moves a value that is no whole number of steps from the lower end
        common["min"] = knob.low + (knob.value - knob.low) % knob.step
        return w.IntSlider(readout_format=",d", **common)
    return w.FloatSlider(readout_format=".2f", **common)
