"""A real JupyterLab in a real Chromium: run a notebook there and say what was seen.

One lab and one page serve all tests of the folder: a notebook is opened, used and closed again.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from weakref import WeakKeyDictionary

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from waiting import PATIENCE

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = [
    *[
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ],
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
"""With them the browser reaches nothing but this machine; a route in the page would do it at a far higher cost."""
WIDGET, PLOTLY = "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"
IDLE = ".jp-Notebook-ExecutionIndicator[data-status='idle']"

SETTINGS = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "notebook-extension/tracker": {"windowingMode": "none"},  # else cells out of view stay undrawn
    "docmanager-extension/plugin": {"autosave": False},
}

# anywidget gives a model two seconds to load, which is too short on a machine that runs a test suite.
PATIENT = """
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (milliseconds) => timeout(30 * milliseconds);
"""
OPEN = """async ({path, theme}) => {
  const app = window.jupyterapp;
  await app.restored;
  await app.commands.execute('apputils:change-theme', {theme});
  const panel = await app.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await panel.context.ready; await panel.revealed;
  app.shell.activateById(panel.id);
  window.notebook = panel;  // what is in front may change
}"""
CLOSE = """async () => {
  await window.notebook.sessionContext.shutdown();
  for (const widget of [...window.jupyterapp.shell.widgets('main')]) widget.dispose();
}"""
# Running before the session is ready makes the lab ask for a kernel, and nobody answers.
RUN = """async (limit) => {
  const panel = window.notebook;
  await panel.context.ready; await panel.sessionContext.ready; await panel.sessionContext.session?.kernel?.info;
  const late = new Promise(done => setTimeout(() => done('too late'), limit));
  const ran = window.jupyterapp.commands.execute('notebook:run-all-cells');
  return await Promise.race([late, ran.then(ok => ok === false ? 'a cell failed' : 'ran', e => String(e))]);
}"""
REOPEN = """async () => {
  const path = window.notebook.context.path;
  await window.notebook.context.save();
  if (window.notebook.sessionContext.session) await window.notebook.sessionContext.shutdown();
  for (const widget of [...window.jupyterapp.shell.widgets('main')]) widget.dispose();
  const panel = await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await panel.context.ready; await panel.revealed;
  window.jupyterapp.shell.activateById(panel.id);
  window.notebook = panel;
}"""
# From the model, not from the page: outputs out of view count too.
CELLS = """() => window.notebook.content.widgets
  .map((c, i) => ({c, i})).filter(({c}) => c.model.type === 'code').map(({c, i}) => ({
    index: i, ran: c.model.executionCount !== null, source: c.model.sharedModel.source,
    outputs: c.model.outputs.toJSON(), text: c.node.innerText,
    svgs: c.node.querySelectorAll('.js-plotly-plot .main-svg').length > 0,
    widgets: c.node.querySelectorAll('.jupyter-widgets,.ctxkit-hand,.ctxkit-watch').length,
    slots: c.node.querySelectorAll('.ctxkit-slot').length, views: c.node.querySelectorAll('.ctxkit-live-view').length,
  }))"""


SETTLE = """ms => new Promise(done => setTimeout(
  () => requestAnimationFrame(() => requestAnimationFrame(() => done())), ms))"""


@dataclass
class Seen:
    """What a run showed; all is well where `problems` is empty."""

    cells: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Addresses outside this machine that the page asked for; they were refused."""
    plots: int = 0
    widgets: int = 0


def written(folder: Path, *cells: str) -> Path:
    """Write a notebook of code cells into a new folder; in them `{tests}` is the folder of tests."""
    folder.mkdir()
    tests = str(Path(__file__).parents[1])
    code = [new_code_cell(c.replace("{tests}", repr(tests))) for c in cells]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = new_notebook(
        cells=[new_markdown_cell(f"# {folder.name}"), *code], metadata={"kernelspec": kernel}
    )
    nbformat.write(made, folder / f"{folder.name}.ipynb")
    return folder / f"{folder.name}.ipynb"


