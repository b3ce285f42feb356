"""A real JupyterLab in a real Chromium: run a notebook there and say what was seen."""

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
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"
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

# Running before the session is ready makes the lab ask for a kernel, and nobody answers.
RUN = """async (limit) => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready; await panel.sessionContext.ready; await panel.sessionContext.session?.kernel?.info;
  const late = new Promise(done => setTimeout(() => done('too late'), limit));
  const ran = window.jupyterapp.commands.execute('notebook:run-all-cells');
  return await Promise.race([late, ran.then(ok => ok === false ? 'a cell failed' : 'ran', e => String(e))]);
}"""
# From the model, not from the page: outputs out of view count too.
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .map((c, i) => ({c, i})).filter(({c}) => c.model.type === 'code').map(({c, i}) => ({
    index: i, ran: c.model.executionCount !== null, source: c.model.sharedModel.source,
    outputs: c.model.outputs.toJSON(), text: c.node.innerText,
    svgs: c.node.querySelectorAll('.js-plotly-plot .main-svg').length > 0,
    widgets: c.node.querySelectorAll('.jupyter-widgets,.ctxkit-hand,.ctxkit-watch').length,
  }))"""


@dataclass
class Seen:
    """What a run showed; all is well where `problems` is empty."""

    cells: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Addresses outside this machine that the page asked for; they were refused."""
    plots: int = 0
    widgets: int = 0


@contextmanager
def lab(root: Path, home: Path, *, dark: bool = False):
    """Serve a folder with a JupyterLab of its own; yields its address and its token."""
    theme = {"apputils-extension/themes": {"theme": f"JupyterLab {'Dark' if dark else 'Light'}"}}
    for name, value in {**SETTINGS, **theme}.items():
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
        "--ServerApp.terminals_enabled=False"
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
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_until_up(server: subprocess.Popen, base: str, token: str) -> None:
    request, end = (
        Request(f"{base}/api/status", headers={"Authorization": f"token {token}"}),
        time.monotonic() + 90,
    )
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(f"jupyter lab ended at its start with {server.returncode}")
        try:
            with urlopen(request, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError("jupyter lab did not answer within 90 s")


@contextmanager
def browser_page(
    playwright: Any, seen: Seen, *, dark: bool = False, size: tuple[int, int] = (1280, 1000)
):
    """A page that can reach nothing but this machine; what it tried is in `seen.left`."""
    browser = playwright.chromium.launch(
        executable_path=str(CHROMIUM), headless=True, args=FLAGS.split()
    )
    try:
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page.set_default_timeout(90_000)
        page.on("pageerror", lambda e: seen.problems.append(f"JavaScript: {str(e)[:300]}"))

        def gate(route: Any) -> None:
            url = urlsplit(route.request.url)
            if url.hostname == "127.0.0.1" or url.scheme in ("data", "blob", "file"):
                route.continue_()
            else:
                seen.left.append(route.request.url)
                route.abort()

        page.route("**/*", gate)
        yield page
    finally:
        browser.close()


def run_notebook(
    playwright: Any, notebook: Path, tmp: Path, shots: Path, *, dark: bool = False, act: Any = None
) -> Seen:
    """Run a notebook and look at every output.

    `act(page, seen)` may then use the page as a person would, before the pictures are taken.
    """
    seen, root = Seen(), tmp / "files"
    shutil.copytree(notebook.parent, root, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    shots.mkdir(parents=True, exist_ok=True)
    with (
        lab(root, tmp / "home", dark=dark) as (base, token),
        browser_page(playwright, seen, dark=dark) as page,
    ):
        page.goto(f"{base}/lab/tree/{quote(notebook.name)}?reset&token={token}")
        page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext")
        page.wait_for_selector(IDLE, state="attached")
        page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
        verdict = page.evaluate(RUN, 240_000)
        if verdict != "ran":
            seen.problems.append(verdict)
        page.wait_for_selector(IDLE, state="attached")
        _wait_until_drawn(page, seen)
        if act is not None:
            act(page, seen)
        _shoot(page, seen, shots, f"{notebook.stem}-{'dark' if dark else 'light'}")
    seen.problems += [f"asked for {url}" for url in sorted(set(seen.left))[:5]]
    return seen


def _wait_until_drawn(page: Any, seen: Seen) -> None:
    end = time.monotonic() + 30
    while (missing := _look(page, seen)) and time.monotonic() < end:
        page.wait_for_timeout(250)
    seen.problems += missing


def _look(page: Any, seen: Seen) -> list[str]:
    """Count what is drawn and return what is wrong."""
    seen.cells, wrong = page.evaluate(CELLS), []
    mimes = [[m for o in c["outputs"] for m in o.get("data", {})] for c in seen.cells]
    seen.plots, seen.widgets = (
        sum(m.count(PLOTLY) for m in mimes),
        sum(m.count(WIDGET) for m in mimes),
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
        if "Error displaying widget" in cell["text"]:
            wrong.append(f"{name}: a widget is broken")
    return wrong


def _shoot(page: Any, seen: Seen, shots: Path, stem: str) -> None:
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0 }")
    page.wait_for_timeout(300)
    page.screenshot(path=shots / f"{stem}.png")
    nodes = page.locator(".jp-Notebook .jp-Cell")
    for cell in seen.cells:
        if any(o.get("data") for o in cell["outputs"]):
            nodes.nth(cell["index"]).scroll_into_view_if_needed()
            nodes.nth(cell["index"]).screenshot(path=shots / f"{stem}-{cell['index']:02d}.png")
