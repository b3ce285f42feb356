"""A button that shows a text and puts it into the clipboard, without asking the kernel."""

from __future__ import annotations

import anywidget
import traitlets as t

_ESM = """
async function copied(area) {
  try { await navigator.clipboard.writeText(area.value); return true; } catch { /* no permission, or plain http */ }
  area.focus(); area.select();
  try { return document.execCommand("copy"); } catch { return false; }
}
export default { render({ model, el }) {
  const row = document.createElement("div"), button = document.createElement("button");
  const said = document.createElement("span"), note = document.createElement("div");
  const area = document.createElement("textarea");
  button.type = "button"; button.className = "jupyter-button widget-button lm-Widget"; button.style.width = "auto";
  said.setAttribute("role", "status"); said.style.marginLeft = "8px";
  note.style.cssText = "color:var(--jp-ui-font-color2, #666);font-size:12px;line-height:1.4";
  area.readOnly = true; area.hidden = true; area.spellcheck = false;
  area.style.cssText = "width:100%;box-sizing:border-box;font-family:var(--jp-code-font-family,monospace);" +
    "font-size:12px;color:inherit;background:var(--jp-layout-color2,transparent)";
  const draw = () => {
    button.textContent = model.get("label"); button.title = "Show it, and copy it to the clipboard";
    area.value = model.get("text"); area.rows = Math.min(area.value.split("\\n").length, 16);
    area.setAttribute("aria-label", model.get("label")); note.textContent = model.get("note"); said.textContent = "";
  };
  button.addEventListener("click", async () => {
    area.hidden = false;
    said.textContent = await copied(area) ? "copied" : "select it and copy it by hand";
  });
  for (const name of ["text", "label", "note"]) model.on("change:" + name, draw);
  row.append(button, said); el.append(row, note, area); draw();
} };
"""


class Copier(anywidget.AnyWidget):  # type: ignore[misc]
    """A button and the text that it copies; the text is shown when the button is first pressed."""

    _esm = _ESM
    text = t.Unicode("").tag(sync=True)
    label = t.Unicode("").tag(sync=True)
    """What the button says."""
    note = t.Unicode("").tag(sync=True)
    """What is to be known about the text."""