@contextmanager
def lab(root: Path, home: Path):
    """Serve a folder with a JupyterLab of its own; yields its address and its token."""
    for name, value in SETTINGS.items():
        target = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(value))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token, base = secrets.token_hex(12), f"http://127.0.0.1:{port}"
    folders = ("JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME", "JUPYTERLAB_WORKSPACES")
    private = {f"{name}_DIR": str(home / name.lower()) for name in folders}
    env = {
        **os.environ,
        **private,
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "IPYTHONDIR": str(home / "ipy"),
    }
    options = (
        f"--no-browser --allow-root --ip=127.0.0.1 --port={port} --ServerApp.port_retries=0 "
        f"--IdentityProvider.token={token} --LabApp.expose_app_in_browser=True --LabApp.news_url=None "
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.extension_manager=readonly "
        "--ServerApp.terminals_enabled=False --LanguageServerManager.autodetect=False"
    )
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}", *options.split()]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=env, cwd=root, stdout=log, stderr=log)
        try:
            _wait_until_up(server, base, token)
            yield base, token
        finally:
            server.terminate()  # the server ends its kernels first
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_up(server: subprocess.Popen, base: str, token: str) -> None:
    request, end = (
        Request(f"{base}/api/status", headers={"Authorization": f"token {token}"}),
        time.monotonic() + 2 * PATIENCE,
    )
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"jupyter lab ended at its start with {server.returncode}")
        try:
            with urlopen(request, timeout=PATIENCE):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError("jupyter lab did not answer within 120 s")


class WatchedPage:
    """A page whose errors and requests are noted in `seen`."""

    def __init__(self, browser: Any) -> None:
        self.seen = Seen()
        self.is_used = False
        self.page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="light")
        self.page.set_default_timeout(90_000)
        self.page.on("pageerror", self._note_error)
        self.page.on("request", lambda request: self._note_address(request.url))
        self.page.on("websocket", lambda socket: self._note_address(socket.url))
        self.page.add_init_script(PATIENT)

    def _note_error(self, error: Any) -> None:
        self.seen.problems.append(f"JavaScript: {str(error)[:300]}")

    def _note_address(self, address: str) -> None:
        url = urlsplit(address)
        if url.hostname != "127.0.0.1" and url.scheme not in ("data", "blob", "file"):
            self.seen.left.append(address)


_PAGES: WeakKeyDictionary[Any, WatchedPage] = WeakKeyDictionary()
"""The page that the tests of a browser use one after another: a new one costs half a second of CPU."""


@contextmanager
def browser_page(
    browser: Any, seen: Seen, *, dark: bool = False, size: tuple[int, int] = (1280, 1000)
):
    """Lend the browser's page, empty; what it does is in `seen`, and what it asked for in `seen.left`.

    Only JupyterLab has a page of its own.
    """
    if browser not in _PAGES:
        _PAGES[browser] = WatchedPage(browser)
    watched = _PAGES[browser]
    page = watched.page
    assert not watched.is_used, "a browser has one page, which is used"
    watched.seen, watched.is_used = seen, True
    try:
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(media="null", color_scheme="dark" if dark else "light")
        yield page
    finally:
        page.mouse.move(-1, -1)
        page.goto("about:blank")
        watched.seen, watched.is_used = Seen(), False


