"""One browser and one JupyterLab for all tests of this folder: each is started once, when it is first asked for."""

from __future__ import annotations

import pytest

from browser.jupyterlab_driver import CHROMIUM, FLAGS, jupyter_in


@pytest.fixture(scope="package")
def chromium():
    """A browser without a page."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def jupyter(chromium, tmp_path_factory):
    """A JupyterLab that runs and is open."""
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    with jupyter_in(chromium, tmp_path_factory.mktemp("lab")) as running:
        yield running
