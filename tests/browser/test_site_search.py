"""The site's search in pages that are opened from files, at the width of a phone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from browser.jupyterlab_driver import Seen, browser_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two pages under the settings of the real site."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    (folder / "pages" / "questions").mkdir(parents=True)
    (folder / "pages" / "index.md").write_text("# Home\n\nA page about nothing.\n")
    (folder / "pages" / "questions" / "why.md").write_text("# Why\n\nIt says zyzzyva once.\n")
    settings = "site_name: x\ndocs_dir: pages\nuse_directory_urls: false\nplugins: [search]\n"
    (folder / "mkdocs.yml").write_text(settings + "theme: {name: material, font: false}\n")
    (folder / "pages" / "site.css").write_bytes((ROOT / "docs/site/site.css").read_bytes())
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", "site"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "site"


def search_from_file(chromium, site, word, seconds=60):
    """What the search says of a word, and errors of the page."""
    seen = Seen()
    with browser_page(chromium, seen, size=(390, 844)) as page:
        page.goto((site / "questions" / "why.html").as_uri())
        page.locator("header label[for=__search]").first.click()
        page.locator("input.md-search__input").press_sequentially(word, delay=40)
        found = page.locator(".md-search-result__item")
        try:
            found.first.wait_for(timeout=1000 * seconds)
        except Exception:
            seen.problems.append("nothing is found")
        texts = [text.replace("\n", " ") for text in found.all_inner_texts()]
    return texts, seen.problems


def test_a_word_is_found_in_pages_opened_from_files(chromium, site):
    assert search_from_file(chromium, site, "zyzzyva", seconds=5)[1], "without our script it cannot"
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    make_site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_site)
    make_site.search_offline(site)
    texts, errors = search_from_file(chromium, site, "zyzzyva")
    assert errors == []
    assert len(texts) == 1
    assert "zyzzyva" in texts[0]
