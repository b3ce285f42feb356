"""Take a picture of every view: `make pictures` writes them into build/pictures.

Static pages at 1,300, 900 and 390 pixels, light and dark; and a notebook in JupyterLab: with its
kernel, opened again without one, and opened where it is not trusted. Each folder has the PNG files
of one look. `--looks` and `--views` name those that are taken, by parts of their names.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbformat.v4 import new_markdown_cell
from playwright.sync_api import sync_playwright

from browser.jupyterlab_driver import CHROMIUM, FLAGS, REOPEN, jupyter_in, settle, written
from browser.view_pages import TEAM_VIEWS, list_empty_views, list_views, write_views

if TYPE_CHECKING:
    from collections.abc import Iterable

    from browser.jupyterlab_driver import Jupyter

STATIC_LOOKS = [(wide, scheme) for wide in (1300, 900, 390) for scheme in ("light", "dark")]
LAB_LOOKS = [(1280, "light"), (1280, "dark"), (900, "light")]
"""Width of the page in pixels, and theme."""
LAB_STATES = ("live", "reopened", "untrusted")
MIN_HEIGHT, MARGIN = 2400, 300
"""Pixels of height of a lab's page at least, and around its highest cell: else a picture is cut."""
CELL = "(list_views() | TEAM_VIEWS)[{name!r}](ck.read(SAMPLE))"
FIRST = (
    "import os, sys, warnings\nos.environ['CTXKIT_CACHE_DIR'] = '.cache'\nsys.path.insert(0, {tests})\n"
    "import ctxkit as ck\nfrom browser.view_pages import SAMPLE, TEAM_VIEWS, list_views\n%load_ext ctxkit"
)
MAGICS = {
    "agent": "%%agent --model scripted/audit\nGo",
    "context": "%context",
    "context list": "%context list",
    "context checkpoints": "%context checkpoints",
}
"""Cells of magics, in the order in which they run."""
OPEN_FILE = """async path => {
  for (const widget of [...window.jupyterapp.shell.widgets('main')]) widget.dispose();
  const panel = await window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'});
  await panel.context.ready; await panel.revealed;
  window.jupyterapp.shell.activateById(panel.id);
  window.notebook = panel;
}"""
HIGHEST = """() => Math.max(...[...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].map(e => e.offsetHeight))"""