class Jupyter:
    """A lab that is open in a page, and the folder that it serves."""

    def __init__(self, page: Any, root: Path, seen: Seen) -> None:
        self.page, self.root, self.seen = page, root, seen

    def run(self, notebook: Path, *, dark: bool = False, act: Any = None) -> Seen:
        """Run a notebook of a folder and look at every output.

        `act(page, seen)` may then use the page as a person would. Pictures of all outputs are
        taken where CTXKIT_SHOTS names a folder for them.
        """
        page, seen = self.page, self.seen
        seen.cells, seen.problems[:], seen.left[:] = [], [], []
        folder = self.root / f"{len(list(self.root.iterdir()))}-{notebook.parent.name}"
        shutil.copytree(notebook.parent, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        theme = "Dark" if dark else "Light"
        page.set_default_timeout(90_000)
        page.emulate_media(color_scheme=theme.lower())
        path = f"{folder.name}/{notebook.name}"
        page.evaluate(OPEN, {"path": path, "theme": f"JupyterLab {theme}"})
        try:
            page.wait_for_selector(IDLE, state="attached")
            verdict = page.evaluate(RUN, 240_000)
            if verdict != "ran":
                seen.problems.append(verdict)
            page.wait_for_selector(IDLE, state="attached")
            _wait_until_drawn(page, seen)
            if act is not None:
                act(page, seen)
            if os.environ.get("CTXKIT_SHOTS"):
                shots = Path(os.environ["CTXKIT_SHOTS"]).resolve()
                shots.mkdir(parents=True, exist_ok=True)
                _shoot(page, seen, shots, f"{notebook.stem}-{theme.lower()}")
        finally:
            page.evaluate(CLOSE)
        seen.problems += [f"asked for {url}" for url in sorted(set(seen.left))[:5]]
        return seen


@contextmanager
def jupyter_in(browser: Any, folder: Path):
    """Start a lab over an empty folder and open it in a page."""
    root, seen = folder / "files", Seen()
    root.mkdir()
    with lab(root, folder / "home") as (base, token):
        watched = WatchedPage(browser)
        watched.seen, page = seen, watched.page
        page.goto(f"{base}/lab?reset&token={token}")
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget")
        page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
        yield Jupyter(page, root, seen)
        page.close()


def settle(page: Any, milliseconds: int = 300) -> None:
    """Wait by the page's own clock, which is late where the page is: what it began is drawn then."""
    page.evaluate(SETTLE, milliseconds)


def _wait_until_drawn(page: Any, seen: Seen) -> None:
    end = time.monotonic() + PATIENCE
    while (missing := _look(page, seen)) and time.monotonic() < end:
        page.wait_for_timeout(250)
    seen.problems += missing


def _look(page: Any, seen: Seen) -> list[str]:
    """Count what is drawn and return what is wrong."""
    seen.cells, wrong = page.evaluate(CELLS), []
    mimes = [[m for o in c["outputs"] for m in o.get("data", {})] for c in seen.cells]
    seen.plots, seen.widgets = (
        sum(m.count(PLOTLY) for m in mimes),
        sum(m.count(WIDGET) for m in mimes) + sum(c["slots"] for c in seen.cells),
    )
    for cell, shown in zip(seen.cells, mimes, strict=True):
        name, expected = f"cell {cell['index']}", "raises-exception" in cell["source"]
        for out in cell["outputs"]:
            if out["output_type"] == "error" and not expected:
                wrong.append(f"{name}: {out['ename']}: {out['evalue'][:200]}")
            if out.get("name") == "stderr":
                wrong.append(
                    f"{name}: stderr: {str(out['text'])[:200]}"
                )  # a UsageError shows only here
        if cell["source"].strip() and not cell["ran"]:
            wrong.append(f"{name} did not run")
        if PLOTLY in shown and not cell["svgs"]:
            wrong.append(f"{name}: a figure is not drawn")
        if WIDGET in shown and (not cell["widgets"] or "Loading widget" in cell["text"]):
            wrong.append(f"{name}: a widget is not drawn")
        if cell["slots"] > cell["views"]:
            wrong.append(f"{name}: a still picture has no live view")
        if "Error displaying widget" in cell["text"]:
            wrong.append(f"{name}: a widget is broken")
    return wrong


def _shoot(page: Any, seen: Seen, shots: Path, stem: str) -> None:
    page.evaluate("() => { window.notebook.content.activeCellIndex = 0 }")
    settle(page)
    page.screenshot(path=shots / f"{stem}.png")
    nodes = page.locator(".jp-Notebook .jp-Cell")
    for cell in seen.cells:
        if any(o.get("data") for o in cell["outputs"]):
            nodes.nth(cell["index"]).scroll_into_view_if_needed()
            nodes.nth(cell["index"]).screenshot(path=shots / f"{stem}-{cell['index']:02d}.png")
