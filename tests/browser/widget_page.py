"""A widget in a plain page, its questions answered by Python: what a lab does, without one."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkit.widgets import ChartWidget

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>stand</title>
<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:1em}%s</style></head>
<body><div id="here"></div><script>
const [ask, changed] = [window["ask%d"], window["changed%d"]];
window.state = %s; window.listening = {}; window.dirty = new Set();
window.tell = (event, ...args) => (listening[event] || []).forEach(f => f(...args));
window.put = (k, v) => { if (JSON.stringify(state[k]) !== JSON.stringify(v)) { state[k] = v; tell("change:" + k); } };
window.model = {
  get: k => state[k], set: (k, v) => { if (state[k] !== v) { state[k] = v; dirty.add(k); tell("change:" + k); } },
  on: (k, f) => { (listening[k] ||= []).push(f); }, off: (k, f) => { listening[k] = (listening[k] || []).filter(g => g !== f); },
  save_changes: () => { const now = [...dirty].map(k => [k, state[k]]); dirty.clear(); changed(now).then(took); },
  send: m => { if (m.kind !== "plotly") ask(m).then(took); },
};
const took = said => { for (const [k, v] of said.state) put(k, v); for (const m of said.messages) tell("msg:custom", m, []); };
setInterval(() => ask({ kind: "nothing" }).then(took), 200);
%s
window.end = widget.render({ model, el: document.getElementById("here") });</script></body></html>"""


_NUMBERS = count()


def stand(page: Any, widget: ChartWidget, *, plotly: bool = False) -> None:
    """Show a widget in a page; what it asks is answered, what it sets is set."""
    said: list[Any] = []
    known = {name: getattr(widget, name) for name in widget.shared}
    widget.send = lambda content, **_: said.append(content)

    def answers() -> dict[str, Any]:
        state = []
        for name in widget.shared:
            value = getattr(widget, name)
            if value is not known[name] and value != known[name]:
                known[name] = value
                state.append([name, value])
        messages = [said.pop(0) for _ in range(len(said))]
        return json.loads(json.dumps({"state": state, "messages": messages}))

    def ask(_: Any, asked: Any) -> dict[str, Any]:
        widget._on_browser_request(widget, asked, [])
        return answers()

    def changed(_: Any, values: list[Any]) -> dict[str, Any]:
        for name, value in values:
            known[name] = value
            setattr(widget, name, value)
        return answers()

    number = next(_NUMBERS)  # a page that is used again has the functions of the widget before
    page.expose_binding(f"ask{number}", ask)
    page.expose_binding(f"changed{number}", changed)
    code = str(widget._esm).replace("export default", "const widget =")
    held = json.dumps(known).replace("<", "\\u003c")
    if plotly:
        import plotly as library

        page.add_script_tag(path=Path(library.__file__).parent / "package_data" / "plotly.min.js")
    page.set_content(_PAGE % (str(widget._css), number, number, held, code))
