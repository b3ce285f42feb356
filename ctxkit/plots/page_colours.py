"""Words of a plotly figure in the text colour of the page that shows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ctxkit._internal.palette import TEXT_COLOUR

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE_TEXT_COLOUR = f"var(--jp-content-font-color1,var(--vscode-foreground,{TEXT_COLOUR}))"
"""The colour of text in JupyterLab's and VS Code's themes; elsewhere the grey of all figures."""
_SPAN = f"<span style='color:{PAGE_TEXT_COLOUR}'>"
_AXIS = re.compile(r"[xy]axis\d*")


# A colour of a layout must be a constant, and no grey has a contrast of 4.5 on white and on black.
# Plotly's texts may hold `<span style=...>`, whose style reaches the browser as it is: there a
# variable of the page's theme can stand. It so acts in a notebook that was reopened without a
# kernel, where no script and no style sheet of ours runs. Hover labels drop such tags of a trace's
# name; the header of a shared hover box does not, so ticks of such an axis keep the grey.


def use_page_colours(figure: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plotly figure whose grey words have the text colour of the page.

    Titles, labels of ticks, names in the legend and beside points, and annotations change; words
    with a colour of their own and words on marks do not.

    Args:
        figure: `data` and `layout` as plain JSON; it is not changed.
    """
    layout = dict(figure["layout"])
    if (layout.get("font") or {}).get("color") != TEXT_COLOUR:
        return dict(figure)  # a figure of one's own, with colours of its own
    has_shared_hover = str(layout.get("hovermode", "")).startswith("x unified")
    for name, value in layout.items():
        if name == "title":
            layout[name] = _colour_text(value)
        elif name == "annotations":
            layout[name] = [_colour_text(each) for each in value]
        elif _AXIS.fullmatch(name):
            keep_ticks = has_shared_hover and name.startswith("x")
            layout[name] = _colour_axis(value, with_ticks=not keep_ticks)
    return {**figure, "data": [_colour_trace(trace) for trace in figure["data"]], "layout": layout}


def _wrap_words(text: Any) -> str:
    return f"{_SPAN}{text}</span>" if text else ""


def _is_grey(font: Any) -> bool:
    return bool((font or {}).get("color", TEXT_COLOUR) == TEXT_COLOUR)


def _colour_text(part: Any) -> Any:
    """Colour the `text` of a title or an annotation."""
    if not isinstance(part, dict) or not part.get("text") or not _is_grey(part.get("font")):
        return part
    return {**part, "text": _wrap_words(part["text"])}


def _colour_axis(axis: dict[str, Any], *, with_ticks: bool = True) -> dict[str, Any]:
    """Colour the title and the ticks of an axis or of a colour bar."""
    axis = {**axis, "title": _colour_text(axis.get("title"))}
    if not with_ticks or not _is_grey(axis.get("tickfont")):
        return axis
    if axis.get("ticktext") is not None:
        return {**axis, "ticktext": [_wrap_words(text) for text in axis["ticktext"]]}
    before, after = axis.get("tickprefix", ""), axis.get("ticksuffix", "")
    return {**axis, "tickprefix": f"{_SPAN}{before}", "ticksuffix": f"{after}</span>"}


def _colour_trace(trace: dict[str, Any]) -> dict[str, Any]:
    trace = {**trace}
    if trace.get("name"):
        trace["name"] = _wrap_words(trace["name"])
    if trace.get("colorbar"):
        trace["colorbar"] = _colour_axis(trace["colorbar"])
    is_beside_points = "text" in str(trace.get("mode", "")) and trace.get("hovertemplate")
    if is_beside_points and isinstance(trace.get("text"), list) and _is_grey(trace.get("textfont")):
        trace["text"] = [_wrap_words(text) for text in trace["text"]]
    return trace