def main() -> int:
    """Take the pictures into the folder that is named; return 1 if a cell of the lab failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--looks", nargs="*", default=[""], help="such as static-900 or reopened")
    parser.add_argument("--views", nargs="*", default=[""], help="such as plots.")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        taker = PictureTaker(browser, options.folder, options.looks, options.views)
        taker.take_static()
        taker.take_lab()
        browser.close()
    sys.stdout.write(f"{taker.count} pictures are in {options.folder}.\n")
    return int(taker.has_failed)


class PictureTaker:
    """Takes pictures of the views and looks that contain one of some words."""

    def __init__(
        self, browser: Any, folder: Path, looks: Iterable[str], views: Iterable[str]
    ) -> None:
        self.browser, self.folder, self.count = browser, folder, 0
        self.looks, self.views = list(looks), list(views)
        self.has_failed = False

    def is_chosen(self, name: str, words: Iterable[str]) -> bool:
        """Say whether a name contains one of the words."""
        return any(word in name for word in words)

    def take_static(self) -> None:
        """Take the pictures of the pages that need neither kernel nor script."""
        looks = [
            look
            for look in STATIC_LOOKS
            if self.is_chosen(f"static-{look[0]}-{look[1]}", self.looks)
        ]
        if not looks:
            return
        every = {**list_views(), **TEAM_VIEWS, **list_empty_views()}
        views = {name: make for name, make in every.items() if self.is_chosen(name, self.views)}
        with tempfile.TemporaryDirectory() as name:
            pages = write_views(Path(name), views)
            for wide, scheme in looks:
                page = self.browser.new_page(
                    viewport={"width": wide, "height": 700}, color_scheme=scheme
                )
                for file in pages.values():
                    page.goto(file.as_uri())
                    self._shoot(page, f"static-{wide}-{scheme}", file.stem, full_page=True)
                page.close()

    def take_lab(self) -> None:
        """Take the pictures of a notebook that runs, is opened again, and is not trusted."""
        states = [state for state in LAB_STATES if self._list_lab_looks(state)]
        if not states:
            return
        cells = {name: CELL.format(name=name) for name in (*list_views(), *TEAM_VIEWS)} | MAGICS
        cells = {name: code for name, code in cells.items() if self.is_chosen(name, self.views)}

        def use(page: Any, _: Any) -> None:
            for state in states:
                if state == "reopened":
                    _reopen_without_kernel(page)
                elif state == "untrusted":
                    _open_untrusted(page, running)
                self._take_cells(page, state, list(cells))
            page.unroute("**/api/sessions*")

        with (
            tempfile.TemporaryDirectory() as name,
            jupyter_in(self.browser, Path(name)) as running,
        ):
            seen = running.run(written(Path(name) / "views", FIRST, *cells.values()), act=use)
        for problem in seen.problems:
            sys.stderr.write(f"{problem}\n")
            self.has_failed |= problem.startswith("cell ")

    def _list_lab_looks(self, state: str) -> list[tuple[int, str]]:
        names = {look: f"{state}-{look[0]}-{look[1]}" for look in LAB_LOOKS}
        return [look for look, name in names.items() if self.is_chosen(name, self.looks)]

    def _take_cells(self, page: Any, state: str, names: list[str]) -> None:
        """Take a picture of each cell after the first, which imports."""
        for wide, scheme in self._list_lab_looks(state):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": wide, "height": MIN_HEIGHT})
            theme = f"JupyterLab {scheme.title()}"
            page.evaluate(
                "t => window.jupyterapp.commands.execute('apputils:change-theme', {theme: t})",
                theme,
            )
            settle(page, 1500)
            high = max(MIN_HEIGHT, page.evaluate(HIGHEST) + MARGIN)
            page.set_viewport_size({"width": wide, "height": high})
            settle(page)
            cells = page.locator(".jp-Notebook .jp-CodeCell")
            for i, view in enumerate(names, 1):
                cells.nth(i).scroll_into_view_if_needed()
                self._shoot(cells.nth(i), f"{state}-{wide}-{scheme}", view.replace(" ", "-"))

    def _shoot(self, shown: Any, look: str, name: str, **options: Any) -> None:
        target = self.folder / look
        target.mkdir(parents=True, exist_ok=True)
        shown.screenshot(path=target / f"{name}.png", **options)
        self.count += 1


def _refuse_kernel(route: Any) -> None:
    """Refuse to start a kernel; a refused question about kernels would open a dialog."""
    if route.request.method == "POST":
        route.abort()
    else:
        route.continue_()


def _reopen_without_kernel(page: Any) -> None:
    page.evaluate("() => window.notebook.context.save()")
    page.route("**/api/sessions*", _refuse_kernel)
    page.evaluate(REOPEN)
    _dismiss_dialogs(page)


def _open_untrusted(page: Any, running: Jupyter) -> None:
    """Open a copy with another text: it has no signature of this machine."""
    path = page.evaluate("() => window.notebook.context.path")
    notebook = nbformat.read(running.root / path, as_version=4)
    notebook.cells.append(new_markdown_cell("From elsewhere."))
    copy = Path(path).with_name("untrusted.ipynb")
    nbformat.write(notebook, running.root / copy)
    page.route("**/api/sessions*", _refuse_kernel)
    page.evaluate(OPEN_FILE, str(copy))
    _dismiss_dialogs(page)


def _dismiss_dialogs(page: Any) -> None:
    page.wait_for_selector(".jp-Dialog", state="attached").press("Escape")
    page.add_style_tag(content=".jp-Dialog{display:none!important}")  # it asks again and again


if __name__ == "__main__":
    sys.exit(main())
