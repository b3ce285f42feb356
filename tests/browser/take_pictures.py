"""Take a picture of every view: `make pictures` writes them into build/pictures.

Static pages at 1,300, 900 and 390 pixels, light and dark; and a notebook that is opened again in a
JupyterLab without a kernel, light and dark. Each folder has the PNG files of one look.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from browser.jupyterlab_driver import CHROMIUM, FLAGS, REOPEN, jupyter_in, written
from browser.view_pages import list_views, write_views

LOOKS = [
    (1300, "light"),
    (1300, "dark"),
    (900, "light"),
    (900, "dark"),
    (390, "light"),
    (390, "dark"),
]
CELL = "list_views()[{name!r}](ck.read(SAMPLE))"
FIRST = (
    "import os, sys, warnings\nos.environ['CTXKIT_CACHE_DIR'] = '.cache'\n"
    "sys.path.insert(0, {tests})\nimport ctxkit as ck\nfrom browser.views import SAMPLE, list_views"
)


def take_static(browser: Any, folder: Path) -> int:
    """Take the pictures of the pages that need neither kernel nor script; return how many."""
    with tempfile.TemporaryDirectory() as name:
        pages, count = write_views(Path(name)), 0
        for wide, scheme in LOOKS:
            page = browser.new_page(viewport={"width": wide, "height": 700}, color_scheme=scheme)
            target = folder / f"static-{wide}-{scheme}"
            target.mkdir(parents=True, exist_ok=True)
            for file in pages.values():
                page.goto(file.as_uri())
                page.screenshot(path=target / f"{file.stem}.png", full_page=True)
                count += 1
            page.close()
    return count


def refuse_kernel(route: Any) -> None:
    """Refuse to start a kernel; a refused question about kernels would open a dialog."""
    if route.request.method == "POST":
        route.abort()
    else:
        route.continue_()


def take_reopened(browser: Any, folder: Path) -> int:
    """Take the pictures of a notebook that was saved and is opened without a kernel."""
    names, taken = list(list_views()), []

    def use(page: Any, _: Any) -> None:
        page.evaluate("() => window.notebook.context.save()")
        page.route("**/api/sessions*", refuse_kernel)
        page.evaluate(REOPEN)
        page.wait_for_selector(".jp-Dialog").press("Escape")
        page.add_style_tag(content=".jp-Dialog{display:none!important}")  # it asks again and again
        page.wait_for_timeout(1500)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            theme = f"JupyterLab {scheme.title()}"
            page.evaluate(
                "t => window.jupyterapp.commands.execute('apputils:change-theme', {theme: t})",
                theme,
            )
            target = folder / f"reopened-{scheme}"
            target.mkdir(parents=True, exist_ok=True)
            cells = page.locator(".jp-Notebook .jp-CodeCell")
            for i, view in enumerate(names, 1):  # the first cell imports
                cells.nth(i).scroll_into_view_if_needed()
                cells.nth(i).screenshot(path=target / f"{view.replace(' ', '-')}.png")
                taken.append(view)
        page.unroute("**/api/sessions*")

    with tempfile.TemporaryDirectory() as name, jupyter_in(browser, Path(name)) as running:
        cells = [FIRST, *(CELL.format(name=view) for view in names)]
        running.run(written(Path(name) / "views", *cells), act=use)
    return len(taken)


def main() -> None:
    """Take all pictures into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS.split())
        count = take_static(browser, folder) + take_reopened(browser, folder)
        browser.close()
    sys.stdout.write(f"{count} pictures are in {folder}.\n")


if __name__ == "__main__":
    main()
